//! The host's C++ compiler: it makes the emulator, and a library of each generated source.

use super::error::{Error, Result};
use super::process::Process;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// What is read of a local variable before it is written is no lucky zero.
const FILL_LOCALS: &str = "-ftrivial-auto-var-init=pattern";

/// The emulator's own files.
const FILES: &[(&str, &str)] = &[
    ("machine.h", include_str!("../../emulation/machine.h")),
    ("emulator.h", include_str!("../../emulation/emulator.h")),
    ("threads.cpp", include_str!("../../emulation/threads.cpp")),
    ("memory.cpp", include_str!("../../emulation/memory.cpp")),
    ("fault.cpp", include_str!("../../emulation/fault.cpp")),
    ("commands.cpp", include_str!("../../emulation/commands.cpp")),
];

/// Definitions of the functions that generated source names, for a host compiler: what is
/// included before it.
pub const MACHINE: &str = include_str!("../../emulation/machine.h");

/// How sources are compiled and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the address sanitizer guards local arrays and tables too: twice the time.
    pub sanitize: bool,
    /// Whether kernels are optimized: better for large blocks, and three times as long to compile.
    pub optimize: bool,
    /// Whether sources are compiled for a debugger, and all files are kept.
    pub debug: bool,
    /// Processor seconds that one launch may take, so that an endless loop ends; 0 for no limit.
    pub limit_seconds: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { sanitize: true, optimize: false, debug: false, limit_seconds: 120 }
    }
}

/// The emulator, compiled for this machine. Its files go when it and its processes are dropped,
/// unless it is for a debugger.
#[derive(Debug)]
pub struct Emulator {
    compiler: String,
    /// Whether the compiler can fill local variables with a pattern: older ones cannot.
    fills_locals: bool,
    options: Options,
    folder: Arc<Folder>,
    n_libraries: AtomicUsize,
    n_processes: AtomicUsize,
}

/// Where its files are.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl Folder {
    /// The emulator itself.
    pub fn program(&self) -> PathBuf {
        self.path.join("emulator")
    }

    /// The recorded commands of the n-th process.
    pub fn commands(&self, process: usize) -> PathBuf {
        self.path.join(format!("commands_{process}"))
    }
}

/// Sources that were compiled together.
#[derive(Clone, Debug)]
pub struct Library {
    pub(crate) path: PathBuf,
    pub(crate) sources: Arc<Vec<Source>>,
    /// The kernels of all sources: source and name.
    pub(crate) kernels: Arc<Vec<(usize, String)>>,
}

/// A source of a library.
#[derive(Debug)]
pub(crate) struct Source {
    pub path: PathBuf,
    pub text: String,
}

