//! A packed weight as the loops read it, and what can be wrong with one.

use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, Packed, WeightFormat};
use half::{bf16, f16};
use std::fmt;

/// The three planes of an `[n, k]` weight in the packed layout of
/// [`fuseline_core::format`]. Their sizes have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    pub(super) format: &'a WeightFormat,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) codes: &'a [u8],
    pub(super) scales: &'a [u8],
    pub(super) offsets: &'a [u8],
}

/// Why a product cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DotError {
    /// The weight format cannot be decoded to f32; the text says why.
    Format(String),
    /// A row does not divide into whole groups.
    Group {
        /// Elements of a row.
        k: usize,
        /// Elements of a group.
        group: usize,
    },
    /// A slice has another length than the shape asks for.
    Length {
        /// What was counted.
        what: &'static str,
        /// What the shape and format ask for.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// The activations were not prepared for this weight's format.
    Unprepared {
        /// The format's name.
        format: String,
    },
    /// There is no such row.
    Row {
        /// The row asked for.
        row: usize,
        /// Rows of the weight.
        n: usize,
    },
}

impl fmt::Display for DotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DotError::Format(reason) => write!(f, "the weight format cannot be decoded: {reason}"),
            DotError::Group { k, group } => {
                write!(f, "a row of {k} elements does not divide into groups of {group}")
            }
            DotError::Length { what, expected, found } => {
                write!(f, "expected {expected} {what}, found {found}")
            }
            DotError::Unprepared { format } => {
                write!(f, "the activations were not prepared for weights in `{format}`")
            }
            DotError::Row { row, n } => write!(f, "expected a row below {n}, found row {row}"),
        }
    }
}

impl std::error::Error for DotError {}

impl<'a> Planes<'a> {
    /// Checks the format and the planes' sizes. A plane may be longer than the weight, so that it
    /// can be the rest of a larger buffer.
    pub fn new(
        format: &'a WeightFormat,
        n: usize,
        k: usize,
        codes: &'a [u8],
        scales: &'a [u8],
        offsets: &'a [u8],
    ) -> Result<Planes<'a>, DotError> {
        format.check().map_err(DotError::Format)?;
        if let CodeMap::Float(dtype @ DType::I32) = format.code {
            return Err(DotError::Format(format!("a code is f32, f16 or bf16, found {dtype}")));
        }
        if !k.is_multiple_of(format.group_size()) {
            return Err(DotError::Group { k, group: format.group_size() });
        }
        let n_groups = format.n_groups(k);
        let scale_bytes = format.group.map_or(0, |group| group.scale.bytes());
        let offset_bytes = format.group.and_then(|g| g.offset).map_or(0, DType::bytes);
        // The row size itself overflows only for rows that no slice can hold.
        if k > usize::MAX / 64 {
            return Err(DotError::Length { what: "elements of a row", expected: 0, found: k });
        }
        Ok(Planes {
            format,
            n,
            k,
            codes: prefix("bytes of codes", codes, n, format.code_row_bytes(k))?,
            scales: prefix("bytes of scales", scales, n, n_groups * scale_bytes)?,
            offsets: prefix("bytes of offsets", offsets, n, n_groups * offset_bytes)?,
        })
    }

    /// The planes of a weight in host memory.
    pub fn of(format: &'a WeightFormat, packed: &'a Packed) -> Result<Planes<'a>, DotError> {
        let Packed { n, k, codes, scales, offsets } = packed;
        Planes::new(format, *n, *k, codes, scales, offsets)
    }

    /// Output rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// How codes become numbers.
    pub fn format(&self) -> &'a WeightFormat {
        self.format
    }
}

/// The first `n · row_bytes` bytes of a plane.
fn prefix<'a>(
    what: &'static str,
    plane: &'a [u8],
    n: usize,
    row_bytes: usize,
) -> Result<&'a [u8], DotError> {
    let expected = n.saturating_mul(row_bytes);
    plane.get(..expected).ok_or(DotError::Length { what, expected, found: plane.len() })
}

/// Decodes row `row` of a weight into `out`, which has k elements: exact values, rounded once to
/// f32. (A token's embedding is a row of the embedding table.)
pub fn embed_row(weight: &Planes<'_>, row: usize, out: &mut [f32]) -> Result<(), DotError> {
    let Planes { format, n, k, codes, scales, offsets } = *weight;
    if row >= n {
        return Err(DotError::Row { row, n });
    }
    if out.len() != k {
        return Err(DotError::Length { what: "outputs", expected: k, found: out.len() });
    }
    let row_bytes = format.code_row_bytes(k);
    let codes = &codes[row * row_bytes..][..row_bytes];
    let first_group = row * format.n_groups(k);
    let size = if format.group.is_some() { format.group_size() } else { k.max(1) };
    for (index, values) in out.chunks_mut(size).enumerate() {
        let (scale, offset) = match format.group {
            None => (1.0, 0.0),
            Some(group) => {
                let offset = |dtype| float_at(offsets, dtype, first_group + index);
                (
                    float_at(scales, group.scale, first_group + index),
                    group.offset.map_or(0.0, offset),
                )
            }
        };
        for (i, value) in values.iter_mut().enumerate() {
            let code = format.map_code(code_at(codes, index * size + i, format.bits));
            // In f64 the product is exact for all pairs of f32 numbers.
            *value = (code * scale + offset) as f32;
        }
    }
    Ok(())
}

fn code_at(row: &[u8], index: usize, bits: u8) -> u32 {
    match bits {
        4 => u32::from(row[index / 2] >> (index % 2 * 4)) & 0xF,
        8 => u32::from(row[index]),
        16 => u32::from(u16::from_le_bytes([row[2 * index], row[2 * index + 1]])),
        _ => u32::from_le_bytes([0, 1, 2, 3].map(|i| row[4 * index + i])),
    }
}

fn float_at(plane: &[u8], dtype: DType, index: usize) -> f64 {
    let at = &plane[index * dtype.bytes()..];
    match dtype {
        DType::F32 => f64::from(f32::from_le_bytes([at[0], at[1], at[2], at[3]])),
        DType::F16 => f16::from_le_bytes([at[0], at[1]]).to_f64(),
        DType::BF16 => bf16::from_le_bytes([at[0], at[1]]).to_f64(),
        DType::I32 => f64::from(i32::from_le_bytes([at[0], at[1], at[2], at[3]])),
    }
}
