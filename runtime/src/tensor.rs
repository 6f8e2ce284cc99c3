//! Tensors.

use crate::args::{ArgRef, Argument, Output, OutputRef};
use crate::device::Device;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::source::{Encoding, SourceError, TensorSource};
use fuseline_core::backend::BufferRef;
use fuseline_core::dtype::DType;
use half::{bf16, f16};
use std::marker::PhantomData;

/// No dim: a tensor has as many dims as its type names.
pub const NO_DIM: usize = usize::MAX;

/// Elements on a device, in row-major order; a clone is the same memory.
///
/// The type says the shape. Where the first dim is a block's batch dim it is the most rows that a
/// call may have, and a tensor may have fewer.
#[derive(Clone, Debug)]
pub struct Tensor<
    T = f32,
    const A: usize = NO_DIM,
    const B: usize = NO_DIM,
    const C: usize = NO_DIM,
    const D: usize = NO_DIM,
> {
    device: Device,
    buffer: BufferRef,
    rows: usize,
    element: PhantomData<T>,
}

impl<T: Element, const A: usize, const B: usize, const C: usize, const D: usize>
    Tensor<T, A, B, C, D>
{
    /// The dims of the type, outermost first.
    pub fn full_shape() -> Vec<usize> {
        [A, B, C, D].into_iter().take_while(|&dim| dim != NO_DIM).collect()
    }

    /// The dims, with the rows that there are.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape = Self::full_shape();
        if let Some(first) = shape.first_mut() {
            *first = self.rows;
        }
        shape
    }

    /// Elements of one row, of a type that is known not to overflow.
    fn row_elements() -> usize {
        Self::full_shape().iter().skip(1).product()
    }

    fn check_size() -> Result<()> {
        checked_elements("tensor", &Self::full_shape()).map(|_| ())
    }

    /// The size of the first dim; 1 without dims.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A tensor of zeros with `rows` rows.
    ///
    /// # Errors
    /// If that are more rows than the type has room for, or the device has no memory left.
    pub fn zeros(device: &Device, rows: usize) -> Result<Self> {
        Self::check_size()?;
        let most = Self::full_shape().first().copied().unwrap_or(1);
        if rows > most {
            let name = "tensor".to_string();
            return Err(Error::Rows { name, expected: format!("at most {most}"), found: rows });
        }
        let bytes = rows * Self::row_elements() * T::DTYPE.bytes();
        let buffer = device.backend().alloc(bytes)?;
        Ok(Tensor { device: device.clone(), buffer, rows, element: PhantomData })
    }

    /// A tensor of these elements: whole rows, at most as many as the type has room for.
    ///
    /// # Errors
    /// If the elements are not whole rows, or too many.
    pub fn from_slice(device: &Device, elements: &[T]) -> Result<Self> {
        Self::check_size()?;
        let width = Self::row_elements();
        let rows = elements.len() / width.max(1);
        if rows * width != elements.len() {
            return Err(Error::Shape {
                name: "tensor".to_string(),
                expected: Self::full_shape(),
                found: vec![elements.len()],
            });
        }
        let tensor = Self::zeros(device, rows)?;
        device.backend().write(&tensor.buffer, 0, bytemuck::cast_slice(elements))?;
        Ok(tensor)
    }

    /// Puts other elements into its memory, where recorded calls find them: as many as before.
    ///
    /// # Errors
    /// If there are more or fewer, or the device fails.
    pub fn write(&mut self, elements: &[T]) -> Result<()> {
        let expected = self.rows * Self::row_elements();
        if elements.len() != expected {
            return Err(Error::Shape {
                name: "tensor".to_string(),
                expected: vec![expected],
                found: vec![elements.len()],
            });
        }
        Ok(self.device.backend().write(&self.buffer, 0, bytemuck::cast_slice(elements))?)
    }

    /// Memory of the device as a tensor of `rows` rows: for memory that another library made.
    ///
    /// # Errors
    /// If that are more rows than the type has room for, or than the memory has.
    pub fn from_buffer(device: &Device, buffer: BufferRef, rows: usize) -> Result<Self> {
        Self::check_size()?;
        let mut expected = Self::full_shape();
        let most = expected.first().copied().unwrap_or(1);
        if rows > most {
            let name = "tensor".to_string();
            return Err(Error::Rows { name, expected: format!("at most {most}"), found: rows });
        }
        if buffer.bytes() < rows * Self::row_elements() * T::DTYPE.bytes() {
            if let Some(first) = expected.first_mut() {
                *first = rows;
            }
            return Err(Error::Shape {
                name: "tensor".to_string(),
                expected,
                found: vec![buffer.bytes() / T::DTYPE.bytes()],
            });
        }
        Ok(Tensor { device: device.clone(), buffer, rows, element: PhantomData })
    }

    /// Its memory, for other libraries: `device.backend()` knows what it is.
    pub fn buffer(&self) -> &BufferRef {
        &self.buffer
    }

    /// The elements, after all work that was started before.
    ///
    /// # Errors
    /// If the device fails.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.rows * Self::row_elements()];
        let bytes = bytemuck::cast_slice_mut(&mut elements);
        self.device.backend().read(&self.buffer, 0, bytes)?;
        Ok(elements)
    }

    /// Reads a tensor by name. Numbers are widened, never rounded.
    ///
    /// # Errors
    /// If the source has no such tensor, or another shape or an encoding that would be rounded.
    pub fn fill(device: &Device, source: &dyn TensorSource, name: &str) -> Result<Self> {
        let view = source.tensor(name)?;
        let expected = Self::full_shape();
        if view.shape != expected {
            return Err(Error::Shape { name: name.to_string(), expected, found: view.shape });
        }
        let converted: Option<Vec<u8>> = match (&view.encoding, T::DTYPE) {
            (Encoding::Dense(found), wanted) if *found == wanted => Some(view.bytes.to_vec()),
            (Encoding::Dense(DType::F16), DType::F32) => {
                Some(widen(view.bytes, |b| f16::from_le_bytes(b).to_f32()))
            }
            (Encoding::Dense(DType::BF16), DType::F32) => {
                Some(widen(view.bytes, |b| bf16::from_le_bytes(b).to_f32()))
            }
            _ => None,
        };
        let Some(bytes) = converted else {
            return Err(Error::Encoding {
                name: name.to_string(),
                expected: T::DTYPE.to_string(),
                found: view.encoding.to_string(),
            });
        };
        let rows = expected.first().copied().unwrap_or(1);
        let tensor = Self::zeros(device, rows)?;
        // A source of the program's own may hand out other bytes than its shape asks for.
        let expected = rows * Self::row_elements() * T::DTYPE.bytes();
        if bytes.len() != expected {
            return Err(Error::Source(SourceError::TensorSize {
                tensor: name.to_string(),
                shape: Self::full_shape(),
                unit: "bytes",
                expected: expected as u64,
                found: bytes.len() as u64,
            }));
        }
        device.backend().write(&tensor.buffer, 0, &bytes)?;
        Ok(tensor)
    }
}

