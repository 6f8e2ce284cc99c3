//! Kernels compiled when the program is built: an archive that the program embeds, and gives to
//! its devices ([`Options::ahead`](super::Options::ahead)). No NVRTC is needed then.

use super::error::Result;
use super::kernels::{AHEAD, Embedded, compile_kernel, kernel_key};
use crate::emit::parts;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"fuselna1";

/// An archive of compiled kernels, for one or more architectures.
#[derive(Clone, Debug)]
pub struct Archive {
    kernels: Embedded,
}

/// Why bytes are no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no archive of kernels: damaged at byte {at} of {bytes}")]
pub struct ArchiveError {
    /// Where.
    pub at: usize,
    /// Of how many.
    pub bytes: usize,
}

impl Archive {
    /// Reads an archive that [`build_archive`] made.
    ///
    /// # Errors
    /// If the bytes are none, or not all of one.
    pub fn read(bytes: &'static [u8]) -> std::result::Result<Archive, ArchiveError> {
        let mut rest = bytes;
        let fail = |rest: &[u8]| ArchiveError { at: bytes.len() - rest.len(), bytes: bytes.len() };
        rest = rest.strip_prefix(MAGIC).ok_or(fail(rest))?;
        let mut kernels = Embedded::new();
        while !rest.is_empty() {
            let mut field = || {
                let (length, after) = rest.split_first_chunk::<8>()?;
                let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
                let (field, after) = after.split_at_checked(length)?;
                rest = after;
                Some(field)
            };
            let (Some(name), Some(image)) = (field(), field()) else { return Err(fail(rest)) };
            let name = std::str::from_utf8(name).map_err(|_| fail(rest))?;
            kernels.insert(name.to_string(), image);
        }
        Ok(Archive { kernels })
    }

    /// How many kernels are in it, each architecture counted.
    pub fn n_kernels(&self) -> usize {
        self.kernels.len()
    }

    pub(crate) fn into_kernels(self) -> Embedded {
        self.kernels
    }
}

/// Compiles every kernel of some sources for some architectures, such as `sm_90a`, on all
/// processors.
///
/// # Errors
/// If NVRTC is missing, or refuses a kernel.
pub fn build_archive(sources: &[&str], archs: &[&str]) -> Result<Vec<u8>> {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    // Several blocks may have the same kernel.
    let mut jobs: BTreeMap<String, (String, String, String)> = BTreeMap::new();
    for source in sources {
        let parts = parts(source);
        for (name, _) in &parts.kernels {
            let Some(text) = parts.source_of(name) else { continue };
            for arch in archs {
                let key = kernel_key(&text, arch, AHEAD).name().to_string();
                jobs.insert(key, ((*name).to_string(), (*arch).to_string(), text.clone()));
            }
        }
    }
    let jobs: Vec<(String, (String, String, String))> = jobs.into_iter().collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..n_threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((key, (name, arch, text))) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let image = compile_kernel(text, name, arch);
                    super::kernels::lock(&done).insert(key.clone(), image);
                }
            });
        }
    });
    let mut archive = MAGIC.to_vec();
    for (key, image) in done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        for field in [key.as_bytes(), &image?] {
            archive.extend((field.len() as u64).to_le_bytes());
            archive.extend(field);
        }
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(fields: &[(&str, &[u8])]) -> &'static [u8] {
        let mut bytes = MAGIC.to_vec();
        for (name, image) in fields {
            for field in [name.as_bytes(), image] {
                bytes.extend((field.len() as u64).to_le_bytes());
                bytes.extend(field);
            }
        }
        bytes.leak()
    }

    #[test]
    fn an_archive_is_read_or_refused() {
        let whole = archive(&[("a", b"code"), ("b", b"")]);
        let read = Archive::read(whole).unwrap();
        assert_eq!(read.n_kernels(), 2);
        assert_eq!(read.kernels["a"], b"code");
        assert_eq!(Archive::read(archive(&[])).unwrap().n_kernels(), 0);
        // Cut anywhere but behind a kernel.
        let behind_one = MAGIC.len() + 8 + 1 + 8 + 4;
        for at in 0..whole.len() {
            let cut = Archive::read(&whole[..at]);
            assert_eq!(cut.is_ok(), at == MAGIC.len() || at == behind_one, "cut at {at}");
        }
        let mut wild = whole.to_vec();
        wild[MAGIC.len()..MAGIC.len() + 8].fill(0xff);
        let error = Archive::read(wild.leak()).unwrap_err();
        assert_eq!(error.at, MAGIC.len());
    }
}
