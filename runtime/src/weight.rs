//! Packed weights.

use crate::args::{ArgRef, Argument};
use crate::device::Device;
use crate::element::Format;
use crate::error::{Error, Result};
use crate::source::{Encoding, TensorSource};
use crate::tensor::checked_elements;
use fuseline_core::backend::BufferRef;
use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, PackError, Packed, WeightFormat};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// An `[N, K]` weight on a device, packed once for every use; a clone is the same memory.
pub struct Weight<F, const N: usize, const K: usize> {
    device: Device,
    planes: [BufferRef; 3],
    format: Arc<WeightFormat>,
    marker: PhantomData<fn() -> F>,
}

// Derived, these would ask of a program's formats to be `Clone` and `Debug` too.
impl<F, const N: usize, const K: usize> Clone for Weight<F, N, K> {
    fn clone(&self) -> Self {
        Weight {
            device: self.device.clone(),
            planes: self.planes.clone(),
            format: self.format.clone(),
            marker: PhantomData,
        }
    }
}

impl<F, const N: usize, const K: usize> fmt::Debug for Weight<F, N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight<{}>[{N}, {K}] on {}", self.format.name, self.device.name())
    }
}

impl<F: Format, const N: usize, const K: usize> Weight<F, N, K> {
    /// Where it lies.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Reads a weight by name: blocks of the format's own GGUF type, or dense numbers for a dense
    /// format that holds them exactly. Nothing is quantised.
    ///
    /// # Errors
    /// If the source has no such tensor, or another shape or encoding.
    pub fn fill(device: &Device, source: &dyn TensorSource, name: &str) -> Result<Self> {
        let format = Self::checked_format()?;
        let view = source.tensor(name)?;
        if view.shape != [N, K] {
            let name = name.to_string();
            return Err(Error::Shape { name, expected: vec![N, K], found: view.shape });
        }
        let own_blocks = match (&view.encoding, &format.gguf) {
            (Encoding::Gguf { type_id, .. }, Some(block)) => *type_id == block.type_id,
            (Encoding::Dense(found), _) => format.code == CodeMap::Float(*found),
            (Encoding::Gguf { .. }, None) => false,
        };
        let packed = if own_blocks {
            format.pack_gguf(view.bytes, N, K)
        } else if let (Encoding::Dense(found), CodeMap::Float(DType::F32)) =
            (&view.encoding, &format.code)
        {
            let Some(numbers) = widened(*found, view.bytes) else {
                return Err(wrong_encoding(name, &format, &view.encoding));
            };
            format.quantize(&numbers, N, K)
        } else {
            return Err(wrong_encoding(name, &format, &view.encoding));
        };
        Self::upload(device, format, pack_result(name, packed)?)
    }

