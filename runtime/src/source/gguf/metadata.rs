//! The typed values that a GGUF file keeps under keys.
//!
//! A value is kept as the place of its bytes and decoded when it is asked for, so opening a file
//! copies keys and nothing else.

use super::cursor::{Cursor, utf8};
use crate::source::SourceError;
use crate::source::named::Named;
use std::fmt;
use std::ops::Range;

/// Arrays in arrays go this deep. The recursion that skips them would otherwise be as deep as a
/// file likes.
const MAX_ARRAY_DEPTH: usize = 8;

/// The type of a value or of an array's elements, numbered as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Type {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Type {
    /// Every type with its name and bytes, at the index that is its number.
    const ALL: [(Type, &'static str, Option<u64>); 13] = [
        (Type::U8, "u8", Some(1)),
        (Type::I8, "i8", Some(1)),
        (Type::U16, "u16", Some(2)),
        (Type::I16, "i16", Some(2)),
        (Type::U32, "u32", Some(4)),
        (Type::I32, "i32", Some(4)),
        (Type::F32, "f32", Some(4)),
        (Type::Bool, "bool", Some(1)),
        (Type::String, "string", None),
        (Type::Array, "array", None),
        (Type::U64, "u64", Some(8)),
        (Type::I64, "i64", Some(8)),
        (Type::F64, "f64", Some(8)),
    ];

    fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Type, SourceError> {
        let id = cursor.u32(format_args!("the type of metadata key `{key}`"))?;
        match Type::ALL.get(id as usize) {
            Some(&(found, _, _)) => Ok(found),
            None => {
                let what = format!("the type of metadata key `{key}`");
                Err(SourceError::invalid(what, "a number from 0 to 12", id))
            }
        }
    }

    fn name(self) -> &'static str {
        Type::ALL[self as usize].1
    }

    /// Bytes of a value, if all values of the type have as many.
    fn bytes(self) -> Option<u64> {
        Type::ALL[self as usize].2
    }
}

/// The type of a value, with that of its elements if it is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    /// One value.
    One(Type),
    /// An array of values.
    ArrayOf(Type),
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::One(one) => f.write_str(one.name()),
            ValueType::ArrayOf(element) => write!(f, "array of {}", element.name()),
        }
    }
}

/// A value: its type and the place of its bytes, without type and length fields.
#[derive(Clone, Debug)]
struct Value {
    value_type: ValueType,
    bytes: Range<usize>,
}

/// All values of a file.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    values: Named<Value>,
}

impl Metadata {
    /// Reads `count` pairs of key and value.
    pub fn read(cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, SourceError> {
        let mut values = Named::default();
        for index in 0..count {
            let key = cursor.string(format_args!("metadata key {index} of {count}"))?;
            if key.is_empty() {
                let what = format!("metadata key {index} of {count}");
                return Err(SourceError::invalid(what, "at least one byte", "an empty key"));
            }
            values.insert("metadata key", key, Value::read(cursor, key)?)?;
        }
        Ok(Metadata { values })
    }

    /// All keys.
    pub fn keys(&self) -> Vec<&str> {
        self.values.names()
    }

    /// The value of a type whose values have `N` bytes; `file` is what the metadata was read from.
    pub fn fixed<const N: usize>(
        &self,
        file: &[u8],
        key: &str,
        one: Type,
    ) -> Result<[u8; N], SourceError> {
        let mut value = [0; N];
        value.copy_from_slice(self.bytes(file, key, ValueType::One(one))?);
        Ok(value)
    }

    /// The elements of an array whose elements have `N` bytes.
    pub fn fixed_array<'a, const N: usize>(
        &self,
        file: &'a [u8],
        key: &str,
        element: Type,
    ) -> Result<&'a [[u8; N]], SourceError> {
        let bytes = self.bytes(file, key, ValueType::ArrayOf(element))?;
        Ok(bytes.as_chunks().0)
    }

    /// The value of type string.
    pub fn string<'a>(&self, file: &'a [u8], key: &str) -> Result<&'a str, SourceError> {
        let bytes = self.bytes(file, key, ValueType::One(Type::String))?;
        utf8(bytes, format_args!("metadata key `{key}`"))
    }

    /// The elements of an array of strings.
    pub fn strings<'a>(&self, file: &'a [u8], key: &str) -> Result<Vec<&'a str>, SourceError> {
        let bytes = self.bytes(file, key, ValueType::ArrayOf(Type::String))?;
        let mut cursor = Cursor::new(bytes);
        let mut strings = Vec::new();
        while cursor.offset() < bytes.len() {
            let index = strings.len();
            strings.push(cursor.string(format_args!("string {index} of metadata key `{key}`"))?);
        }
        Ok(strings)
    }

    fn bytes<'a>(
        &self,
        file: &'a [u8],
        key: &str,
        expected: ValueType,
    ) -> Result<&'a [u8], SourceError> {
        match self.values.get(key) {
            None => Err(SourceError::MissingKey { key: key.to_owned() }),
            Some(value) if value.value_type == expected => Ok(&file[value.bytes.clone()]),
            Some(value) => Err(SourceError::KeyType {
                key: key.to_owned(),
                expected: expected.to_string(),
                found: value.value_type.to_string(),
            }),
        }
    }
}

impl Value {
    fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, SourceError> {
        let found = Type::read(cursor, key)?;
        let what = format_args!("metadata key `{key}`");
        if found == Type::Array {
            let element = Type::read(cursor, key)?;
            let count = cursor.u64(format_args!("the length of metadata key `{key}`"))?;
            let start = cursor.offset();
            skip_elements(cursor, key, element, count, 1)?;
            let bytes = start..cursor.offset();
            return Ok(Value { value_type: ValueType::ArrayOf(element), bytes });
        }
        let bytes = match found.bytes() {
            Some(bytes) => cursor.take(bytes, what)?,
            None => cursor.string_bytes(what)?,
        };
        let bytes = cursor.offset() - bytes.len()..cursor.offset();
        Ok(Value { value_type: ValueType::One(found), bytes })
    }
}

/// Moves past the elements of an array that is inside `depth - 1` others.
fn skip_elements(
    cursor: &mut Cursor<'_>,
    key: &str,
    element: Type,
    count: u64,
    depth: usize,
) -> Result<(), SourceError> {
    let what = format_args!("metadata key `{key}`");
    if let Some(bytes) = element.bytes() {
        cursor.take(count.saturating_mul(bytes), what)?;
        return Ok(());
    }
    for _ in 0..count {
        if element == Type::String {
            cursor.string_bytes(what)?;
        } else if depth == MAX_ARRAY_DEPTH {
            let expected = format!("arrays nested at most {MAX_ARRAY_DEPTH} deep");
            return Err(SourceError::invalid(what.to_string(), expected, "deeper ones"));
        } else {
            let inner = Type::read(cursor, key)?;
            let inner_count = cursor.u64(format_args!("the length of an array in {what}"))?;
            skip_elements(cursor, key, inner, inner_count, depth + 1)?;
        }
    }
    Ok(())
}
