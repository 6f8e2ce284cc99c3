//! `fuseline emulate`.

use crate::blocks;
use fuseline_cuda::emulate::{Check, Emulator, Error as Emulation, Options, check_graph};
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::path::PathBuf;

/// Runs the generated CUDA of blocks on this machine's CPU, on random arguments.
///
/// Every kernel is run alone and after the others, and compared with an exact reference. Accesses
/// out of bounds, reads of memory that nobody wrote, races and divergent barriers are found, with
/// thread, source line and value. Needs a C++ compiler (CXX, or g++, c++ or clang++) and no GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The root of a crate, such as src/main.rs, for all of its `#[decode]` blocks; or an .ir
    /// file.
    path: PathBuf,

    /// Only the block of this name or path, such as `model::mlp`.
    #[arg(long, value_name = "NAME")]
    block: Option<String>,

    /// Rows of a call; can be given more than once. Without it, every bucket of rows, full and
    /// with a row less.
    #[arg(long, value_name = "N")]
    rows: Vec<usize>,

    /// What the random arguments depend on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Every operation as a kernel of its own.
    #[arg(long)]
    no_fusion: bool,

    /// Run this source in place of the generated one: the same kernels, edited by hand.
    #[arg(long, value_name = "FILE.cu")]
    source: Option<PathBuf>,

    /// Optimize the kernels: for large blocks.
    #[arg(long)]
    optimize: bool,

    /// Leave out the address sanitizer, where the compiler has none.
    #[arg(long)]
    no_sanitizer: bool,

    /// Processor seconds that one launch may take; 0 for no limit.
    #[arg(long, value_name = "SECONDS", default_value_t = Options::default().limit_seconds)]
    limit: u32,

    /// Compile for a debugger, keep all files, and print the debugger's command.
    #[arg(long)]
    debug: bool,
}

/// Whether every block is right.
pub fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let list = blocks::read(&args.path, args.block.as_deref())?;
    let of_one = args.debug || args.source.is_some();
    if of_one && list.len() > 1 {
        let (path, n) = (args.path.display(), list.len());
        return Err(format!(
            "--source and --debug are for one block, and {path} has {n}: choose one with --block"
        )
        .into());
    }
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let source = args.source.as_ref().map(read).transpose()?;
    let check = Check {
        rows: args.rows.clone(),
        seed: args.seed,
        unfused: args.no_fusion,
        source,
        options: Options {
            sanitize: !args.no_sanitizer,
            optimize: args.optimize,
            debug: args.debug,
            limit_seconds: args.limit,
        },
    };
    let emulator = Emulator::new(check.options)?;
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{msg}: call {pos} of {len} {wide_bar}")?);
    let mut all_right = true;
    for block in &list {
        bar.set_message(block.name.clone());
        let result = check_graph(&emulator, &block.graph, &check, &mut |done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        });
        let text = match result {
            Ok(report) => format!(
                "{} calls, {} launches, largest error {:.1e}",
                report.rows.len(),
                report.n_launches,
                report.worst_error
            ),
            Err(error @ (Emulation::Fault(_) | Emulation::Mismatch(_))) => {
                all_right = false;
                error.to_string()
            }
            // Nothing further would run either.
            Err(error) => {
                bar.finish_and_clear();
                return Err(error.into());
            }
        };
        bar.suspend(|| println!("{}: {text}", block.name));
    }
    bar.finish_and_clear();
    if args.debug {
        let folder = emulator.folder().display();
        println!("to repeat it under a debugger, and stop in a kernel of the generated source:");
        println!(
            "  gdb -ex 'set breakpoint pending on' -ex 'break fl_0::KERNEL' --args \
             {folder}/emulator {folder}/commands_0"
        );
    }
    Ok(all_right)
}
