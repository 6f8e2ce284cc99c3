//! Kernels on a device: compiled, or taken from a cache, and loaded.

use super::cache::{DiskCache, Key};
use super::driver;
use super::error::{Error, Result, driver_text};
use super::nvrtc::{Nvrtc, Output};
use crate::emit::{COMPILE_OPTIONS, Param, Parts};
use cudarc::driver::CudaContext;
use cudarc::driver::result::{DriverError, function};
use cudarc::driver::sys;
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a kernel must be for its launches.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub name: String,
    pub params: Vec<Param>,
    pub n_threads: usize,
    pub shared_bytes: usize,
}

/// A loaded kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub function: sys::CUfunction,
    module: sys::CUmodule,
    context: Arc<CudaContext>,
}

// SAFETY: handles of the driver may be used from every thread to which their context is bound.
unsafe impl Send for Kernel {}
// SAFETY: as above; a loaded kernel does not change.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the module was loaded in this context and is unloaded once.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// Compiled kernels that came with the program, by key.
pub(crate) type Embedded = BTreeMap<String, &'static [u8]>;

/// Where a kernel's machine code came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Loaded in this process before.
    pub n_loaded: usize,
    /// Built ahead, with the program.
    pub n_embedded: usize,
    /// From the cache on disk.
    pub n_cached: usize,
    /// Compiled now.
    pub n_compiled: usize,
}

/// The kernels of a device.
#[derive(Debug)]
pub(crate) struct Kernels {
    context: Arc<CudaContext>,
    arch: String,
    /// The major number of the compute capability.
    major: i32,
    cache: DiskCache,
    embedded: Embedded,
    loaded: Mutex<BTreeMap<String, Arc<Kernel>>>,
    origins: Mutex<Origins>,
    max_shared_bytes: usize,
}

/// The architecture of a compute capability: with the instructions of just that one, where there
/// are such.
pub fn arch_of(major: i32, minor: i32) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// What a kernel's text is compiled to, for an architecture: machine code, or where NVRTC does
/// not know the architecture, text that the driver compiles.
///
/// # Errors
/// [`Error::NoNvrtc`], [`Error::Compile`].
pub fn compile_kernel(source: &str, name: &str, arch: &str) -> Result<Vec<u8>> {
    let nvrtc = Nvrtc::get()?;
    let digits: String = arch.chars().filter(char::is_ascii_digit).collect();
    let number: u32 = digits.parse().unwrap_or(0);
    if nvrtc.archs().contains(&number) {
        return nvrtc.compile(source, name, arch, COMPILE_OPTIONS, Output::Cubin);
    }
    let older = nvrtc.archs().iter().rev().find(|&&known| known < number);
    let Some(older) = older else {
        return nvrtc.compile(source, name, arch, COMPILE_OPTIONS, Output::Cubin);
    };
    let arch = format!("compute_{older}");
    nvrtc.compile(source, name, &arch, COMPILE_OPTIONS, Output::Ptx)
}

/// The key of a kernel's text for an architecture, as this process would compile it.
pub fn kernel_key(source: &str, arch: &str, compiler: &str) -> Key {
    Key::new(source, compiler, arch, COMPILE_OPTIONS)
}

impl Kernels {
    pub fn new(context: Arc<CudaContext>, cache: DiskCache, embedded: Embedded) -> Result<Kernels> {
        let capability = context.compute_capability();
        let (major, minor) =
            capability.map_err(Error::driver("cannot ask for the compute capability"))?;
        let optin = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let max_shared = context.attribute(optin);
        let max_shared =
            max_shared.map_err(Error::driver("cannot ask for the size of shared memory"))?;
        Ok(Kernels {
            context,
            arch: arch_of(major, minor),
            major,
            cache,
            embedded,
            loaded: Mutex::default(),
            origins: Mutex::default(),
            max_shared_bytes: usize::try_from(max_shared).unwrap_or(0),
        })
    }

    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Whether a kernel can begin before the one before it has ended.
    pub fn can_overlap(&self) -> bool {
        self.major >= 9
    }

    pub fn origins(&self) -> Origins {
        *lock(&self.origins)
    }

    pub fn cache(&self) -> &DiskCache {
        &self.cache
    }

