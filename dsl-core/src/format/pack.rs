//! The packed layout: making it from a file's blocks or from numbers, and reading it back.

use super::{CodeMap, CodeOrder, WeightFormat};
use crate::dtype::DType;
use std::fmt;

/// An `[n, k]` weight in the packed layout (see the [module](super)).
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// Output rows.
    pub n: usize,
    /// Elements of a row.
    pub k: usize,
    /// `n` rows of [`WeightFormat::code_row_bytes`] bytes.
    pub codes: Vec<u8>,
    /// `[n, k / group]` scales in the format's scale type, little endian.
    pub scales: Vec<u8>,
    /// `[n, k / group]` offsets in the format's offset type, little endian.
    pub offsets: Vec<u8>,
}

/// Why bytes or numbers cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The source has another size than the shape asks for.
    Length {
        /// What was counted.
        what: &'static str,
        /// What the shape and format ask for.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// A row does not divide into whole groups.
    Group {
        /// Elements of a row.
        k: usize,
        /// Elements of a group.
        group: usize,
    },
    /// Outputs that do not fill words of eight.
    Columns {
        /// Output rows.
        n: usize,
    },
    /// Another project's weight of a kind that the format is not for.
    Family {
        /// The format's name.
        format: String,
        /// Which formats are.
        expected: &'static str,
    },
    /// Elements that are not grouped in their order.
    ActOrder {
        /// The first element of a row that is in another group.
        k: usize,
        /// Its group.
        group: i32,
        /// The group of its place.
        expected: usize,
    },
    /// A code that is not 0 to 15.
    Code {
        /// Its place.
        at: usize,
        /// The code.
        found: i32,
    },
    /// GGUF files do not store the format.
    NotInGguf {
        /// The format's name.
        format: String,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackError::Length { what, expected, found } => {
                write!(f, "expected {expected} {what}, found {found}")
            }
            PackError::Group { k, group } => {
                write!(f, "a row of {k} elements does not divide into groups of {group}")
            }
            PackError::Columns { n } => {
                write!(f, "expected a multiple of 8 outputs, found {n}")
            }
            PackError::Family { format, expected } => {
                write!(f, "expected {expected}, found `{format}`")
            }
            PackError::ActOrder { k, group, expected } => write!(
                f,
                "element {k} of a row is in group {group}, expected group {expected}: act-order is \
                 not supported"
            ),
            PackError::Code { at, found } => {
                write!(f, "expected codes of 0 to 15, found {found} at {at}")
            }
            PackError::NotInGguf { format } => write!(f, "GGUF files do not store `{format}`"),
        }
    }
}

impl std::error::Error for PackError {}

impl WeightFormat {
    /// Packs an `[n, k]` weight from the blocks of a GGUF file, row by row.
    pub fn pack_gguf(&self, bytes: &[u8], n: usize, k: usize) -> Result<Packed, PackError> {
        let block =
            self.gguf.ok_or_else(|| PackError::NotInGguf { format: self.name.to_string() })?;
        let size = self.group_size();
        self.expect_groups(k)?;
        let n_blocks = n.saturating_mul(k / size);
        expect_len("bytes", n_blocks.saturating_mul(block.bytes), bytes.len())?;
        let mut packed = self.zeroed(n, k);
        for (index, source) in bytes.chunks_exact(block.bytes).enumerate() {
            let (row, first) = (index / (k / size), index % (k / size) * size);
            let codes = &source[block.codes_at..];
            for i in 0..size {
                let code = match block.order {
                    CodeOrder::Sequential => get_code(codes, i, self.bits),
                    CodeOrder::NibbleHalves => {
                        u32::from(codes[i % (size / 2)] >> (i / (size / 2) * 4)) & 0xF
                    }
                };
                self.put_code(&mut packed, row, first + i, code);
            }
            if let (Some(group), Some(at)) = (self.group, block.scale_at) {
                packed.scales.extend_from_slice(&source[at..at + group.scale.bytes()]);
                if let (Some(dtype), Some(at)) = (group.offset, block.offset_at) {
                    packed.offsets.extend_from_slice(&source[at..at + dtype.bytes()]);
                }
            }
        }
        Ok(packed)
    }

