//! Development tasks, run from anywhere in the checkout:
//!
//! - `cargo xtask test [ARGS…]`: every test, with a CUDA compiler that it installs beside the
//!   build products. No GPU is needed. `ARGS` go to both `cargo test` commands.
//! - `cargo xtask gpu-bundle FOLDER [--bits]`: the tests that need a GPU, for a machine without
//!   Rust; with `--bits`, what they are to compute bit for bit.
//! - `cargo xtask timings [--check]`: how long the macro takes for the example model.

mod error;
mod gpu_bundle;
mod package;
mod run;
mod test;
mod timings;

use error::Error;
use std::process::ExitCode;

const USAGE: &str = "usage:
  cargo xtask test [ARGS…]       run every test; ARGS go to `cargo test`
  cargo xtask gpu-bundle FOLDER  pack the tests that need a GPU, for a machine without Rust;
                                 with --bits, and what emulation computes, to be compared
  cargo xtask timings            time the macro, and write benches/results/expansion_time.json
  cargo xtask timings --check    time the macro, and fail if it takes longer than its limit";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["test", rest @ ..] => test::run(rest),
        ["gpu-bundle", out] => gpu_bundle::run(out, false),
        ["gpu-bundle", out, "--bits"] => gpu_bundle::run(out, true),
        ["timings"] => timings::run(false),
        ["timings", "--check"] => timings::run(true),
        _ => Err(Error::Usage(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