impl Emulator {
    /// Finds the compiler (`CXX`, or else `g++`, `c++`, `clang++`) and compiles the emulator: one
    /// or two seconds.
    ///
    /// # Errors
    /// [`Error::NoCompiler`]; [`Error::Compile`] if the compiler is too old for C++17 or has no
    /// address sanitizer, which [`Options::sanitize`] turns off.
    pub fn new(options: Options) -> Result<Emulator> {
        let named = std::env::var("CXX").ok().filter(|name| !name.trim().is_empty());
        let tried: Vec<String> = match named {
            Some(name) => vec![name],
            None => ["g++", "c++", "clang++"].map(String::from).to_vec(),
        };
        let Some(compiler) = tried.iter().find(|name| runs(name)).cloned() else {
            return Err(Error::NoCompiler { tried });
        };
        let temporary = tempfile::Builder::new()
            .prefix("fuseline-emulator-")
            .tempdir()
            .map_err(Error::io("cannot make a folder for the emulator"))?;
        let folder = match options.debug {
            true => Folder { path: temporary.keep(), _temporary: None },
            false => Folder { path: temporary.path().to_path_buf(), _temporary: Some(temporary) },
        };
        for (name, text) in FILES {
            write(&folder.path.join(name), text)?;
        }
        let fills_locals = accepts(&compiler, FILL_LOCALS);
        let emulator = Emulator {
            compiler,
            fills_locals,
            options,
            folder: Arc::new(folder),
            n_libraries: AtomicUsize::new(0),
            n_processes: AtomicUsize::new(0),
        };
        let path = emulator.folder.path.clone();
        let parts = || FILES.iter().filter_map(|(name, _)| name.strip_suffix(".cpp"));
        // Not guarded by the sanitizer itself: it would only be slower.
        let mut compile = emulator.command(false);
        compile.current_dir(&path).args(["-O2", "-fno-optimize-sibling-calls", "-c"]);
        compile.args(parts().map(|part| format!("{part}.cpp")));
        emulator.run(compile, &path.join("commands.cpp"))?;
        let mut link = emulator.command(options.sanitize);
        link.current_dir(&path).args(["-rdynamic", "-o"]).arg(emulator.folder.program());
        link.args(parts().map(|part| format!("{part}.o"))).arg("-ldl");
        emulator.run(link, &path.join("commands.cpp"))?;
        Ok(emulator)
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// How it compiles and runs.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Compiles sources to one library, each in a namespace of its own.
    ///
    /// # Errors
    /// [`Error::Compile`] if a source is no C++ with the emulator's definitions;
    /// [`Error::Launch`] if two kernels have one name.
    pub fn compile(&self, texts: &[&str]) -> Result<Library> {
        let number = self.n_libraries.fetch_add(1, Ordering::Relaxed);
        let path = |end: String| self.folder.path.join(format!("{number}{end}"));
        let mut glue = String::from("#include \"machine.h\"\n");
        let (mut sources, mut kernels, mut table) = (Vec::new(), Vec::new(), String::new());
        for (index, text) in texts.iter().enumerate() {
            let path = path(format!("_{index}.cu"));
            write(&path, text)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let _ = writeln!(glue, "namespace fl_{index} {{\n#include \"{name}\"\n}}");
            for kernel in kernel_names(text) {
                if kernels.iter().any(|(_, known)| known == kernel) {
                    return Err(Error::Launch {
                        kernel: kernel.to_string(),
                        message: "two kernels of one library have this name".to_string(),
                    });
                }
                let _ = writeln!(table, "    FL_ENTRY(fl_{index}, {kernel}),");
                kernels.push((index, kernel.to_string()));
            }
            sources.push(Source { path, text: (*text).to_string() });
        }
        let n_kernels = kernels.len();
        // An array of none is not C++.
        let _ = writeln!(
            glue,
            "const FlKernel fl_kernels[] = {{\n{table}    {{}},\n}};\nconst int fl_n_kernels = {n_kernels};"
        );
        let (glue_path, library) = (path(".cpp".into()), path(".so".into()));
        write(&glue_path, &glue)?;
        let mut command = self.command(self.options.sanitize);
        command.args(match (self.options.debug, self.options.optimize) {
            (true, _) => ["-O0", "-g"],
            (false, true) => ["-O1", "-g1"],
            (false, false) => ["-O0", "-g1"],
        });
        // Checks that cost little and need no library: they stop the process.
        command.args([
            "-fsanitize=bounds,signed-integer-overflow,shift,integer-divide-by-zero",
            "-fsanitize-undefined-trap-on-error",
        ]);
        command.args(self.fills_locals.then_some(FILL_LOCALS)).args(["-shared", "-o"]);
        command.arg(&library).arg(&glue_path);
        self.run(command, &glue_path)?;
        let (sources, kernels) = (Arc::new(sources), Arc::new(kernels));
        Ok(Library { path: library, sources, kernels })
    }

    /// Starts a process that runs kernels.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started.
    pub fn start(&self) -> Result<Process> {
        let number = self.n_processes.fetch_add(1, Ordering::Relaxed);
        Process::start(self.folder.clone(), number, self.options)
    }

    /// What every compilation has.
    fn command(&self, sanitize: bool) -> Command {
        let mut command = compiler_command(&self.compiler);
        command.args(["-std=c++17", "-fPIC", "-w", "-fno-omit-frame-pointer"]);
        // As generated source is compiled for a GPU: no contraction, and pointers of any type.
        command.args(["-ffp-contract=off", "-fno-strict-aliasing", "-fno-fast-math"]);
        command.args(fma_flag());
        if sanitize {
            command.arg("-fsanitize=address");
        }
        command
    }

    fn run(&self, mut command: Command, path: &Path) -> Result<()> {
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(Error::io(format!("cannot run {}", self.compiler)))?;
        if output.status.success() {
            return Ok(());
        }
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::Compile { compiler: self.compiler.clone(), path: path.to_path_buf(), log })
    }
}

impl Library {
    /// The names of its kernels, in the order of the sources' texts.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|(_, name)| name.as_str())
    }
}

/// Makes `fmaf` an instruction, where the machine has it.
pub fn fma_flag() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        return Some("-mfma");
    }
    None
}

/// The compiler's command, which may have arguments: `ccache g++`.
fn compiler_command(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Whether the compiler knows a flag.
fn accepts(compiler: &str, flag: &str) -> bool {
    let mut command = compiler_command(compiler);
    command.args([flag, "-x", "c++", "-E", "-"]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn runs(compiler: &str) -> bool {
    let mut command = compiler_command(compiler);
    let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The kernels that a source defines, in order.
fn kernel_names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.strip_prefix("FL_KERNEL(")?;
        let (_, rest) = rest.split_once(") ")?;
        Some(rest.split_once('(')?.0)
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format!("cannot write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_declarations() {
        let text = "#define FL_KERNEL(threads, blocks) static void\nFL_KERNEL(256, 1) layer_b1_0(\n    int rows) {\n}\nFL_KERNEL(32, 2) tail(int rows) {}\n";
        assert_eq!(kernel_names(text).collect::<Vec<_>>(), ["layer_b1_0", "tail"]);
    }
}
