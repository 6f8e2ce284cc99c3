//! torchao's layouts: two signed codes in a byte, and the one that its tinygemm kernel is given.

use super::{expect_family, expect_len, transposed};
use crate::dtype::DType;
use crate::format::{PackError, Packed, WeightFormat};
use half::bf16;

/// An int4 weight `[n, k]` as torchao's plain int4 tensors have it: `value = code · scale + zero`,
/// the code being signed.
#[derive(Clone, Copy, Debug)]
pub struct TorchAo<'a> {
    /// `[n, k / 2]`: the low nibble is the element of even k.
    pub qdata: &'a [u8],
    /// `[k / group, n]`.
    pub scale: &'a [bf16],
    /// `[k / group, n]`: none if the weight is symmetric.
    pub zero: Option<&'a [bf16]>,
}

impl TorchAo<'_> {
    /// Packs the weight in an `Int4G` format, or with zero points in an `Int4Float` format.
    ///
    /// # Errors
    /// If a tensor has another size than shape and format ask for.
    pub fn pack(&self, format: &WeightFormat, n: usize, k: usize) -> Result<Packed, PackError> {
        let size = match self.zero {
            None => expect_family(format, 8, DType::BF16, None, "an `Int4G` format")?,
            Some(_) => {
                let offset = Some(DType::BF16);
                expect_family(format, 8, DType::BF16, offset, "an `Int4Float` format")?
            }
        };
        if !k.is_multiple_of(size) {
            return Err(PackError::Group { k, group: size });
        }
        let n_groups = k / size;
        expect_len("bytes of codes", n.saturating_mul(k / 2), self.qdata.len())?;
        expect_len("scales", n_groups.saturating_mul(n), self.scale.len())?;
        if let Some(zero) = self.zero {
            expect_len("zero points", n_groups.saturating_mul(n), zero.len())?;
        }
        // From two's complement to the code that 8 is subtracted from.
        let codes: Vec<u32> = self
            .qdata
            .iter()
            .flat_map(|byte| [byte & 0xF, byte >> 4])
            .map(|nibble| u32::from(nibble ^ 8))
            .collect();
        let rows = |plane: &[bf16]| -> Vec<f32> {
            transposed(plane, n_groups, n).into_iter().map(bf16::to_f32).collect()
        };
        let offsets = self.zero.map_or(Vec::new(), rows);
        format.pack_planes(&codes, &rows(self.scale), &offsets, n, k)
    }
}

/// An int4 weight `[n, k]` as torchao gives it to tinygemm, before its tiles are put in the order
/// of a device: `value = (code − 8) · scale + zero`.
#[derive(Clone, Copy, Debug)]
pub struct TinyGemm<'a> {
    /// `[n, k]`, each 0 to 15.
    pub codes: &'a [i32],
    /// `[k / group, n, 2]`: scale and zero point.
    pub scales_and_zeros: &'a [bf16],
}

impl TinyGemm<'_> {
    /// Packs the weight in an `Int4Float` format.
    ///
    /// # Errors
    /// If a tensor has another size than shape and format ask for, or a code is not 0 to 15.
    pub fn pack(&self, format: &WeightFormat, n: usize, k: usize) -> Result<Packed, PackError> {
        let offset = Some(DType::BF16);
        let size = expect_family(format, 8, DType::BF16, offset, "an `Int4Float` format")?;
        if !k.is_multiple_of(size) {
            return Err(PackError::Group { k, group: size });
        }
        let n_groups = k / size;
        expect_len("codes", n.saturating_mul(k), self.codes.len())?;
        let n_numbers = n_groups.saturating_mul(n).saturating_mul(2);
        expect_len("scales and zero points", n_numbers, self.scales_and_zeros.len())?;
        if let Some(at) = self.codes.iter().position(|code| !(0..16).contains(code)) {
            return Err(PackError::Code { at, found: self.codes[at] });
        }
        let codes: Vec<u32> = self.codes.iter().map(|&code| code as u32).collect();
        let plane = |which: usize| -> Vec<f32> {
            let pairs = self.scales_and_zeros.chunks_exact(2).map(|pair| pair[which].to_f32());
            transposed(&pairs.collect::<Vec<f32>>(), n_groups, n)
        };
        format.pack_planes(&codes, &plane(0), &plane(1), n, k)
    }
}
