//! A GPU as a device.

use super::ahead::Archive;
use super::buffer::{CudaBuffer, SliceOf};
use super::cache::DiskCache;
use super::driver;
use super::error::{Error, Result, driver_text};
use super::graph::Recording;
use super::kernels::{Kernels, Origins, lock};
use super::program::CudaProgram;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, DevicePtr, DeviceRepr, DeviceSlice,
};
use fuseline_core::backend::{Backend, BackendError, BufferRef, Executable, Program, Recorded};
use fuseline_core::format::WeightLayout;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Choices about a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which GPU.
    pub ordinal: usize,
    /// Where compiled kernels are kept.
    pub cache: DiskCache,
    /// Whether a kernel is launched before the one before it has ended, and waits for it inside
    /// (programmatic dependent launch), on GPUs that can.
    pub overlap_launches: bool,
    /// Kernels that were compiled when the program was built.
    pub ahead: Option<Archive>,
}

impl Default for Options {
    fn default() -> Options {
        Options { ordinal: 0, cache: DiskCache::of_user(), overlap_launches: true, ahead: None }
    }
}

/// A GPU, and a stream on which all work of this device runs in order. A clone is the same
/// device.
#[derive(Clone)]
pub struct CudaDevice(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub stream: Arc<CudaStream>,
    pub name: String,
    pub kernels: Kernels,
    pub overlap_launches: bool,
    /// Held while one call's kernels are put into the stream, and while a graph is recorded by
    /// another thread's calls.
    pub recording: Mutex<Option<Recording>>,
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({})", self.0.name)
    }
}

impl CudaDevice {
    /// A GPU, with a stream of its own in the primary context, which other libraries use too.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::OldDriver`], [`Error::NoDevice`].
    pub fn new(options: Options) -> Result<CudaDevice> {
        let found = driver::device_count()?;
        if options.ordinal >= found {
            return Err(Error::NoDevice { ordinal: options.ordinal, found });
        }
        let context = CudaContext::new(options.ordinal)
            .map_err(Error::driver(format!("cannot use GPU {}", options.ordinal)))?;
        // SAFETY: this device orders its work by its one stream, and memory that others give it
        // is theirs to order; cudarc's events would break captures.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(Error::driver("cannot make a stream"))?;
        CudaDevice::with_stream(stream, options)
    }

    /// A device whose work runs on a stream that the caller owns; [`Options::ordinal`] does not
    /// matter. The default stream cannot be captured.
    ///
    /// # Errors
    /// Those of [`CudaDevice::new`].
    pub fn with_stream(stream: Arc<CudaStream>, options: Options) -> Result<CudaDevice> {
        driver::check()?;
        let context = stream.context().clone();
        let name = context.name().map_err(Error::driver("cannot ask for the GPU's name"))?;
        let embedded = options.ahead.map(Archive::into_kernels).unwrap_or_default();
        let kernels = Kernels::new(context, options.cache, embedded)?;
        Ok(CudaDevice(Arc::new(Inner {
            stream,
            name,
            kernels,
            overlap_launches: options.overlap_launches,
            recording: Mutex::new(None),
        })))
    }