    /// Packs an `[n, k]` weight from its planes: one code an element (row-major), and one scale
    /// and offset a group.
    pub fn pack_planes(
        &self,
        codes: &[u32],
        scales: &[f32],
        offsets: &[f32],
        n: usize,
        k: usize,
    ) -> Result<Packed, PackError> {
        self.expect_groups(k)?;
        let n_groups = n.saturating_mul(self.n_groups(k));
        let n_offsets = if self.group.is_some_and(|g| g.offset.is_some()) { n_groups } else { 0 };
        expect_len("codes", n.saturating_mul(k), codes.len())?;
        expect_len("scales", n_groups, scales.len())?;
        expect_len("offsets", n_offsets, offsets.len())?;
        let mut packed = self.zeroed(n, k);
        for (index, &code) in codes.iter().enumerate() {
            self.put_code(&mut packed, index / k, index % k, code);
        }
        if let Some(group) = self.group {
            scales.iter().for_each(|&s| put_float(&mut packed.scales, group.scale, s));
            if let Some(dtype) = group.offset {
                offsets.iter().for_each(|&o| put_float(&mut packed.offsets, dtype, o));
            }
        }
        Ok(packed)
    }

    /// Quantises `[n, k]` numbers: each group's scale (and offset) spans its range, and each
    /// code is the nearest one. Dense formats round to nearest even.
    pub fn quantize(&self, values: &[f32], n: usize, k: usize) -> Result<Packed, PackError> {
        expect_len("values", n.saturating_mul(k), values.len())?;
        let size = self.group_size();
        let map: Vec<f64> = match self.code {
            CodeMap::Float(_) => Vec::new(),
            _ => (0..1u32 << self.bits).map(|code| self.map_code(code)).collect(),
        };
        let (low, high) =
            map.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
        let (mut codes, mut scales, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        self.expect_groups(k)?;
        for group_values in values.chunks(size) {
            let Some(group) = self.group else {
                codes.extend(group_values.iter().map(|&v| self.float_code(v)));
                continue;
            };
            let min = group_values.iter().fold(f64::INFINITY, |m, &v| m.min(f64::from(v)));
            let max = group_values.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(f64::from(v)));
            let (scale, offset) = match group.offset {
                Some(dtype) => {
                    let scale = group.scale.round((max - min) / (high - low));
                    (scale, dtype.round(min - low * scale))
                }
                None => {
                    let amax = min.abs().max(max.abs());
                    let reach = if low < 0.0 { high.min(-low) } else { high };
                    (group.scale.round(amax / reach), 0.0)
                }
            };
            scales.push(scale as f32);
            if group.offset.is_some() {
                offsets.push(offset as f32);
            }
            for &value in group_values {
                let target = if scale == 0.0 { 0.0 } else { (f64::from(value) - offset) / scale };
                let nearest = (0..map.len())
                    .min_by(|&a, &b| (map[a] - target).abs().total_cmp(&(map[b] - target).abs()));
                codes.push(nearest.unwrap_or(0) as u32);
            }
        }
        self.pack_planes(&codes, &scales, &offsets, n, k)
    }

    /// The exact value of element `(row, col)`.
    pub fn decode(&self, packed: &Packed, row: usize, col: usize) -> f64 {
        let row_bytes = self.code_row_bytes(packed.k);
        let code = get_code(&packed.codes[row * row_bytes..], col, self.bits);
        let value = self.map_code(code);
        let Some(group) = self.group else { return value };
        let index = row * self.n_groups(packed.k) + col / group.size;
        let offset = group.offset.map_or(0.0, |dtype| get_float(&packed.offsets, dtype, index));
        value * get_float(&packed.scales, group.scale, index) + offset
    }

