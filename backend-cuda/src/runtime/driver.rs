//! Whether the driver is there. cudarc opens it when it is first called, and panics if that fails:
//! so it is opened here before, and every function that will be called is looked for.

use super::error::{Error, Result, driver_text};
use cudarc::driver::{result, sys};
use libloading::Library;
use std::sync::OnceLock;

#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so", "libcuda.so.1"];

/// Every driver function that this crate or what it uses of cudarc calls.
const SYMBOLS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuFuncGetAttribute",
    "cuFuncGetParamInfo",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
];

enum Found {
    Driver,
    Missing { reason: String },
    Old { symbol: &'static str },
}

/// Looks for the driver, once.
///
/// # Errors
/// [`Error::NoDriver`]; [`Error::OldDriver`].
pub fn check() -> Result<()> {
    static FOUND: OnceLock<Found> = OnceLock::new();
    match FOUND.get_or_init(look) {
        Found::Driver => Ok(()),
        Found::Missing { reason } => Err(Error::NoDriver {
            tried: NAMES.iter().map(|name| (*name).to_string()).collect(),
            reason: reason.clone(),
        }),
        Found::Old { symbol } => Err(Error::OldDriver { symbol }),
    }
}

fn look() -> Found {
    let mut reason = String::new();
    for name in NAMES {
        // SAFETY: the driver's library has no initialization with effects that matter here, and
        // cudarc opens the same one.
        let library = match unsafe { Library::new(*name) } {
            Ok(library) => library,
            Err(error) => {
                reason = error.to_string();
                continue;
            }
        };
        for &symbol in SYMBOLS {
            // SAFETY: the symbol is only looked for, and never called through this type.
            if unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err() {
                return Found::Old { symbol };
            }
        }
        // It stays open as long as the program runs.
        std::mem::forget(library);
        return Found::Driver;
    }
    Found::Missing { reason }
}

/// The CUDA version that the driver supports, such as 13.0.
///
/// # Errors
/// Those of [`check`].
pub fn version() -> Result<String> {
    check()?;
    let mut version = 0;
    // SAFETY: the driver is there, and writes one int.
    let done = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    done.map_err(Error::driver("cannot ask for the driver's version"))?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// How many GPUs there are.
///
/// # Errors
/// Those of [`check`], and the driver's own, such as a driver without a GPU.
pub fn device_count() -> Result<usize> {
    check()?;
    result::init().map_err(|error| Error::Driver {
        what: "the driver does not start".to_string(),
        reason: driver_text(error),
    })?;
    let count = result::device::get_count();
    count.map(|n| usize::try_from(n).unwrap_or(0)).map_err(Error::driver("cannot count GPUs"))
}