/// The most elements of anything, so that sizes in bytes do not overflow.
const MAX_ELEMENTS: usize = isize::MAX as usize / 16;

/// The product of a type's dims.
pub(crate) fn checked_elements(what: &'static str, shape: &[usize]) -> Result<usize> {
    shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
        .filter(|&elements| elements <= MAX_ELEMENTS)
        .ok_or_else(|| Error::TooLarge { what, shape: shape.to_vec() })
}

fn widen(bytes: &[u8], number: impl Fn([u8; 2]) -> f32) -> Vec<u8> {
    bytes.chunks_exact(2).flat_map(|pair| number([pair[0], pair[1]]).to_le_bytes()).collect()
}

impl<T: Element, const A: usize, const B: usize, const C: usize, const D: usize> Argument
    for Tensor<T, A, B, C, D>
{
    fn as_arg(&self) -> ArgRef<'_> {
        let shape = self.shape();
        ArgRef::Tensor { device: &self.device, buffer: &self.buffer, dtype: T::DTYPE, shape }
    }
}

impl<T: Element, const A: usize, const B: usize, const C: usize, const D: usize> Output
    for Tensor<T, A, B, C, D>
{
    fn with_rows(device: &Device, rows: usize) -> Result<Self> {
        Self::zeros(device, rows)
    }

    fn as_output(&mut self) -> OutputRef<'_> {
        let shape = Self::full_shape();
        OutputRef {
            device: &self.device,
            buffer: &self.buffer,
            rows: &mut self.rows,
            dtype: T::DTYPE,
            shape,
        }
    }
}

/// Token ids, at most `B` of them; a clone is the same memory.
#[derive(Clone, Debug)]
pub struct Tokens<const B: usize>(Tensor<i32, B>);

impl<const B: usize> Tokens<B> {
    /// These ids.
    ///
    /// # Errors
    /// If there are more than the type has room for, or one does not fit into 32 bits.
    pub fn new(device: &Device, ids: &[u32]) -> Result<Self> {
        Tensor::from_slice(device, &Self::integers(ids)?).map(Tokens)
    }

    /// Puts other ids into its memory, where recorded calls find them: as many as before.
    ///
    /// # Errors
    /// If there are more or fewer, or one does not fit into 32 bits.
    pub fn write(&mut self, ids: &[u32]) -> Result<()> {
        self.0.write(&Self::integers(ids)?)
    }

    fn integers(ids: &[u32]) -> Result<Vec<i32>> {
        let fit = |&id: &u32| {
            i32::try_from(id).map_err(|_| Error::Index { what: "token id", value: id as usize })
        };
        ids.iter().map(fit).collect()
    }

    /// The ids.
    ///
    /// # Errors
    /// If the device fails.
    pub fn to_vec(&self) -> Result<Vec<u32>> {
        Ok(self.0.to_vec()?.into_iter().map(|id| id as u32).collect())
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.0.rows()
    }

    /// Where they lie.
    pub fn device(&self) -> &Device {
        self.0.device()
    }
}

impl<const B: usize> Argument for Tokens<B> {
    fn as_arg(&self) -> ArgRef<'_> {
        self.0.as_arg()
    }
}

impl<const B: usize> Output for Tokens<B> {
    fn with_rows(device: &Device, rows: usize) -> Result<Self> {
        Tensor::zeros(device, rows).map(Tokens)
    }

    fn as_output(&mut self) -> OutputRef<'_> {
        self.0.as_output()
    }
}

/// A number of each call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scalar<T = f32>(pub T);

impl Argument for Scalar<f32> {
    fn as_arg(&self) -> ArgRef<'_> {
        ArgRef::Scalar(self.0)
    }
}
