//! GGUF files, versions 2 and 3, little endian.
//!
//! ```text
//! "GGUF" version n_tensors n_pairs | pairs | tensor headers | padding | data of the tensors
//! ```
//!
//! - A pair is a key, a type and a value; a tensor header is a name, dims (innermost first), a
//!   type and an offset into the data, which begins at a multiple of `general.alignment`.
//! - Opening checks every header, and that every tensor of a declared type lies in the file.
//! - A tensor of a type that nothing declares is an error when it is asked for, so that a file
//!   with one such tensor serves a program that uses the others.
//!
//! The format is parsed here and not by a crate because what `source` promises (no panic for
//! any bytes, no allocation by a claimed size, errors that name what was expected) has to hold
//! for each field, and the parser that keeps it is not much longer than the calls to another.

mod cursor;
mod metadata;
mod tensor_type;

use super::file_bytes::FileBytes;
use super::named::Named;
use super::{SourceError, TensorSource, TensorView, stored_bytes};
use cursor::Cursor;
use fuseline_core::format::{FORMATS, WeightFormat};
use metadata::{Metadata, Type};
use std::path::Path;
use tensor_type::TensorType;

/// What `general.alignment` is when a file does not state it.
const DEFAULT_ALIGNMENT: u32 = 32;
/// The most dims that a tensor has (`GGML_MAX_DIMS` in `ggml.h`).
const MAX_DIMS: u32 = 4;

/// An open GGUF file.
#[derive(Debug)]
pub struct Gguf {
    bytes: FileBytes,
    metadata: Metadata,
    tensors: Named<Header>,
    /// Where in the file the data of the tensors begins.
    data_at: u64,
    /// The types that can be read; a later entry goes before an earlier one.
    types: Vec<TensorType>,
}

/// What a file says about a tensor.
#[derive(Clone, Debug)]
struct Header {
    /// Outermost first.
    shape: Vec<usize>,
    type_id: u32,
    /// Into the data of the tensors.
    offset: u64,
}

impl Gguf {
    /// Opens a file. It is mapped, so it must not be modified while this value is alive.
    ///
    /// # Errors
    /// [`SourceError::Io`] if it cannot be read; otherwise what is wrong with its contents.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, SourceError> {
        Gguf::parse(FileBytes::map(path.as_ref())?)
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// What is wrong with its contents.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf, SourceError> {
        Gguf::parse(FileBytes::Owned(bytes))
    }

    /// Reads tensors of a further format from now on. One that GGUF files do not store changes
    /// nothing.
    pub fn declare(&mut self, format: &WeightFormat) {
        self.types.extend(TensorType::of_format(format));
    }

    /// All metadata keys, in the order of the file.
    pub fn metadata_keys(&self) -> Vec<&str> {
        self.metadata.keys()
    }

    /// The `u32` under a key.
    ///
    /// # Errors
    /// This and the getters below fail with [`SourceError::MissingKey`], or with
    /// [`SourceError::KeyType`] if the value has another type, be it only another width.
    pub fn u32(&self, key: &str) -> Result<u32, SourceError> {
        self.metadata.fixed(&self.bytes, key, Type::U32).map(u32::from_le_bytes)
    }

    /// The `u64` under a key.
    pub fn u64(&self, key: &str) -> Result<u64, SourceError> {
        self.metadata.fixed(&self.bytes, key, Type::U64).map(u64::from_le_bytes)
    }

    /// The `f32` under a key.
    pub fn f32(&self, key: &str) -> Result<f32, SourceError> {
        self.metadata.fixed(&self.bytes, key, Type::F32).map(f32::from_le_bytes)
    }

    /// The `bool` under a key. A byte other than 0 and 1 is [`SourceError::Invalid`].
    pub fn bool(&self, key: &str) -> Result<bool, SourceError> {
        match self.metadata.fixed(&self.bytes, key, Type::Bool)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(SourceError::invalid(format!("metadata key `{key}`"), "0 or 1", other)),
        }
    }

    /// The string under a key. One that is not UTF-8 is [`SourceError::Invalid`].
    pub fn str(&self, key: &str) -> Result<&str, SourceError> {
        self.metadata.string(&self.bytes, key)
    }

    /// The array of strings under a key. One that is not UTF-8 is [`SourceError::Invalid`].
    pub fn strings(&self, key: &str) -> Result<Vec<&str>, SourceError> {
        self.metadata.strings(&self.bytes, key)
    }

    /// The array of `i32` under a key.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, SourceError> {
        let elements = self.metadata.fixed_array(&self.bytes, key, Type::I32)?;
        Ok(elements.iter().copied().map(i32::from_le_bytes).collect())
    }

    /// The array of `f32` under a key.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>, SourceError> {
        let elements = self.metadata.fixed_array(&self.bytes, key, Type::F32)?;
        Ok(elements.iter().copied().map(f32::from_le_bytes).collect())
    }

    fn parse(bytes: FileBytes) -> Result<Gguf, SourceError> {
        let mut cursor = Cursor::new(&bytes);
        if !bytes.starts_with(b"GGUF") {
            return Err(SourceError::NotGguf { found: bytes.iter().take(4).copied().collect() });
        }
        cursor.take(4, format_args!("the magic"))?;
        let version = cursor.u32(format_args!("the version"))?;
        if !matches!(version, 2 | 3) {
            return Err(SourceError::Version { found: version });
        }
        let n_tensors = cursor.u64(format_args!("the number of tensors"))?;
        let n_pairs = cursor.u64(format_args!("the number of metadata keys"))?;
        let metadata = Metadata::read(&mut cursor, n_pairs)?;
        let alignment = alignment(&metadata, &bytes)?;
        let tensors = read_headers(&mut cursor, n_tensors, alignment)?;

        // Cannot overflow: a file in memory is shorter than 2^63 bytes.
        let data_at = (cursor.offset() as u64).next_multiple_of(u64::from(alignment));
        let formats = FORMATS.iter().copied().filter_map(TensorType::of_format);
        let types = formats.chain([TensorType::i32()]).collect();
        let file = Gguf { metadata, tensors, data_at, types, bytes };
        for (name, header) in file.tensors.iter() {
            if let Some(found) = file.tensor_type(header.type_id) {
                file.data(name, header, found)?;
            }
        }
        Ok(file)
    }

    fn tensor_type(&self, type_id: u32) -> Option<&TensorType> {
        self.types.iter().rev().find(|candidate| candidate.type_id == type_id)
    }

    /// The bytes of a tensor.
    fn data(
        &self,
        name: &str,
        header: &Header,
        tensor_type: &TensorType,
    ) -> Result<&[u8], SourceError> {
        let size = stored_bytes(name, &header.shape, tensor_type.block)?;
        let offset = self.data_at.saturating_add(header.offset);
        let rest = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
        let rest = rest.unwrap_or(&[]);
        match usize::try_from(size).ok().and_then(|size| rest.get(..size)) {
            Some(data) => Ok(data),
            None => Err(SourceError::Truncated {
                what: format!("tensor `{name}`"),
                offset,
                expected: size,
                found: rest.len() as u64,
            }),
        }
    }
}

