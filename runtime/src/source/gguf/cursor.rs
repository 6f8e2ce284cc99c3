//! Reading a file front to back without ever leaving it.

use crate::source::SourceError;
use std::fmt::Arguments;

/// A position in the bytes of a file. `what` arguments say in an error what was being read; they
/// are formatted only then.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the front.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, offset: 0 }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The next `len` bytes, a length that a file may have claimed.
    pub fn take(&mut self, len: u64, what: Arguments<'_>) -> Result<&'a [u8], SourceError> {
        let rest = &self.bytes[self.offset..];
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.offset += taken.len();
                Ok(taken)
            }
            None => Err(SourceError::Truncated {
                what: what.to_string(),
                offset: self.offset as u64,
                expected: len,
                found: rest.len() as u64,
            }),
        }
    }

    /// The next 4 bytes as a number.
    pub fn u32(&mut self, what: Arguments<'_>) -> Result<u32, SourceError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next 8 bytes as a number.
    pub fn u64(&mut self, what: Arguments<'_>) -> Result<u64, SourceError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: its length in 8 bytes, then as many bytes of UTF-8.
    pub fn string(&mut self, what: Arguments<'_>) -> Result<&'a str, SourceError> {
        let bytes = self.string_bytes(what)?;
        utf8(bytes, what)
    }

    /// A string that is not checked to be UTF-8.
    pub fn string_bytes(&mut self, what: Arguments<'_>) -> Result<&'a [u8], SourceError> {
        let len = self.u64(format_args!("the length of {what}"))?;
        self.take(len, what)
    }

    fn array<const N: usize>(&mut self, what: Arguments<'_>) -> Result<[u8; N], SourceError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }
}

/// `bytes` as a string.
pub(super) fn utf8<'a>(bytes: &'a [u8], what: Arguments<'_>) -> Result<&'a str, SourceError> {
    std::str::from_utf8(bytes)
        .map_err(|error| SourceError::invalid(what.to_string(), "UTF-8", error))
}
