//! Compiled kernels on disk: one file a kernel, named by everything that its bytes depend on.
//!
//! A file is written beside its place and renamed, so that no reader sees half of one, and many
//! processes may write at once. What was damaged since is noticed and compiled again.

use super::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"fuselnk1";
const DIGEST_BYTES: usize = 32;

/// What the bytes of a compiled kernel depend on, as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// The key of a source, compiled by a version for an architecture with options. Comments do
    /// not count.
    pub fn new(source: &str, compiler: &str, arch: &str, options: &[&str]) -> Key {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(compiler.as_bytes());
        part(arch.as_bytes());
        options.iter().for_each(|option| part(option.as_bytes()));
        for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
            part(line.split(" // ").next().unwrap_or(line).as_bytes());
        }
        Key(hex(&hash.finalize()))
    }

    /// The name of its file.
    pub fn name(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A folder of compiled kernels, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCache {
    folder: Option<PathBuf>,
}

impl DiskCache {
    /// The user's: `FUSELINE_CACHE`, or `fuseline/kernels` in the cache folder of the system. An
    /// empty `FUSELINE_CACHE` means none.
    pub fn of_user() -> DiskCache {
        use etcetera::BaseStrategy;
        let folder = match std::env::var_os("FUSELINE_CACHE") {
            Some(path) if path.is_empty() => None,
            Some(path) => Some(path.into()),
            None => etcetera::choose_base_strategy()
                .ok()
                .map(|base| base.cache_dir().join("fuseline").join("kernels")),
        };
        DiskCache { folder }
    }

    /// One in this folder, which need not exist yet.
    pub fn at(folder: &Path) -> DiskCache {
        DiskCache { folder: Some(folder.to_path_buf()) }
    }

    /// None: every process compiles for itself.
    pub fn none() -> DiskCache {
        DiskCache { folder: None }
    }

    /// Where it is.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The bytes of a key, if they are there and whole.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let file = fs::read(self.folder.as_ref()?.join(key.name())).ok()?;
        unpack(&file).map(<[u8]>::to_vec)
    }

    /// Keeps the bytes of a key.
    ///
    /// # Errors
    /// [`Error::Io`]: the kernel can be used all the same.
    pub fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io(folder))?;
        file.write_all(&pack(bytes)).map_err(io(file.path()))?;
        let place = folder.join(key.name());
        file.persist(&place).map_err(|error| Error::Io { path: place, source: error.error })?;
        Ok(())
    }
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    [MAGIC.as_slice(), &Sha256::digest(bytes), bytes].concat()
}

fn unpack(file: &[u8]) -> Option<&[u8]> {
    let rest = file.strip_prefix(MAGIC)?;
    let (digest, bytes) = rest.split_at_checked(DIGEST_BYTES)?;
    (Sha256::digest(bytes).as_slice() == digest).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: &str) -> Key {
        Key::new(source, "13.0", "sm_90a", &["--fmad=false"])
    }

    #[test]
    fn the_key_is_all_that_the_bytes_depend_on() {
        let source = "// plan\nint x; // [3]\n  // here\nint y;\n";
        assert_eq!(key(source), key("int x;\n// elsewhere\nint y;"));
        assert_ne!(key(source), key("int x;\nint z;"));
        assert_ne!(key("ab\nc"), key("a\nbc"));
        assert_ne!(key(source), Key::new(source, "13.1", "sm_90a", &["--fmad=false"]));
        assert_ne!(key(source), Key::new(source, "13.0", "sm_80", &["--fmad=false"]));
        assert_ne!(key(source), Key::new(source, "13.0", "sm_90a", &[]));
    }

    #[test]
    fn what_is_put_is_got() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(&folder.path().join("a").join("b"));
        assert_eq!(cache.get(&key("x")), None);
        cache.put(&key("x"), b"code").unwrap();
        assert_eq!(cache.get(&key("x")).unwrap(), b"code");
        assert_eq!(cache.get(&key("y")), None);
        cache.put(&key("x"), b"other").unwrap();
        assert_eq!(cache.get(&key("x")).unwrap(), b"other");
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(cache.folder().unwrap()).unwrap().count(), 1);
        DiskCache::none().put(&key("x"), b"code").unwrap();
        assert_eq!(DiskCache::none().get(&key("x")), None);
    }

    #[test]
    fn every_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        cache.put(&key("x"), b"machine code").unwrap();
        let path = folder.path().join(key("x").name());
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.get(&key("x")), None, "cut at {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            assert_eq!(cache.get(&key("x")), None, "a bit of byte {at}");
        }
        fs::write(&path, [whole.as_slice(), b"x"].concat()).unwrap();
        assert_eq!(cache.get(&key("x")), None);
    }

    #[test]
    fn many_writers_leave_one_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        let bytes = |n: u8| vec![n; 100_000];
        std::thread::scope(|scope| {
            for n in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..20 {
                        cache.put(&key("x"), &bytes(n)).unwrap();
                        let found = cache.get(&key("x")).unwrap();
                        assert!((0..4).any(|n| found == bytes(n)));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
