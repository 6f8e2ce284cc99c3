//! GPTQ's layout: eight codes of consecutive k in a word, eight zero points of consecutive n.

use super::{expect_family, expect_len, expect_whole, nibble, pack_zeros, transposed};
use crate::dtype::DType;
use crate::format::{PackError, Packed, WeightFormat};
use half::f16;

/// How zero points are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GptqVersion {
    /// Less one: what AutoGPTQ writes.
    V1,
    /// As they are.
    V2,
}

/// An int4 weight `[n, k]` as GPTQ checkpoints have it.
#[derive(Clone, Copy, Debug)]
pub struct Gptq<'a> {
    /// `[k / 8, n]`: nibble i of row r is the code of element `8 r + i`.
    pub qweight: &'a [i32],
    /// `[k / group, n / 8]`: nibble j of column c is the zero point of output `8 c + j`.
    pub qzeros: &'a [i32],
    /// `[k / group, n]`.
    pub scales: &'a [f16],
    /// `[k]`: the group of each element, if the checkpoint says it.
    pub g_idx: Option<&'a [i32]>,
    /// How zero points are stored.
    pub version: GptqVersion,
}

impl Gptq<'_> {
    /// Packs the weight in an `Int4Zero` format.
    ///
    /// # Errors
    /// If a tensor has another size than shape and format ask for, or elements are not grouped in
    /// their order (act-order).
    pub fn pack(&self, format: &WeightFormat, n: usize, k: usize) -> Result<Packed, PackError> {
        let size = expect_family(format, 0, DType::F16, Some(DType::F32), "an `Int4Zero` format")?;
        expect_whole(n, k, size)?;
        let n_groups = k / size;
        expect_len("words of codes", (k / 8).saturating_mul(n), self.qweight.len())?;
        expect_len("words of zero points", n_groups.saturating_mul(n / 8), self.qzeros.len())?;
        expect_len("scales", n_groups.saturating_mul(n), self.scales.len())?;
        if let Some(g_idx) = self.g_idx {
            expect_len("group indices", k, g_idx.len())?;
            let moved = (0..k).find(|&at| usize::try_from(g_idx[at]) != Ok(at / size));
            if let Some(at) = moved {
                return Err(PackError::ActOrder { k: at, group: g_idx[at], expected: at / size });
            }
        }
        let code = |row: usize, at: usize| nibble(self.qweight[at / 8 * n + row], at % 8);
        let codes: Vec<u32> = (0..n).flat_map(|row| (0..k).map(move |at| code(row, at))).collect();
        let less = match self.version {
            GptqVersion::V1 => 1,
            GptqVersion::V2 => 0,
        };
        let zero = |row: usize, group: usize| {
            nibble(self.qzeros[group * (n / 8) + row / 8], row % 8) + less
        };
        let zeros: Vec<u32> =
            (0..n).flat_map(|row| (0..n_groups).map(move |group| zero(row, group))).collect();
        pack_zeros(format, &codes, &zeros, &transposed(self.scales, n_groups, n), n, k)
    }
}
