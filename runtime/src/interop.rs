//! Int4 weights of other projects' checkpoints.

use crate::device::Device;
use crate::element::Format;
use crate::error::Result;
use crate::weight::Weight;
use fuseline_core::format::interop::{Awq, Gptq, TinyGemm, TorchAo};
use fuseline_core::format::{PackError, Packed, WeightFormat};

impl<F: Format, const N: usize, const K: usize> Weight<F, N, K> {
    /// A weight of an `Int4Zero` format from GPTQ's tensors.
    ///
    /// # Errors
    /// [`Error::Pack`](crate::error::Error::Pack) if the tensors are of another shape or format, or
    /// in act-order.
    pub fn from_gptq(device: &Device, weight: &Gptq<'_>) -> Result<Self> {
        Self::from_stored(device, |format| weight.pack(format, N, K))
    }

    /// A weight of an `Int4Zero` format from AWQ's tensors.
    ///
    /// # Errors
    /// [`Error::Pack`](crate::error::Error::Pack) if the tensors are of another shape or format.
    pub fn from_awq(device: &Device, weight: &Awq<'_>) -> Result<Self> {
        Self::from_stored(device, |format| weight.pack(format, N, K))
    }

    /// A weight of an `Int4G` format, or with zero points of an `Int4Float` format, from torchao's
    /// tensors.
    ///
    /// # Errors
    /// [`Error::Pack`](crate::error::Error::Pack) if the tensors are of another shape or format.
    pub fn from_torchao(device: &Device, weight: &TorchAo<'_>) -> Result<Self> {
        Self::from_stored(device, |format| weight.pack(format, N, K))
    }

    /// A weight of an `Int4Float` format from the tensors that torchao gives to tinygemm.
    ///
    /// # Errors
    /// [`Error::Pack`](crate::error::Error::Pack) if the tensors are of another shape or format.
    pub fn from_tinygemm(device: &Device, weight: &TinyGemm<'_>) -> Result<Self> {
        Self::from_stored(device, |format| weight.pack(format, N, K))
    }

    fn from_stored(
        device: &Device,
        pack: impl FnOnce(&WeightFormat) -> std::result::Result<Packed, PackError>,
    ) -> Result<Self> {
        let format = Self::checked_format()?;
        let packed = pack(&format);
        Self::upload_packed(device, format, packed)
    }
}