impl TensorSource for Gguf {
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, SourceError> {
        let (name, header) = self.tensors.tensor(name)?;
        let Some(found) = self.tensor_type(header.type_id) else {
            let mut expected: Vec<String> =
                self.types.iter().map(|readable| readable.encoding.to_string()).collect();
            expected.dedup();
            return Err(SourceError::UndeclaredType {
                tensor: name.to_owned(),
                expected: expected.join(", "),
                found: tensor_type::describe(header.type_id),
            });
        };
        Ok(TensorView {
            name,
            shape: header.shape.clone(),
            encoding: found.encoding.clone(),
            bytes: self.data(name, header, found)?,
        })
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }
}

/// The alignment of the data, in bytes.
fn alignment(metadata: &Metadata, file: &[u8]) -> Result<u32, SourceError> {
    let key = "general.alignment";
    match metadata.fixed(file, key, Type::U32).map(u32::from_le_bytes) {
        Ok(0) => Err(SourceError::invalid(format!("metadata key `{key}`"), "a positive number", 0)),
        Err(SourceError::MissingKey { .. }) => Ok(DEFAULT_ALIGNMENT),
        other => other,
    }
}

fn read_headers(
    cursor: &mut Cursor<'_>,
    n_tensors: u64,
    alignment: u32,
) -> Result<Named<Header>, SourceError> {
    let mut tensors = Named::default();
    for index in 0..n_tensors {
        let name = cursor.string(format_args!("the name of tensor {index} of {n_tensors}"))?;
        let n_dims = cursor.u32(format_args!("the number of dims of tensor `{name}`"))?;
        if n_dims > MAX_DIMS {
            let what = format!("the number of dims of tensor `{name}`");
            return Err(SourceError::invalid(what, format!("at most {MAX_DIMS}"), n_dims));
        }
        let mut shape = Vec::new();
        for _ in 0..n_dims {
            let dim = cursor.u64(format_args!("the dims of tensor `{name}`"))?;
            shape.push(usize::try_from(dim).map_err(|_| {
                let what = format!("a dim of tensor `{name}`");
                SourceError::invalid(what, format!("at most {}", usize::MAX), dim)
            })?);
        }
        shape.reverse();
        let type_id = cursor.u32(format_args!("the type of tensor `{name}`"))?;
        let offset = cursor.u64(format_args!("the offset of tensor `{name}`"))?;
        if offset % u64::from(alignment) != 0 {
            let what = format!("the offset of tensor `{name}`");
            return Err(SourceError::invalid(what, format!("a multiple of {alignment}"), offset));
        }
        tensors.insert("tensor", name, Header { shape, type_id, offset })?;
    }
    Ok(tensors)
}
