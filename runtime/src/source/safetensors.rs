//! Safetensors files.
//!
//! ```text
//! header length (u64) | JSON: name → dtype, shape, [begin, end] | data
//! ```
//!
//! The `safetensors` crate parses the header and checks that the spans cover the data without
//! gap or overlap. Two things are checked here before, because the crate does not: that no name
//! appears twice (it keeps the last one), and that a tensor whose span is wrong is named along
//! with both sizes.

use super::file_bytes::FileBytes;
use super::named::Named;
use super::{Encoding, SourceError, TensorSource, TensorView};
use fuseline_core::dtype::DType;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorInfo};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::path::Path;

/// The longest header that the `safetensors` crate reads (`MAX_HEADER_SIZE` in its source).
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of the length in front of the header.
const LENGTH_BYTES: usize = 8;

/// An open safetensors file.
#[derive(Debug)]
pub struct Safetensors {
    bytes: FileBytes,
    /// With spans that lie in the data.
    tensors: Named<TensorInfo>,
    /// Where in the file the data begins.
    data_at: usize,
}

impl Safetensors {
    /// Opens a file. It is mapped, so it must not be modified while this value is alive.
    ///
    /// # Errors
    /// [`SourceError::Io`] if it cannot be read; otherwise what is wrong with its contents.
    pub fn open(path: impl AsRef<Path>) -> Result<Safetensors, SourceError> {
        Safetensors::parse(FileBytes::map(path.as_ref())?)
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// What is wrong with its contents.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Safetensors, SourceError> {
        Safetensors::parse(FileBytes::Owned(bytes))
    }

    fn parse(bytes: FileBytes) -> Result<Safetensors, SourceError> {
        let header = header_bytes(&bytes)?;
        let data_at = LENGTH_BYTES + header.len();
        let Entries(mut entries) = serde_json::from_slice(header).map_err(|error| {
            let expected = "a JSON object of name → dtype, shape, data_offsets";
            SourceError::invalid("the safetensors header", expected, error)
        })?;
        entries.sort_by_key(|(_, info)| info.data_offsets);
        let mut tensors = Named::default();
        for (name, info) in entries {
            check_span(&name, &info, data_at as u64, bytes.len() as u64)?;
            tensors.insert("tensor", &name, info)?;
        }
        SafeTensors::read_metadata(&bytes).map_err(|error| {
            SourceError::invalid("the safetensors header", "spans that cover the data", error)
        })?;
        Ok(Safetensors { bytes, tensors, data_at })
    }
}

impl TensorSource for Safetensors {
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, SourceError> {
        let (name, info) = self.tensors.tensor(name)?;
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::I32 => DType::I32,
            other => {
                return Err(SourceError::UndeclaredType {
                    tensor: name.to_owned(),
                    expected: "F32, F16, BF16, I32".to_owned(),
                    found: format!("{other:?}"),
                });
            }
        };
        let (begin, end) = info.data_offsets;
        Ok(TensorView {
            name,
            shape: info.shape.clone(),
            encoding: Encoding::Dense(dtype),
            bytes: &self.bytes[self.data_at + begin..self.data_at + end],
        })
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }
}

/// The JSON text in front of the data.
fn header_bytes(file: &[u8]) -> Result<&[u8], SourceError> {
    let truncated = |what: &str, offset, expected| SourceError::Truncated {
        what: what.to_owned(),
        offset: offset as u64,
        expected,
        found: (file.len() - offset) as u64,
    };
    let (&length, rest) = file
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| truncated("the header's length", 0, LENGTH_BYTES as u64))?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(SourceError::HeaderTooLong { found: length, limit: MAX_HEADER_BYTES });
    }
    let header = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    header.ok_or_else(|| truncated("the header", LENGTH_BYTES, length))
}

/// Checks that a tensor's span is as long as its shape and type ask for, and in the data.
fn check_span(
    name: &str,
    info: &TensorInfo,
    data_at: u64,
    file_bytes: u64,
) -> Result<(), SourceError> {
    let (begin, end) = info.data_offsets;
    let what = || format!("the data_offsets of tensor `{name}`");
    let Some(found) = end.checked_sub(begin) else {
        return Err(SourceError::invalid(what(), "begin ≤ end", format!("[{begin}, {end}]")));
    };
    let elements = info.shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim as u64));
    let bits = elements.and_then(|n| n.checked_mul(info.dtype.bitsize() as u64));
    let Some(bits) = bits else {
        let what = format!("tensor `{name}` of shape {:?}", info.shape);
        return Err(SourceError::invalid(what, "a size below 2^64 bits", "a larger one"));
    };
    if bits.div_ceil(8) != found as u64 {
        return Err(SourceError::TensorSize {
            tensor: name.to_owned(),
            shape: info.shape.clone(),
            unit: "bytes",
            expected: bits.div_ceil(8),
            found: found as u64,
        });
    }
    if end as u64 > file_bytes - data_at {
        let offset = data_at.saturating_add(begin as u64);
        return Err(SourceError::Truncated {
            what: format!("tensor `{name}`"),
            offset,
            expected: found as u64,
            found: file_bytes.saturating_sub(offset),
        });
    }
    Ok(())
}

/// The tensors of a header, those of the same name included.
struct Entries(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?; // strings about the file, unused here
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}
