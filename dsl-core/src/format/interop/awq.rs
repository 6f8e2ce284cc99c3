//! AWQ's layout: eight outputs in a word, interleaved.

use super::{expect_family, expect_len, expect_whole, nibble, pack_zeros, transposed};
use crate::dtype::DType;
use crate::format::{PackError, Packed, WeightFormat};
use half::f16;

/// Output of each nibble, within the eight of a word.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// An int4 weight `[n, k]` as AWQ checkpoints have it.
#[derive(Clone, Copy, Debug)]
pub struct Awq<'a> {
    /// `[k, n / 8]`: nibble i of column c is the code of output `8 c + [0, 2, 4, 6, 1, 3, 5, 7][i]`.
    pub qweight: &'a [i32],
    /// `[k / group, n / 8]`, in the same order.
    pub qzeros: &'a [i32],
    /// `[k / group, n]`.
    pub scales: &'a [f16],
}

impl Awq<'_> {
    /// Packs the weight in an `Int4Zero` format.
    ///
    /// # Errors
    /// If a tensor has another size than shape and format ask for.
    pub fn pack(&self, format: &WeightFormat, n: usize, k: usize) -> Result<Packed, PackError> {
        let size = expect_family(format, 0, DType::F16, Some(DType::F32), "an `Int4Zero` format")?;
        expect_whole(n, k, size)?;
        let (n_groups, n_words) = (k / size, n / 8);
        expect_len("words of codes", k.saturating_mul(n_words), self.qweight.len())?;
        expect_len("words of zero points", n_groups.saturating_mul(n_words), self.qzeros.len())?;
        expect_len("scales", n_groups.saturating_mul(n), self.scales.len())?;
        // Which nibble holds each of the eight outputs.
        let mut place = [0; 8];
        ORDER.iter().enumerate().for_each(|(nibble, &output)| place[output] = nibble);
        let get = |words: &[i32], at: usize, row: usize| {
            nibble(words[at * n_words + row / 8], place[row % 8])
        };
        let (mut codes, mut zeros) = (Vec::new(), Vec::new());
        for row in 0..n {
            codes.extend((0..k).map(|at| get(self.qweight, at, row)));
            zeros.extend((0..n_groups).map(|group| get(self.qzeros, group, row)));
        }
        pack_zeros(format, &codes, &zeros, &transposed(self.scales, n_groups, n), n, k)
    }
}
