//! NVRTC, the compiler of CUDA source, opened when the first kernel has to be compiled. It needs
//! no GPU.

use super::error::{Error, Result};
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

type Program = *mut c_void;
type Status = c_int;

/// The library's functions.
#[derive(Debug)]
pub struct Nvrtc {
    path: String,
    version: (c_int, c_int),
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    cubin: Getter,
    ptx: Getter,
    log: Getter,
    archs: Vec<u32>,
}

/// A size, and the bytes of it.
#[derive(Clone, Copy, Debug)]
struct Getter {
    size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    bytes: unsafe extern "C" fn(Program, *mut c_char) -> Status,
}

/// What a source is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Machine code for one architecture.
    Cubin,
    /// Text that the driver compiles for its GPU.
    Ptx,
}

impl Nvrtc {
    /// The library: the one that `FUSELINE_NVRTC` names, or one that the loader finds, or the
    /// toolkit's. Opened once.
    ///
    /// # Errors
    /// [`Error::NoNvrtc`].
    pub fn get() -> Result<&'static Nvrtc> {
        static FOUND: OnceLock<std::result::Result<Nvrtc, (Vec<String>, String)>> = OnceLock::new();
        FOUND.get_or_init(open_any).as_ref().map_err(|(tried, reason)| Error::NoNvrtc {
            tried: tried.clone(),
            reason: reason.clone(),
        })
    }

    /// Its version, such as 13.0.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// What was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The architectures that it compiles for, such as 90, in order.
    pub fn archs(&self) -> &[u32] {
        &self.archs
    }

    /// Compiles a source for `arch`, such as `sm_90a`, or `compute_90` for PTX. `name` is what
    /// messages call it.
    ///
    /// # Errors
    /// [`Error::Compile`] with NVRTC's log.
    pub fn compile(
        &self,
        source: &str,
        name: &str,
        arch: &str,
        options: &[&str],
        output: Output,
    ) -> Result<Vec<u8>> {
        let fail = |log: String| Error::Compile {
            kernel: name.to_string(),
            version: self.version(),
            arch: arch.to_string(),
            log,
        };
        let text = |text: String| CString::new(text).map_err(|error| fail(error.to_string()));
        let source = text(source.to_string())?;
        let file = text(format!("{name}.cu"))?;
        let arch_option = format!("--gpu-architecture={arch}");
        let options = options.iter().map(|option| (*option).to_string()).chain([arch_option]);
        let options = options.map(text).collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all strings end with a zero and live until the calls return; there are no
        // headers; the program is destroyed once, below.
        unsafe {
            let none = std::ptr::null();
            let made = (self.create)(&mut program, source.as_ptr(), file.as_ptr(), 0, none, none);
            if made != 0 {
                return Err(fail(format!("it cannot begin: status {made}")));
            }
            let n = pointers.len() as c_int;
            let status = (self.compile)(program, n, pointers.as_ptr());
            let result = match (status, output) {
                (0, Output::Cubin) => self.cubin.get(program),
                (0, Output::Ptx) => self.ptx.get(program),
                _ => {
                    let log = self.log.get(program).unwrap_or_default();
                    let log = String::from_utf8_lossy(&log);
                    let log = log.trim_end_matches('\0').trim();
                    Err(if log.is_empty() { format!("status {status}") } else { log.to_string() })
                }
            };
            (self.destroy)(&mut program);
            result.map_err(fail)
        }
    }
}

impl Getter {
    /// # Safety
    /// The program is one of the same library's, and was compiled.
    unsafe fn get(self, program: Program) -> std::result::Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: by the caller; the buffer has the size that the library says.
        unsafe {
            let status = (self.size)(program, &mut size);
            if status != 0 || size == 0 {
                return Err(format!("it gives no result: status {status}"));
            }
            let mut bytes = vec![0u8; size];
            match (self.bytes)(program, bytes.as_mut_ptr().cast()) {
                0 => Ok(bytes),
                status => Err(format!("it gives no result: status {status}")),
            }
        }
    }
}

/// Where the library may be, best first.
fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("FUSELINE_NVRTC") {
        return vec![path.into()];
    }
    #[cfg(windows)]
    let (names, folder) = (["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"].as_slice(), Path::new("bin"));
    #[cfg(not(windows))]
    let (names, folder) =
        (["libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"].as_slice(), Path::new("lib64"));
    let mut list: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let toolkits = ["CUDA_PATH", "CUDA_HOME"].iter().filter_map(std::env::var_os);
    for toolkit in toolkits.map(PathBuf::from).chain([PathBuf::from("/usr/local/cuda")]) {
        list.extend(names.iter().map(|name| toolkit.join(folder).join(name)));
    }
    list
}

fn open_any() -> std::result::Result<Nvrtc, (Vec<String>, String)> {
    let (mut tried, mut reason) = (Vec::new(), String::new());
    for path in candidates() {
        match open(&path) {
            Ok(nvrtc) => return Ok(nvrtc),
            Err(error) => reason = error,
        }
        tried.push(path.display().to_string());
    }
    Err((tried, reason))
}

fn open(path: &Path) -> std::result::Result<Nvrtc, String> {
    open_builtins(path);
    // SAFETY: NVRTC's initialization has no effects that matter here.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    // SAFETY: the types are those of NVRTC's documentation for these names; the library stays
    // open as long as the program runs.
    let nvrtc = unsafe {
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;
        type NumArchs = unsafe extern "C" fn(*mut c_int) -> Status;
        type Archs = unsafe extern "C" fn(*mut c_int) -> Status;
        let getter = |size: &str, bytes: &str| -> std::result::Result<Getter, String> {
            Ok(Getter { size: function(&library, size)?, bytes: function(&library, bytes)? })
        };
        let version: Version = function(&library, "nvrtcVersion")?;
        let (mut major, mut minor) = (0, 0);
        version(&mut major, &mut minor);
        let n_archs: NumArchs = function(&library, "nvrtcGetNumSupportedArchs")?;
        let archs: Archs = function(&library, "nvrtcGetSupportedArchs")?;
        let mut n = 0;
        n_archs(&mut n);
        let mut list = vec![0 as c_int; usize::try_from(n).unwrap_or(0)];
        archs(list.as_mut_ptr());
        Nvrtc {
            path: path.display().to_string(),
            version: (major, minor),
            create: function(&library, "nvrtcCreateProgram")?,
            compile: function(&library, "nvrtcCompileProgram")?,
            destroy: function(&library, "nvrtcDestroyProgram")?,
            cubin: getter("nvrtcGetCUBINSize", "nvrtcGetCUBIN")?,
            ptx: getter("nvrtcGetPTXSize", "nvrtcGetPTX")?,
            log: getter("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?,
            archs: list.into_iter().filter_map(|arch| u32::try_from(arch).ok()).collect(),
        }
    };
    std::mem::forget(library);
    Ok(nvrtc)
}

/// NVRTC asks the loader for its other library by name: it is found if it is loaded.
fn open_builtins(path: &Path) {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return;
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("libnvrtc-builtins.so") && !name.contains(".alt.") {
            // SAFETY: a library of data, without effects. Without it NVRTC says what it misses.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
}

/// # Safety
/// `T` is the function's type.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> std::result::Result<T, String> {
    // SAFETY: by the caller.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|error| error.to_string())
}
