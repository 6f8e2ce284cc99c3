//! Memory of a device, with the device that it belongs to.

use crate::device::Device;
use crate::error::Result;
use fuseline_core::backend::BufferRef;
use std::sync::Arc;

/// Zeros are copied to a device in pieces of this size, so that clearing a cache of gigabytes
/// takes no gigabytes on the host.
const ZEROS_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Memory {
    device: Device,
    buffer: BufferRef,
}

impl Memory {
    /// Zero-filled memory.
    pub fn zeroed(device: &Device, bytes: usize) -> Result<Memory> {
        let buffer = device.backend().alloc(bytes)?;
        Ok(Memory { device: device.clone(), buffer })
    }

    /// Memory that holds elements.
    pub fn of<T: bytemuck::NoUninit>(device: &Device, elements: &[T]) -> Result<Memory> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let memory = Memory::zeroed(device, bytes.len())?;
        if !bytes.is_empty() {
            device.backend().write(&memory.buffer, 0, bytes)?;
        }
        Ok(memory)
    }

    /// The first `count` elements.
    pub fn read<T: bytemuck::Pod>(&self, count: usize) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); count];
        if count > 0 {
            let bytes = bytemuck::cast_slice_mut(&mut elements);
            self.device.backend().read(&self.buffer, 0, bytes)?;
        }
        Ok(elements)
    }

    /// Makes every byte zero.
    pub fn clear(&mut self) -> Result<()> {
        let total = self.buffer.bytes();
        let zeros = vec![0u8; total.min(ZEROS_BYTES)];
        for at in (0..total).step_by(ZEROS_BYTES) {
            let piece = &zeros[..zeros.len().min(total - at)];
            self.device.backend().write(&self.buffer, at, piece)?;
        }
        Ok(())
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn buffer(&self) -> &BufferRef {
        &self.buffer
    }

    pub fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Whether both are the same memory.
    pub fn is(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }
}
