//! The command `fuseline`.

mod blocks;
mod doctor;
mod emulate;
mod explain;

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
    Doctor(doctor::Args),
    Emulate(emulate::Args),
    Explain(explain::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Doctor(args) => Ok(doctor::run(&args)),
        Command::Emulate(args) => emulate::run(&args),
        Command::Explain(args) => explain::run(&args),
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
