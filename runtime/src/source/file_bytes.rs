//! The bytes of a file: mapped, or handed over by the caller.

use super::SourceError;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a whole file.
#[derive(Debug)]
pub(super) enum FileBytes {
    /// A read-only mapping.
    Mapped(memmap2::Mmap),
    /// Bytes from elsewhere.
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Maps a file.
    pub fn map(path: &Path) -> Result<FileBytes, SourceError> {
        let io = |source| SourceError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(FileBytes::Owned(Vec::new())); // an empty mapping is an error on some systems
        }
        // SAFETY: the mapping is private to this process and read-only. What remains is another
        // process writing to the file or cutting it while it is mapped, which no check here can
        // exclude; `open` documents that a model file is not modified while it is in use.
        let mapping = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Ok(FileBytes::Mapped(mapping))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(mapping) => mapping,
            FileBytes::Owned(bytes) => bytes,
        }
    }
}
