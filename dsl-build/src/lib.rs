//! Writes what the macro generates as files that people can open: for every `#[decode]` block of
//! a crate its CUDA source, its plan and its graph, under `target/fuseline/<package>/`.
//!
//! The whole build script:
//!
//! ```no_run
//! fn main() -> Result<(), fuseline_build::BuildError> {
//!     fuseline_build::write("src/main.rs")
//! }
//! ```
//!
//! A block `mlp` of `mod smollm2` becomes `smollm2/mlp.cu`, `smollm2/mlp.plan` and
//! `smollm2/mlp.ir`. The program itself needs none of the files: the macro embeds the same texts.
//!
//! Outside of Cargo, [`write_to`] says what it wrote:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! let main = folder.path().join("main.rs");
//! std::fs::write(
//!     &main,
//!     "#[fuseline::decode(D = 64)]
//!      fn gate(x: Tensor<f32, D>) -> Tensor<f32, D> { x.silu() }",
//! )?;
//! let out = folder.path().join("out");
//! let report = fuseline_build::write_to(&main, &out)?;
//! assert!(report.files.contains(&out.join("gate.cu")));
//! assert!(std::fs::read_to_string(out.join("gate.plan"))?.starts_with("gate  rows 1  kernels 1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cargo;
mod files;
mod find;

use fuseline_frontend::compile::CompiledBlock;
use std::path::{Path, PathBuf};

/// What was read, written and noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The Rust files that were read: when one of them changes, so may the result.
    pub sources: Vec<PathBuf>,
    /// The files that now have the blocks' texts, whether or not they had them before.
    pub files: Vec<PathBuf>,
    /// What is wrong with blocks or with the files that could not be followed. Not errors: the
    /// compiler reports each where it is.
    pub warnings: Vec<String>,
}

/// Why the files could not be written.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Not called from a build script.
    #[error("the variable `{0}` is not set: call this from a build script, or use `write_to`")]
    Variable(&'static str),
    /// Cargo's folders are not as expected.
    #[error("{} is in no target folder: expected `build` among its parents", out_dir.display())]
    TargetFolder {
        /// The build script's folder.
        out_dir: PathBuf,
    },
    /// The crate's root cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Kernels cannot be compiled.
    #[cfg(feature = "ahead")]
    #[error(transparent)]
    Kernels(fuseline_cuda::runtime::Error),
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Writes the blocks of the crate whose root is the Rust file `root`, relative to the package, and
/// tells Cargo which files to watch. For build scripts.
///
/// # Errors
/// If this is no build script, `root` cannot be read, or a file cannot be written. Errors in the
/// blocks are left to the compiler, which shows where they are; here they are warnings.
pub fn write(root: impl AsRef<Path>) -> Result<(), BuildError> {
    let env = cargo::Env::of_build_script()?;
    let report = cargo::write(root.as_ref(), &env)?;
    for line in cargo::instructions(&report) {
        println!("{line}");
    }
    Ok(())
}

/// A planned block of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The modules around it and its own name.
    pub path: Vec<String>,
    /// The graph's text.
    pub ir: String,
    /// The CUDA source.
    pub cuda: String,
    /// The plans' reports.
    pub explain: String,
}

/// The blocks of a crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// In the order of the files and of their text.
    pub blocks: Vec<Block>,
    /// The Rust files that were read.
    pub sources: Vec<PathBuf>,
    /// What is wrong with blocks or with the files that could not be followed.
    pub warnings: Vec<String>,
}

/// The blocks of the crate whose root is the Rust file `root`.
///
/// # Errors
/// If `root` cannot be read.
pub fn blocks(root: &Path) -> Result<Blocks, BuildError> {
    let found = find::programs(root)?;
    let (sources, warnings) = (found.sources, found.warnings);
    let mut all = Blocks { blocks: Vec::new(), sources, warnings };
    for program in found.programs {
        let (blocks, errors) = fuseline_frontend::blocks(program.attr, program.item);
        if let Some(error) = errors.list().first() {
            // The compiler gives the help and the place.
            let text = error.diagnostic.to_string();
            let first = text.lines().next().unwrap_or_default();
            all.warnings.push(format!("{}: {first}", program.file.display()));
            continue;
        }
        for CompiledBlock { path, ir, cuda, explain, .. } in blocks {
            let path = program.modules.iter().cloned().chain(path).collect();
            all.blocks.push(Block { path, ir, cuda, explain });
        }
    }
    Ok(all)
}

/// The name of the archive in the build script's output folder.
#[cfg(feature = "ahead")]
const ARCHIVE: &str = "fuseline_kernels.bin";

/// Like [`write`], and compiles every kernel for the architectures `archs`, such as `sm_90a`, into
/// an archive that the program embeds with `fuseline::cuda::ahead!()` and gives to its devices: no
/// NVRTC is needed where it runs. Without NVRTC on this machine the archive is empty, and Cargo
/// shows a warning.
///
/// # Errors
/// Those of [`write`], and what NVRTC says of a kernel.
#[cfg(feature = "ahead")]
pub fn write_ahead(root: impl AsRef<Path>, archs: &[&str]) -> Result<(), BuildError> {
    write(root.as_ref())?;
    let env = cargo::Env::of_build_script()?;
    let path = env.out_dir.join(ARCHIVE);
    println!("cargo::rerun-if-env-changed=FUSELINE_NVRTC");
    let archive = match archive(&env.manifest_dir.join(root.as_ref()), archs) {
        Err(BuildError::Kernels(error @ fuseline_cuda::runtime::Error::NoNvrtc { .. })) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            println!("cargo::warning=no kernels are built ahead: {first}");
            fuseline_cuda::runtime::build_archive(&[], &[]).map_err(BuildError::Kernels)?
        }
        other => other?,
    };
    files::write_if_changed(&path, &archive)
}

/// Every kernel of a crate, compiled for these architectures.
///
/// # Errors
/// If `root` cannot be read, NVRTC is missing, or refuses a kernel.
#[cfg(feature = "ahead")]
pub fn archive(root: &Path, archs: &[&str]) -> Result<Vec<u8>, BuildError> {
    let found = blocks(root)?;
    let sources: Vec<&str> = found.blocks.iter().map(|block| block.cuda.as_str()).collect();
    fuseline_cuda::runtime::build_archive(&sources, archs).map_err(BuildError::Kernels)
}

/// Writes the blocks of the crate whose root is the Rust file `root` into `folder`.
///
/// Files that have their text already are left as they are; files of blocks that are gone are not
/// removed.
///
/// # Errors
/// If `root` cannot be read, or a file cannot be written.
pub fn write_to(root: &Path, folder: &Path) -> Result<Report, BuildError> {
    let Blocks { blocks, sources, warnings } = blocks(root)?;
    let mut report = Report { sources, files: Vec::new(), warnings };
    for block in blocks {
        let mut path = folder.to_path_buf();
        path.extend(&block.path);
        for (extension, text) in [("cu", &block.cuda), ("plan", &block.explain), ("ir", &block.ir)]
        {
            let path = path.with_extension(extension);
            files::write_if_changed(&path, text.as_bytes())?;
            report.files.push(path);
        }
    }
    Ok(report)
}
