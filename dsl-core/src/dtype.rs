//! Arithmetic and storage types of elements.

use std::fmt;

/// The type of one stored element. Arithmetic inside a block is `f32` whatever the operands'
/// types are; a narrower type says how a value was last rounded and how it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// A 32-bit signed integer: token ids and positions.
    I32,
}

impl DType {
    /// Every element type, in the order that messages list them.
    pub const ALL: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::I32];

    /// The name that programs and the text form use.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes that one element takes in memory.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }

    /// `value` rounded to this type (nearest, ties to even) and widened again. Integers truncate.
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F32 => f64::from(value as f32),
            // Values are f32 before they are rounded to 16 bits.
            DType::F16 => half::f16::from_f32(value as f32).to_f64(),
            DType::BF16 => half::bf16::from_f32(value as f32).to_f64(),
            DType::I32 => f64::from(value as i32),
        }
    }

    /// `values` rounded to this type, as they lie in memory: little endian, one after the other.
    pub fn encode(self, values: &[f64]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * self.bytes());
        for &value in values {
            match self {
                DType::F32 => bytes.extend((value as f32).to_le_bytes()),
                DType::F16 => bytes.extend(half::f16::from_f32(value as f32).to_le_bytes()),
                DType::BF16 => bytes.extend(half::bf16::from_f32(value as f32).to_le_bytes()),
                DType::I32 => bytes.extend((value as i32).to_le_bytes()),
            }
        }
        bytes
    }

    /// The elements that lie in memory as `bytes`; a rest of less than an element is left out.
    pub fn decode(self, bytes: &[u8]) -> Vec<f64> {
        match self {
            DType::F32 => {
                let (words, _) = bytes.as_chunks();
                words.iter().map(|&word| f64::from(f32::from_le_bytes(word))).collect()
            }
            DType::F16 => {
                let (words, _) = bytes.as_chunks();
                words.iter().map(|&word| half::f16::from_le_bytes(word).to_f64()).collect()
            }
            DType::BF16 => {
                let (words, _) = bytes.as_chunks();
                words.iter().map(|&word| half::bf16::from_le_bytes(word).to_f64()).collect()
            }
            DType::I32 => {
                let (words, _) = bytes.as_chunks();
                words.iter().map(|&word| f64::from(i32::from_le_bytes(word))).collect()
            }
        }
    }

    /// Whether the type holds numbers with a fraction.
    pub fn is_float(self) -> bool {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => true,
            DType::I32 => false,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
