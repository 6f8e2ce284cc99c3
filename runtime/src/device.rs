//! Devices.

use crate::block::Loaded;
use crate::error::Result;
use fuseline_core::backend::{Backend, BufferRef};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Where blocks run and tensors lie. A clone is the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    backend: Box<dyn Backend>,
    /// Blocks that were loaded before, by digest and whether fusion is on.
    blocks: Mutex<BTreeMap<(u64, bool), Arc<Loaded>>>,
}

impl Device {
    /// The best device of this machine. Today that is the CPU.
    ///
    /// # Errors
    /// If no device can be opened.
    pub fn best() -> Result<Device> {
        Ok(Device::cpu())
    }

    /// The CPU: the same device every time, so that what is made in two places goes together.
    pub fn cpu() -> Device {
        static CPU: OnceLock<Device> = OnceLock::new();
        CPU.get_or_init(|| Device::from_backend(fuseline_cpu::Cpu::new())).clone()
    }

    /// A device of any back end.
    pub fn from_backend(backend: impl Backend + 'static) -> Device {
        Device(Arc::new(Inner { backend: Box::new(backend), blocks: Mutex::default() }))
    }

    /// How messages call it.
    pub fn name(&self) -> String {
        self.0.backend.name()
    }

    /// Whether both are one device.
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// New memory with these contents.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<BufferRef> {
        let buffer = self.backend().alloc(bytes.len())?;
        self.backend().write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    pub(crate) fn known_block(&self, key: (u64, bool)) -> Option<Arc<Loaded>> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    pub(crate) fn keep_block(&self, key: (u64, bool), block: Arc<Loaded>) {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner).insert(key, block);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}
