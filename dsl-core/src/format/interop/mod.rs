//! Int4 weights as other projects store them, packed into the planes of the formats of
//! [`int4`](super::int4). Nothing is quantised or rounded.

mod awq;
mod gptq;
mod torchao;

pub use awq::Awq;
pub use gptq::{Gptq, GptqVersion};
pub use torchao::{TinyGemm, TorchAo};

use super::{CodeMap, PackError, Packed, WeightFormat};
use crate::dtype::DType;
use half::f16;

/// Integer codes and zero points: one code an element, one zero point and scale a group, each row
/// by row, in the planes of an `Int4Zero` format.
fn pack_zeros(
    format: &WeightFormat,
    codes: &[u32],
    zeros: &[u32],
    scales: &[f16],
    n: usize,
    k: usize,
) -> Result<Packed, PackError> {
    let scales: Vec<f32> = scales.iter().map(|scale| scale.to_f32()).collect();
    // Exact: see the formats' declaration.
    let offsets: Vec<f32> =
        zeros.iter().zip(&scales).map(|(&zero, scale)| -(zero as f32) * scale).collect();
    format.pack_planes(codes, &scales, &offsets, n, k)
}

/// Refuses formats of another family.
fn expect_family(
    format: &WeightFormat,
    bias: i32,
    scale: DType,
    offset: Option<DType>,
    expected: &'static str,
) -> Result<usize, PackError> {
    let group = format.group.filter(|group| group.scale == scale && group.offset == offset);
    match group {
        Some(group) if format.bits == 4 && format.code == CodeMap::Unsigned { bias } => {
            Ok(group.size)
        }
        _ => Err(PackError::Family { format: format.name.to_string(), expected }),
    }
}

fn expect_len(what: &'static str, expected: usize, found: usize) -> Result<(), PackError> {
    if expected == found { Ok(()) } else { Err(PackError::Length { what, expected, found }) }
}

/// Refuses rows that are no whole groups, and columns that do not fill words.
fn expect_whole(n: usize, k: usize, group: usize) -> Result<(), PackError> {
    if !k.is_multiple_of(group) {
        return Err(PackError::Group { k, group });
    }
    if !n.is_multiple_of(8) {
        return Err(PackError::Columns { n });
    }
    Ok(())
}

/// Nibble `i` of a word, 0 the lowest.
fn nibble(word: i32, i: usize) -> u32 {
    (word as u32 >> (4 * i)) & 0xF
}

/// A `[groups, n]` matrix as `[n, groups]`.
fn transposed<T: Copy>(matrix: &[T], n_groups: usize, n: usize) -> Vec<T> {
    (0..n).flat_map(|row| (0..n_groups).map(move |group| matrix[group * n + row])).collect()
}