    /// The stream on which its work runs.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.0.stream
    }

    /// The architecture that kernels are compiled for, such as `sm_90a`.
    pub fn arch(&self) -> &str {
        self.0.kernels.arch()
    }

    /// Where the kernels that were loaded so far came from.
    pub fn origins(&self) -> Origins {
        self.0.kernels.origins()
    }

    /// Where compiled kernels are kept.
    pub fn cache(&self) -> &DiskCache {
        self.0.kernels.cache()
    }

    /// Free and all memory of the GPU, in bytes.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn memory_bytes(&self) -> Result<(usize, usize)> {
        let info = self.0.stream.context().mem_get_info();
        info.map_err(Error::driver("cannot ask for free memory"))
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// If the driver fails, or a kernel did.
    pub fn synchronize(&self) -> Result<()> {
        self.0.stream.synchronize().map_err(Error::driver("work on the GPU failed"))
    }

    /// Memory of cudarc's, on the same GPU, as a buffer of this device. Work on it that other
    /// streams began must have ended, or be waited for by this device's stream.
    pub fn buffer<T: Send + Sync + 'static>(&self, slice: CudaSlice<T>) -> BufferRef {
        Arc::new(CudaBuffer::from_slice(&self.0, slice))
    }

    /// A part of cudarc's memory as a buffer of this device, which does not free it.
    ///
    /// # Safety
    /// What [`CudaDevice::raw_buffer`] asks for: a view says how long it may be used, and a buffer
    /// cannot.
    pub unsafe fn view_buffer<T>(&self, view: &CudaView<'_, T>) -> BufferRef {
        let pointer = view.device_ptr(&self.0.stream).0;
        // SAFETY: by the caller.
        unsafe { self.raw_buffer(pointer, view.num_bytes()) }
    }

    /// A buffer of this device as memory of cudarc's: to be copied from, given to other kernels,
    /// or split into views.
    ///
    /// # Errors
    /// [`BackendError::ForeignBuffer`]; [`BackendError::Size`] if the bytes are no whole `T`s.
    pub fn slice<'a, T: DeviceRepr>(
        &self,
        buffer: &'a BufferRef,
    ) -> std::result::Result<SliceOf<'a, T>, BackendError> {
        CudaBuffer::of(buffer, &self.0)?.slice()
    }

    /// Memory of the GPU as a buffer of this device, which does not free it.
    ///
    /// # Safety
    /// `bytes` bytes at `pointer` are memory of this GPU for as long as the buffer or a recording
    /// that uses it lives, and nobody else touches them while the device's stream works on them.
    pub unsafe fn raw_buffer(&self, pointer: CUdeviceptr, bytes: usize) -> BufferRef {
        // SAFETY: by the caller.
        Arc::new(unsafe { CudaBuffer::from_raw(&self.0, pointer, bytes) })
    }
}

impl Inner {
    /// Makes the context current in this thread.
    pub fn bind(&self) -> Result<()> {
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|error| Error::Driver {
            what: format!("cannot use {}", self.name),
            reason: driver_text(error),
        })
    }
}

impl Backend for CudaDevice {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn weight_layout(&self) -> WeightLayout {
        WeightLayout::Tiles
    }

    fn alloc(&self, bytes: usize) -> std::result::Result<BufferRef, BackendError> {
        Ok(Arc::new(CudaBuffer::zeros(&self.0, bytes)?))
    }

    fn write(
        &self,
        buffer: &BufferRef,
        at: usize,
        bytes: &[u8],
    ) -> std::result::Result<(), BackendError> {
        CudaBuffer::of(buffer, &self.0)?.write(at, bytes)
    }

    fn read(
        &self,
        buffer: &BufferRef,
        at: usize,
        out: &mut [u8],
    ) -> std::result::Result<(), BackendError> {
        CudaBuffer::of(buffer, &self.0)?.read(at, out)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn load(&self, program: &Program) -> std::result::Result<Box<dyn Executable>, BackendError> {
        Ok(Box::new(CudaProgram::new(self.clone(), program)?))
    }

    fn synchronize(&self) -> std::result::Result<(), BackendError> {
        Ok(CudaDevice::synchronize(self)?)
    }

    fn begin_recording(&self) -> std::result::Result<(), BackendError> {
        Ok(Recording::begin(&self.0)?)
    }

    fn end_recording(&self) -> std::result::Result<Box<dyn Recorded>, BackendError> {
        let recording = lock(&self.0.recording).take();
        match recording {
            Some(recording) => Ok(Box::new(recording.end(&self.0)?)),
            None => Err(BackendError::Device { message: "no recording was begun".to_string() }),
        }
    }
}
