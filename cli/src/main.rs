//! The command `fuseline`.

mod blocks;
mod emulate;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Checks and runs decode blocks.
#[derive(Debug, Parser)]
#[command(name = "fuseline", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Emulate(emulate::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Emulate(args) => emulate::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