    /// Quantises `[N, K]` numbers: each group's scale spans its range, each code is the nearest.
    ///
    /// # Errors
    /// If there are not `N · K` numbers, or one is not finite and the format has scales.
    pub fn quantize(device: &Device, values: &[f32]) -> Result<Self> {
        let format = Self::checked_format()?;
        if format.group.is_some() {
            if let CodeMap::Float(_) = format.code {
                let message = "numbers with scales are not quantised; give their planes";
                return Err(format_error(&format, message.to_string()));
            }
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                let (format, found) = (format.name.to_string(), values[index]);
                return Err(Error::NotFinite { format, index, found });
            }
        }
        let packed = format.quantize(values, N, K);
        Self::upload(device, format, pack_result("weight", packed)?)
    }

    /// A weight of these codes, row by row, and one scale and offset a group where the format
    /// has them.
    ///
    /// # Errors
    /// If a plane has another length than shape and format ask for, or a code too many bits.
    pub fn from_planes(
        device: &Device,
        codes: &[u32],
        scales: &[f32],
        offsets: &[f32],
    ) -> Result<Self> {
        let format = Self::checked_format()?;
        let too_wide = |&code: &u32| u64::from(code) >> format.bits != 0;
        if let Some(index) = codes.iter().position(too_wide) {
            let (name, bits, found) = (format.name.to_string(), format.bits, codes[index]);
            return Err(Error::Code { format: name, bits, index, found });
        }
        let packed = format.pack_planes(codes, scales, offsets, N, K);
        Self::upload(device, format, pack_result("weight", packed)?)
    }

    /// Every element, decoded, row by row.
    ///
    /// # Errors
    /// If the device fails.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let read = |buffer: &BufferRef| -> Result<Vec<u8>> {
            let mut bytes = vec![0; buffer.bytes()];
            self.device.backend().read(buffer, 0, &mut bytes)?;
            Ok(bytes)
        };
        let [codes, scales, offsets] = &self.planes;
        let planes = [read(codes)?, read(scales)?, read(offsets)?];
        let layout = self.device.backend().weight_layout();
        let expected = self.format.plane_bytes(N, K, layout);
        let found = planes.each_ref().map(Vec::len);
        let Some(packed) = Packed::from_arranged(&self.format, (N, K), planes, layout) else {
            let message = format!("planes of {expected:?} bytes were expected, found {found:?}");
            return Err(format_error(&self.format, message));
        };
        let element = |row, col| self.format.decode(&packed, row, col) as f32;
        Ok((0..N)
            .flat_map(|row| (0..K).map(move |col| (row, col)))
            .map(|(r, c)| element(r, c))
            .collect())
    }

    /// The format, once it is known that it can be packed and that sizes do not overflow.
    pub(crate) fn checked_format() -> Result<WeightFormat> {
        checked_elements("weight", &[N, K])?;
        let format = F::declaration();
        match format.check() {
            Ok(()) => Ok(format),
            Err(message) => Err(format_error(&format, message)),
        }
    }

    /// A weight that was packed, or could not be.
    pub(crate) fn upload_packed(
        device: &Device,
        format: WeightFormat,
        packed: std::result::Result<Packed, PackError>,
    ) -> Result<Self> {
        Self::upload(device, format, pack_result("weight", packed)?)
    }

    fn upload(device: &Device, format: WeightFormat, packed: Packed) -> Result<Self> {
        let [codes, scales, offsets] = packed.arranged(&format, device.backend().weight_layout());
        let planes = [device.upload(&codes)?, device.upload(&scales)?, device.upload(&offsets)?];
        let format = Arc::new(format);
        Ok(Weight { device: device.clone(), planes, format, marker: PhantomData })
    }
}

fn format_error(format: &WeightFormat, message: String) -> Error {
    Error::Format { format: format.name.to_string(), message }
}

fn pack_result(name: &str, packed: std::result::Result<Packed, PackError>) -> Result<Packed> {
    packed.map_err(|error| Error::Pack { name: name.to_string(), error })
}

fn wrong_encoding(name: &str, format: &WeightFormat, found: &Encoding) -> Error {
    Error::Encoding {
        name: name.to_string(),
        expected: format.name.to_string(),
        found: found.to_string(),
    }
}

fn widened(dtype: DType, bytes: &[u8]) -> Option<Vec<f32>> {
    let pairs = bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match dtype {
        DType::F16 => Some(pairs.map(|b| half::f16::from_le_bytes(b).to_f32()).collect()),
        DType::BF16 => Some(pairs.map(|b| half::bf16::from_le_bytes(b).to_f32()).collect()),
        DType::F32 | DType::I32 => None,
    }
}

impl<F: Format, const N: usize, const K: usize> Argument for Weight<F, N, K> {
    fn as_arg(&self) -> ArgRef<'_> {
        let [codes, scales, offsets] = &self.planes;
        ArgRef::Weight {
            device: &self.device,
            planes: [codes, scales, offsets],
            format: &self.format,
            shape: [N, K],
        }
    }
}
