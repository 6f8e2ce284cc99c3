//! Launching kernels.

use super::error::{Error, Result, driver_text};
use super::kernels::Kernel;
use cudarc::driver::sys;
use std::ffi::c_void;

/// An argument as its bytes, the first four or all eight of them.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Argument(u64);

impl Argument {
    pub fn pointer(pointer: sys::CUdeviceptr) -> Argument {
        Argument(pointer)
    }

    pub fn int(number: i32) -> Argument {
        Argument(u64::from_le_bytes(wide(number.to_le_bytes())))
    }

    pub fn float(number: f32) -> Argument {
        Argument(u64::from_le_bytes(wide(number.to_le_bytes())))
    }
}

fn wide(bytes: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = bytes;
    [a, b, c, d, 0, 0, 0, 0]
}

/// The threads of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub n_blocks: u32,
    pub n_threads: u32,
    pub shared_bytes: u32,
    /// Whether the kernel may begin before the one before it in the stream has ended.
    pub overlaps: bool,
}

/// Puts a kernel into a stream.
///
/// # Safety
/// The arguments are those of the kernel, in number and type (which was compared when it was
/// loaded), and what they point to is as large as the kernel's shapes say; the stream's context
/// is current.
pub(crate) unsafe fn launch(
    kernel: &Kernel,
    name: &str,
    shape: Shape,
    stream: sys::CUstream,
    arguments: &mut [Argument],
) -> Result<()> {
    let mut overlap = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = sys::CUlaunchConfig {
        gridDimX: shape.n_blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: shape.n_threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shape.shared_bytes,
        hStream: stream,
        attrs: &mut overlap,
        numAttrs: u32::from(shape.overlaps),
    };
    let mut places: Vec<*mut c_void> =
        arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
    // SAFETY: by the caller; the driver copies the arguments before it returns.
    let launched = unsafe {
        sys::cuLaunchKernelEx(&config, kernel.function, places.as_mut_ptr(), std::ptr::null_mut())
    };
    launched.result().map_err(|error| Error::Driver {
        what: format!(
            "kernel `{name}` cannot be launched with {} blocks of {} threads and {} bytes of shared memory",
            shape.n_blocks, shape.n_threads, shape.shared_bytes
        ),
        reason: driver_text(error),
    })
}
