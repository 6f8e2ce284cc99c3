//! Writing files so that nobody reads half of one, and that unchanged ones keep their time.

use crate::BuildError;
use std::fs;
use std::path::Path;

/// Gives the file this content, unless it has it.
pub(crate) fn write_if_changed(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    if fs::read(path).is_ok_and(|known| known == content) {
        return Ok(());
    }
    let failed = |source| BuildError::Write { path: path.to_path_buf(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // Several builds may write the same file at a time: each its own, then they are renamed.
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".part-{}", std::process::id()));
    let beside = path.with_file_name(name);
    fs::write(&beside, content).and_then(|()| fs::rename(&beside, path)).map_err(failed)
}
