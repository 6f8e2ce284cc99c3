//! NVIDIA's run-time compiler, which needs neither a GPU nor a CUDA toolkit: installed once,
//! beside the build products.

use crate::error::Error;
use crate::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pinned: a newer NVRTC writes what older drivers of the same major version refuse.
const VERSION: &str = "13.0.88";

/// The library, in the package.
const LIBRARY: &str = "nvidia/cu13/lib/libnvrtc.so.13";

const HELP: &str = "
help: install Python 3 with pip; the tests that compile generated source need a package from it";

/// The folder that holds the library, which is installed if it is not there.
pub fn folder() -> Result<PathBuf, Error> {
    let target = run::target();
    let home = target.join(format!("nvrtc-{VERSION}"));
    let library = home.join(LIBRARY);
    if !library.exists() {
        install(&home)?;
    }
    let folder = library.parent().map(PathBuf::from).unwrap_or(home);
    std::path::absolute(&folder).map_err(Error::file(&folder))
}

/// Installs beside the place and renames, so that a broken download never looks complete.
fn install(home: &Path) -> Result<(), Error> {
    let beside = home.with_file_name(format!("nvrtc-{VERSION}.part-{}", std::process::id()));
    eprintln!("installing NVRTC {VERSION} into {} (about 60 MB, once)", home.display());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--target"])
        .arg(&beside)
        .arg(format!("nvidia-cuda-nvrtc=={VERSION}"));
    let installed = run::run(&mut pip, HELP).and_then(|()| match beside.join(LIBRARY).exists() {
        true => Ok(()),
        false => Err(Error::Package { file: LIBRARY, folder: beside.clone() }),
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