    /// The number that a code stands for, before scale and offset.
    pub fn map_code(&self, code: u32) -> f64 {
        match &self.code {
            CodeMap::Float(DType::F32) => f64::from(f32::from_bits(code)),
            CodeMap::Float(DType::F16) => half::f16::from_bits(code as u16).to_f64(),
            CodeMap::Float(DType::BF16) => half::bf16::from_bits(code as u16).to_f64(),
            CodeMap::Float(DType::I32) => f64::from(code as i32),
            CodeMap::Unsigned { bias } => f64::from(code) - f64::from(*bias),
            CodeMap::Signed => {
                let shift = 32 - u32::from(self.bits);
                f64::from((code << shift) as i32 >> shift)
            }
            CodeMap::Codebook(values) => f64::from(values[code as usize]),
        }
    }

    fn float_code(&self, value: f32) -> u32 {
        match self.code {
            CodeMap::Float(DType::F16) => u32::from(half::f16::from_f32(value).to_bits()),
            CodeMap::Float(DType::BF16) => u32::from(half::bf16::from_f32(value).to_bits()),
            _ => value.to_bits(),
        }
    }

    fn expect_groups(&self, k: usize) -> Result<(), PackError> {
        let group = self.group_size();
        if k.is_multiple_of(group) { Ok(()) } else { Err(PackError::Group { k, group }) }
    }

    /// A weight of zero codes. Its size has been compared with a source's, so it fits in memory.
    fn zeroed(&self, n: usize, k: usize) -> Packed {
        let codes = vec![0; n * self.code_row_bytes(k)];
        Packed { n, k, codes, scales: Vec::new(), offsets: Vec::new() }
    }

    fn put_code(&self, packed: &mut Packed, row: usize, col: usize, code: u32) {
        let row_codes = &mut packed.codes[row * self.code_row_bytes(packed.k)..];
        match self.bits {
            4 => row_codes[col / 2] |= (code as u8 & 0xF) << (col % 2 * 4),
            8 => row_codes[col] = code as u8,
            16 => row_codes[col * 2..][..2].copy_from_slice(&(code as u16).to_le_bytes()),
            _ => row_codes[col * 4..][..4].copy_from_slice(&code.to_le_bytes()),
        }
    }
}

fn get_code(bytes: &[u8], index: usize, bits: u8) -> u32 {
    match bits {
        4 => u32::from(bytes[index / 2] >> (index % 2 * 4)) & 0xF,
        8 => u32::from(bytes[index]),
        16 => u32::from(u16::from_le_bytes([bytes[index * 2], bytes[index * 2 + 1]])),
        _ => u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[index * 4 + i])),
    }
}

fn put_float(plane: &mut Vec<u8>, dtype: DType, value: f32) {
    match dtype {
        DType::F32 => plane.extend_from_slice(&value.to_le_bytes()),
        DType::F16 => plane.extend_from_slice(&half::f16::from_f32(value).to_le_bytes()),
        DType::BF16 => plane.extend_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
        DType::I32 => plane.extend_from_slice(&(value as i32).to_le_bytes()),
    }
}

fn get_float(plane: &[u8], dtype: DType, index: usize) -> f64 {
    let at = &plane[index * dtype.bytes()..];
    match dtype {
        DType::F32 => f64::from(f32::from_le_bytes([at[0], at[1], at[2], at[3]])),
        DType::F16 => half::f16::from_le_bytes([at[0], at[1]]).to_f64(),
        DType::BF16 => half::bf16::from_le_bytes([at[0], at[1]]).to_f64(),
        DType::I32 => f64::from(i32::from_le_bytes([at[0], at[1], at[2], at[3]])),
    }
}

fn expect_len(what: &'static str, expected: usize, found: usize) -> Result<(), PackError> {
    if expected == found { Ok(()) } else { Err(PackError::Length { what, expected, found }) }
}
