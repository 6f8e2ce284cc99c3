//! Working memory of blocks.

use crate::device::Device;
use crate::error::Result;
use crate::memory::Memory;

/// Memory for the values between a block's kernels, made by the block and used for one call
/// after the other. An arena that is large enough serves other blocks of its device too.
#[derive(Debug)]
pub struct Arena {
    memory: Memory,
}

impl Arena {
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Arena> {
        Ok(Arena { memory: Memory::zeroed(device, bytes)? })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}