    /// The kernels of a source, in order; those that are new are compiled on several threads.
    pub fn load(&self, parts: &Parts<'_>, expected: &[Expected]) -> Result<Vec<Arc<Kernel>>> {
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<Arc<Kernel>>)>> = Mutex::default();
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..n_threads.min(expected.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(kernel) = expected.get(index) else { break };
                        let loaded = self.one(parts, kernel);
                        lock(&done).push((index, loaded));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, kernel)| kernel).collect()
    }

    fn one(&self, parts: &Parts<'_>, expected: &Expected) -> Result<Arc<Kernel>> {
        let name = &expected.name;
        let source = parts.source_of(name).ok_or_else(|| Error::Kernel {
            kernel: name.clone(),
            expected: "its text in the source".to_string(),
            found: format!("{} other kernels", parts.kernels.len()),
        })?;
        // Machine code that came with the program counts whatever compiled it.
        let ahead = kernel_key(&source, &self.arch, AHEAD);
        if let Some(kernel) = lock(&self.loaded).get(ahead.name()) {
            lock(&self.origins).n_loaded += 1;
            return Ok(kernel.clone());
        }
        let embedded = self.embedded.get(ahead.name()).copied();
        let (image, compiler) = match embedded {
            Some(image) => {
                lock(&self.origins).n_embedded += 1;
                (image.to_vec(), "the build".to_string())
            }
            None => {
                let compiler = format!("NVRTC {}", Nvrtc::get()?.version());
                (self.compiled(&source, name, &compiler, false)?, compiler)
            }
        };
        let kernel = match self.load_image(&image, expected, &compiler) {
            // What was kept may be of a version whose code this driver refuses.
            Err(Error::Load { .. }) if embedded.is_none() => {
                let image = self.compiled(&source, name, &compiler, true)?;
                self.load_image(&image, expected, &compiler)?
            }
            other => other?,
        };
        let kernel = Arc::new(kernel);
        lock(&self.loaded).insert(ahead.name().to_string(), kernel.clone());
        Ok(kernel)
    }

    /// From the cache, or compiled; `anew` does not look into the cache.
    fn compiled(&self, source: &str, name: &str, compiler: &str, anew: bool) -> Result<Vec<u8>> {
        let key = kernel_key(source, &self.arch, compiler);
        if let (false, Some(image)) = (anew, self.cache.get(&key)) {
            lock(&self.origins).n_cached += 1;
            return Ok(image);
        }
        let image = compile_kernel(source, name, &self.arch)?;
        lock(&self.origins).n_compiled += 1;
        // A cache that cannot be written makes the next start slower, and nothing wrong.
        let _ = self.cache.put(&key, &image);
        Ok(image)
    }

    fn load_image(&self, image: &[u8], expected: &Expected, compiler: &str) -> Result<Kernel> {
        let name = &expected.name;
        let load_error = |reason: String| Error::Load {
            kernel: name.clone(),
            driver: driver::version().unwrap_or_else(|_| "?".to_string()),
            compiler: compiler.to_string(),
            arch: self.arch.clone(),
            reason,
        };
        self.context.bind_to_thread().map_err(|error| load_error(driver_text(error)))?;
        // PTX has to end with a zero.
        let image = [image, &[0]].concat();
        let mut log = vec![0u8; 8192];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut module = std::ptr::null_mut();
        // SAFETY: the image ends with a zero; the log has the size that the options say.
        let loaded = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if let Err(error) = loaded.result() {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
            let log = String::from_utf8_lossy(&log[..end]);
            return Err(load_error(format!("{} {log}", driver_text(error)).trim().to_string()));
        }
        let mut kernel =
            Kernel { function: std::ptr::null_mut(), module, context: self.context.clone() };
        let symbol = CString::new(name.as_str()).map_err(|error| load_error(error.to_string()))?;
        // SAFETY: the module was loaded above; the name ends with a zero.
        let found =
            unsafe { sys::cuModuleGetFunction(&mut kernel.function, module, symbol.as_ptr()) };
        found.result().map_err(|error| load_error(driver_text(error)))?;
        self.check(&kernel, expected)?;
        Ok(kernel)
    }

    /// Compares the compiled kernel with what its launches will give it.
    fn check(&self, kernel: &Kernel, expected: &Expected) -> Result<()> {
        let wrong = |wanted: String, found: String| Error::Kernel {
            kernel: expected.name.clone(),
            expected: wanted,
            found,
        };
        let ask = |error: DriverError| wrong("an answer about it".into(), driver_text(error));
        let sizes: Vec<usize> = expected.params.iter().map(|param| param_bytes(*param)).collect();
        let mut found = Vec::new();
        // One more would be an error of the driver's, which tools report as a fault.
        for index in 0..sizes.len() {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded; the driver writes two numbers, or says that there
            // is no such parameter.
            let status =
                unsafe { sys::cuFuncGetParamInfo(kernel.function, index, &mut offset, &mut size) };
            if status != sys::CUresult::CUDA_SUCCESS {
                break;
            }
            found.push(size);
        }
        if found != sizes {
            return Err(wrong(
                format!("parameters of {sizes:?} bytes"),
                format!("{found:?} bytes"),
            ));
        }
        use sys::CUfunction_attribute_enum as Attribute;
        let attribute = |which| {
            // SAFETY: the function is loaded.
            let value = unsafe { function::get_function_attribute(kernel.function, which) };
            value.map(|value| usize::try_from(value).unwrap_or(0)).map_err(ask)
        };
        let most = attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        if most < expected.n_threads {
            let wanted = format!("blocks of {} threads", expected.n_threads);
            return Err(wrong(wanted, format!("at most {most}")));
        }
        let fixed = attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let shared = fixed + expected.shared_bytes;
        if shared > self.max_shared_bytes {
            let wanted = format!("{shared} bytes of shared memory a block");
            return Err(wrong(wanted, format!("{} on this device", self.max_shared_bytes)));
        }
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(expected.shared_bytes).unwrap_or(i32::MAX);
        // SAFETY: the function is loaded, and the device has so much.
        unsafe { function::set_function_attribute(kernel.function, which, bytes) }.map_err(ask)
    }
}

/// In keys of kernels that are built with a program, in place of a compiler's version.
pub(crate) const AHEAD: &str = "ahead";

fn param_bytes(param: Param) -> usize {
    match param {
        Param::Scalar(_) | Param::Rows => 4,
        Param::Elements(_)
        | Param::Codes(_)
        | Param::Scales(_)
        | Param::Offsets(_)
        | Param::Keys(_)
        | Param::Values(_)
        | Param::Positions(_)
        | Param::Sequences(_)
        | Param::Result(_) => 8,
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is behind these locks is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
