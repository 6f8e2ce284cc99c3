//! Memory of a GPU.

use super::device::Inner;
use super::error::{Error, Result, is_out_of_memory};
use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, DeviceRepr};
use fuseline_core::backend::{BackendError, Buffer, BufferRef};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// Memory on a device's GPU: its own, or a slice of cudarc's.
pub struct CudaBuffer {
    device: Arc<Inner>,
    /// Frees the memory; none if there are no bytes, or they are borrowed.
    _owner: Option<Box<dyn Any + Send + Sync>>,
    pointer: CUdeviceptr,
    bytes: usize,
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaBuffer({} bytes at {:#x})", self.bytes, self.pointer)
    }
}

impl Buffer for CudaBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CudaBuffer {
    pub(crate) fn zeros(device: &Arc<Inner>, bytes: usize) -> Result<CudaBuffer> {
        let mut buffer = CudaBuffer { device: device.clone(), _owner: None, pointer: 0, bytes };
        if bytes == 0 {
            return Ok(buffer);
        }
        let failed = |error| match is_out_of_memory(error) {
            true => Error::OutOfMemory { bytes },
            false => Error::driver("cannot allocate memory")(error),
        };
        let slice = device.stream.alloc_zeros::<u8>(bytes).map_err(failed)?;
        buffer.pointer = pointer_of(&slice, device);
        buffer._owner = Some(Box::new(slice));
        Ok(buffer)
    }

    /// A slice of cudarc's, of the same GPU, as memory of the device.
    pub(crate) fn from_slice<T: Send + Sync + 'static>(
        device: &Arc<Inner>,
        slice: CudaSlice<T>,
    ) -> CudaBuffer {
        let (pointer, bytes) = (pointer_of(&slice, device), slice.len() * size_of::<T>());
        CudaBuffer { device: device.clone(), _owner: Some(Box::new(slice)), pointer, bytes }
    }

    /// # Safety
    /// `bytes` bytes at `pointer` are memory of the GPU for as long as the buffer is used, and
    /// nobody else writes them while the device's stream works on them.
    pub(crate) unsafe fn from_raw(
        device: &Arc<Inner>,
        pointer: CUdeviceptr,
        bytes: usize,
    ) -> CudaBuffer {
        CudaBuffer { device: device.clone(), _owner: None, pointer, bytes }
    }

    /// The buffer, if it is one of this device.
    pub(crate) fn of<'a>(
        buffer: &'a BufferRef,
        device: &Arc<Inner>,
    ) -> std::result::Result<&'a CudaBuffer, BackendError> {
        let own = buffer.as_any().downcast_ref::<CudaBuffer>();
        own.filter(|own| Arc::ptr_eq(&own.device, device))
            .ok_or_else(|| BackendError::ForeignBuffer { device: device.name.clone() })
    }

    pub(crate) fn slice<T: DeviceRepr>(&self) -> std::result::Result<SliceOf<'_, T>, BackendError> {
        let len = self.bytes / size_of::<T>().max(1);
        if len * size_of::<T>() != self.bytes {
            return Err(BackendError::Size {
                what: format!("a slice of {len} elements of {} bytes", size_of::<T>()),
                expected_bytes: len * size_of::<T>(),
                found_bytes: self.bytes,
            });
        }
        // SAFETY: the memory is there for as long as the buffer is borrowed, `SliceOf` does not
        // free it, and all bits are a value of a `DeviceRepr` type as far as a GPU is concerned.
        let slice = unsafe { self.device.stream.upgrade_device_ptr(self.pointer, len) };
        Ok(SliceOf { slice: Some(slice), buffer: PhantomData })
    }

    /// The address of its first byte.
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    fn check(&self, at: usize, bytes: usize) -> std::result::Result<(), BackendError> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            end => Err(BackendError::Size {
                what: "a copy".to_string(),
                expected_bytes: end.unwrap_or(usize::MAX),
                found_bytes: self.bytes,
            }),
        }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> std::result::Result<(), BackendError> {
        self.check(at, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let (to, stream) = (self.pointer + at as u64, self.device.stream.cu_stream());
        // SAFETY: the range was checked; the driver has read pageable memory when this returns.
        let done = unsafe { result::memcpy_htod_async(to, bytes, stream) };
        Ok(done.map_err(Error::driver("cannot copy to the GPU"))?)
    }

    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> std::result::Result<(), BackendError> {
        self.check(at, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let (from, stream) = (self.pointer + at as u64, &self.device.stream);
        // SAFETY: the range was checked, and the copy ends before `out` is used again.
        let done = unsafe { result::memcpy_dtoh_async(out, from, stream.cu_stream()) };
        let done = done.and_then(|()| stream.synchronize());
        Ok(done.map_err(Error::driver("work on the GPU failed"))?)
    }
}

/// A buffer's memory as a slice of cudarc's. Work that uses it belongs on the device's stream, or
/// must wait for it.
#[derive(Debug)]
pub struct SliceOf<'a, T> {
    /// Until it is dropped.
    slice: Option<CudaSlice<T>>,
    buffer: PhantomData<&'a CudaBuffer>,
}

impl<T> Deref for SliceOf<'_, T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        self.slice.as_ref().expect("it is taken in `drop` only")
    }
}

impl<T> Drop for SliceOf<'_, T> {
    fn drop(&mut self) {
        // The buffer frees the memory.
        if let Some(slice) = self.slice.take() {
            slice.leak();
        }
    }
}

fn pointer_of<T>(slice: &CudaSlice<T>, device: &Inner) -> CUdeviceptr {
    use cudarc::driver::DevicePtr;
    // Events are off: the guard that comes with the pointer has nothing to do.
    let (pointer, _guard) = slice.device_ptr(&device.stream);
    pointer
}
