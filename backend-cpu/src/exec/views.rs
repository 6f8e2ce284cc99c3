//! Steps that move data without arithmetic: what is read narrow is widened, parts of rows are
//! taken out.

use super::frame::{Frame, Operand, Target, byte_range};
use fuseline_core::dtype::DType;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// A value of a narrow type, read from a buffer.
#[derive(Clone, Debug)]
pub(super) struct WidenStep {
    pub handle: usize,
    /// The first byte.
    pub at: usize,
    pub dtype: DType,
    pub target: Target,
}

impl WidenStep {
    pub fn run(&self, frame: &mut Frame<'_>) {
        let mut values = frame.take(self.target);
        let range = byte_range(self.at, values.len(), self.dtype.bytes());
        let bytes = &frame.memory.bytes(self.handle)[range];
        match self.dtype {
            DType::F32 | DType::I32 => values.copy_from_slice(bytemuck::cast_slice(bytes)),
            DType::F16 => bytemuck::cast_slice::<u8, u16>(bytes)
                .reinterpret_cast::<f16>()
                .convert_to_f32_slice(&mut values),
            DType::BF16 => bytemuck::cast_slice::<u8, u16>(bytes)
                .reinterpret_cast::<bf16>()
                .convert_to_f32_slice(&mut values),
        }
        frame.put(self.target, values);
    }
}

/// Elements `start .. start + len` of each row.
#[derive(Clone, Debug)]
pub(super) struct SliceStep {
    pub x: Operand,
    /// Elements of a row of `x`.
    pub width: usize,
    pub start: usize,
    pub len: usize,
    pub target: Target,
}

impl SliceStep {
    pub fn run(&self, frame: &mut Frame<'_>) {
        let mut values = frame.take(self.target);
        // A slice has at least one element, so its rows have too.
        let rows = frame.read(self.x).chunks_exact(self.width.max(1));
        for (part, row) in values.chunks_exact_mut(self.len.max(1)).zip(rows) {
            part.copy_from_slice(&row[self.start..self.start + self.len]);
        }
        frame.put(self.target, values);
    }
}
