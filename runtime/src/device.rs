//! Devices.

use crate::block::Loaded;
use crate::error::Result;
use fuseline_core::backend::{Backend, BufferRef, Recorded};
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
    /// The best device of this machine: the first GPU, if the program was built with the feature
    /// `cuda`, there is a driver, and NVRTC or kernels built ahead; else the CPU.
    ///
    /// # Errors
    /// If no device can be opened.
    pub fn best() -> Result<Device> {
        #[cfg(feature = "cuda")]
        if let Some(device) = Device::best_cuda() {
            return Ok(device);
        }
        Ok(Device::cpu())
    }

    #[cfg(feature = "cuda")]
    fn best_cuda() -> Option<Device> {
        static CUDA: OnceLock<Option<Device>> = OnceLock::new();
        let open = || {
            fuseline_cuda::runtime::nvrtc::Nvrtc::get().ok()?;
            Device::cuda(fuseline_cuda::runtime::Options::default()).ok()
        };
        CUDA.get_or_init(open).clone()
    }

    /// A GPU; with [`Options::ahead`](fuseline_cuda::runtime::Options::ahead), without NVRTC.
    ///
    /// # Errors
    /// [`Error::Backend`](crate::error::Error::Backend), which says what is missing.
    #[cfg(feature = "cuda")]
    pub fn cuda(options: fuseline_cuda::runtime::Options) -> Result<Device> {
        let device = fuseline_cuda::runtime::CudaDevice::new(options);
        Ok(Device::from_backend(device.map_err(fuseline_core::backend::BackendError::from)?))
    }

    /// Records calls instead of running them: to be replayed, with whatever is in their memory
    /// then, at the cost of one launch. Results must be there before ([`Tensor::zeros`] and
    /// `call_into`), and nothing can be read.
    ///
    /// ```no_run
    /// # use fuseline_runtime::device::Device;
    /// # fn main() -> fuseline_runtime::error::Result<()> {
    /// # let device = Device::best()?;
    /// let graph = device.record(|| {
    ///     // block.call_into(&mut arena, &weights, &x, &mut y)?;
    ///     Ok(())
    /// })?;
    /// graph.replay()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the device records none (the CPU does not), or one of the calls fails.
    ///
    /// [`Tensor::zeros`]: crate::tensor::Tensor::zeros
    pub fn record(&self, calls: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.backend().begin_recording()?;
        let called = calls();
        // It ends whatever came of the calls.
        let recorded = self.backend().end_recording();
        called?;
        Ok(Graph { device: self.clone(), recorded: recorded?.into() })
    }

    /// Waits until all work that was started is done.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.backend().synchronize()?)
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

    /// The back end, for what only it can do.
    pub fn backend(&self) -> &dyn Backend {
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

/// Recorded calls. A clone is the same.
#[derive(Clone, Debug)]
pub struct Graph {
    device: Device,
    recorded: Arc<dyn Recorded>,
}

impl Graph {
    /// Runs them, in order, on what is in their memory now.
    ///
    /// # Errors
    /// If the device fails.
    pub fn replay(&self) -> Result<()> {
        Ok(self.recorded.replay()?)
    }

    /// How many kernels a replay runs.
    pub fn n_launches(&self) -> usize {
        self.recorded.n_launches()
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
