//! The data file: one zlib stream of buffers, each kept once.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A data file that is being written.
pub struct Store {
    stream: ZlibEncoder<BufWriter<File>>,
    /// Where each buffer begins in the stream, and its bytes.
    buffers: Vec<(u64, u64)>,
    end: u64,
    /// Buffers by length and two independent 64-bit hashes.
    known: HashMap<(usize, u64, u64), usize>,
    hashers: (RandomState, RandomState),
}

impl Store {
    /// Creates the file.
    pub fn create(path: &Path) -> io::Result<Store> {
        let file = BufWriter::new(File::create(path)?);
        Ok(Store {
            stream: ZlibEncoder::new(file, Compression::new(6)),
            buffers: Vec::new(),
            end: 0,
            known: HashMap::new(),
            hashers: (RandomState::new(), RandomState::new()),
        })
    }

    /// The number of a buffer with this content.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let key = (bytes.len(), self.hashers.0.hash_one(bytes), self.hashers.1.hash_one(bytes));
        if let Some(&index) = self.known.get(&key) {
            return Ok(index);
        }
        self.stream.write_all(bytes)?;
        let index = self.buffers.len();
        self.buffers.push((self.end, bytes.len() as u64));
        self.end += bytes.len() as u64;
        self.known.insert(key, index);
        Ok(index)
    }

    /// Ends the file: start and bytes of every buffer, and the bytes of the file.
    pub fn finish(self) -> io::Result<(Vec<(u64, u64)>, u64)> {
        let mut file = self.stream.finish()?;
        file.flush()?;
        let bytes = file.get_ref().metadata()?.len();
        Ok((self.buffers, bytes))
    }
}
