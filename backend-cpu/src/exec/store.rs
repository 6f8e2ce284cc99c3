//! What a kernel leaves in memory when its steps are done: values and rows of caches, rounded to
//! the type that they are stored in.

use super::frame::{Frame, Operand, byte_range, integers, read};
use fuseline_core::dtype::DType;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// A value that is written to a buffer.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub from: Operand,
    pub handle: usize,
    /// The first byte.
    pub at: usize,
    pub dtype: DType,
}

impl Store {
    pub fn run(&self, frame: &mut Frame<'_>) {
        let Frame { rows, memory, state, .. } = frame;
        let bytes = memory.take(self.handle);
        let values = read(memory, state, self.from, *rows);
        let range = byte_range(self.at, values.len(), self.dtype.bytes());
        narrow(self.dtype, values, &mut bytes[range]);
        memory.put(self.handle, bytes);
    }
}

/// Rows of keys and values that are written to a cache.
#[derive(Clone, Debug)]
pub(super) struct Append {
    /// `[rows, kv_heads, head_dim]`, as are the values.
    pub keys: Operand,
    pub values: Operand,
    /// The buffer of keys; values are the next one.
    pub cache: usize,
    /// The buffer of positions; sequences are the next one.
    pub index: usize,
    pub dtype: DType,
    pub kv_heads: usize,
    pub capacity: usize,
    pub head_dim: usize,
}

impl Append {
    pub fn run(&self, frame: &mut Frame<'_>) {
        let Frame { rows, memory, state, .. } = frame;
        for (operand, handle) in [(self.keys, self.cache), (self.values, self.cache + 1)] {
            let bytes = memory.take(handle);
            let elements = read(memory, state, operand, *rows);
            let positions = integers(memory.bytes(self.index));
            let sequences = integers(memory.bytes(self.index + 1));
            let (kv_heads, head_dim) = (self.kv_heads, self.head_dim);
            let heads = elements.chunks_exact(head_dim.max(1)).enumerate();
            for (index, head) in heads {
                let (row, kv_head) = (index / kv_heads, index % kv_heads);
                // Both were checked to be in range before the run began.
                let (sequence, position) = (sequences[row] as usize, positions[row] as usize);
                let place = (sequence * kv_heads + kv_head) * self.capacity + position;
                let at = place * head_dim * self.dtype.bytes();
                let range = byte_range(at, head_dim, self.dtype.bytes());
                narrow(self.dtype, head, &mut bytes[range]);
            }
            memory.put(handle, bytes);
        }
    }
}

/// Rounds values into the bytes of elements of a type.
fn narrow(dtype: DType, values: &[f32], bytes: &mut [u8]) {
    match dtype {
        DType::F32 | DType::I32 => bytes.copy_from_slice(bytemuck::cast_slice(values)),
        DType::F16 => bytemuck::cast_slice_mut::<u8, u16>(bytes)
            .reinterpret_cast_mut::<f16>()
            .convert_from_f32_slice(values),
        DType::BF16 => bytemuck::cast_slice_mut::<u8, u16>(bytes)
            .reinterpret_cast_mut::<bf16>()
            .convert_from_f32_slice(values),
    }
}
