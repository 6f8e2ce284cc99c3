//! Tensors in memory, for tests and for programs that make their weights.

use super::named::Named;
use super::{Encoding, SourceError, TensorSource, TensorView};
use fuseline_core::dtype::DType;
use fuseline_core::format::{PackError, WeightFormat};
use half::{bf16, f16};

/// Tensors in memory, added one after the other.
///
/// ```
/// use fuseline_runtime::source::{Slices, TensorSource};
///
/// let weights = Slices::new().f32("norm", &[4], vec![1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(weights.tensor("norm")?.shape, [4]);
/// # Ok::<(), fuseline_runtime::source::SourceError>(())
/// ```
///
/// Adding never fails, so that calls chain; a shape that disagrees with its elements is an error
/// when the tensor is asked for. A tensor that is added again replaces the earlier one.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    tensors: Named<Slice>,
}

#[derive(Clone, Debug)]
struct Slice {
    shape: Vec<usize>,
    encoding: Encoding,
    /// Elements of a block and bytes of a block.
    block: (usize, usize),
    bytes: Vec<u8>,
}

impl Slices {
    /// No tensors.
    pub fn new() -> Slices {
        Slices::default()
    }

    /// Adds `f32` numbers, row-major.
    pub fn f32(self, name: &str, shape: &[usize], values: Vec<f32>) -> Slices {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.dense(name, shape, DType::F32, bytes)
    }

    /// Adds `f16` numbers, row-major.
    pub fn f16(self, name: &str, shape: &[usize], values: Vec<f16>) -> Slices {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.dense(name, shape, DType::F16, bytes)
    }

    /// Adds `bf16` numbers, row-major.
    pub fn bf16(self, name: &str, shape: &[usize], values: Vec<bf16>) -> Slices {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.dense(name, shape, DType::BF16, bytes)
    }

    /// Adds `i32` numbers, row-major.
    pub fn i32(self, name: &str, shape: &[usize], values: Vec<i32>) -> Slices {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.dense(name, shape, DType::I32, bytes)
    }

    /// Adds blocks of a format, as a GGUF file stores them: row-major, each row whole blocks.
    ///
    /// # Errors
    /// [`PackError::NotInGguf`] if the format does not declare such blocks.
    pub fn blocks(
        mut self,
        name: &str,
        shape: &[usize],
        format: &WeightFormat,
        bytes: Vec<u8>,
    ) -> Result<Slices, PackError> {
        let block =
            format.gguf.ok_or_else(|| PackError::NotInGguf { format: format.name.to_string() })?;
        let slice = Slice {
            shape: shape.to_vec(),
            encoding: Encoding::Gguf { type_id: block.type_id, name: format.name.clone() },
            block: (format.group_size().max(1), block.bytes),
            bytes,
        };
        self.tensors.replace(name, slice);
        Ok(self)
    }

    fn dense(mut self, name: &str, shape: &[usize], dtype: DType, bytes: Vec<u8>) -> Slices {
        let encoding = Encoding::Dense(dtype);
        let slice = Slice { shape: shape.to_vec(), encoding, block: (1, dtype.bytes()), bytes };
        self.tensors.replace(name, slice);
        self
    }
}

impl TensorSource for Slices {
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, SourceError> {
        let (name, slice) = self.tensors.tensor(name)?;
        let expected = super::stored_bytes(name, &slice.shape, slice.block)?;
        if expected != slice.bytes.len() as u64 {
            return Err(SourceError::TensorSize {
                tensor: name.to_owned(),
                shape: slice.shape.clone(),
                unit: "bytes",
                expected,
                found: slice.bytes.len() as u64,
            });
        }
        Ok(TensorView {
            name,
            shape: slice.shape.clone(),
            encoding: slice.encoding.clone(),
            bytes: &slice.bytes,
        })
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }
}
