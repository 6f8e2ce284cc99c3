//! Why a task failed.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments name no task.
    #[error("{0}")]
    Usage(&'static str),
    /// A program cannot be started.
    #[error("cannot start `{program}`: {source}{help}")]
    Start {
        /// As it was called.
        program: String,
        /// What the system says.
        source: std::io::Error,
        /// What to install, if that helps.
        help: &'static str,
    },
    /// A program failed.
    #[error("`{command}` failed ({status}){help}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What to do about it, if that is known.
        help: &'static str,
    },
    /// A program printed something else than it should.
    #[error("`{command}` printed no {expected}; it printed {found:?}")]
    Output {
        /// The command line.
        command: String,
        /// What was looked for.
        expected: &'static str,
        /// What it printed.
        found: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Cargo built something else than it should.
    #[error("there is no {what}")]
    Missing {
        /// What was looked for.
        what: String,
    },
    /// An installed package lacks a file.
    #[error("the package holds no {}; delete {} and try again", file, folder.display())]
    Package {
        /// The file.
        file: &'static str,
        /// Where it was installed.
        folder: PathBuf,
    },
    /// The macro takes too long.
    #[error("expansion takes longer than its limit: {0}")]
    TooSlow(String),
}

impl Error {
    /// Adds the path to what the system says about it.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    }
}
