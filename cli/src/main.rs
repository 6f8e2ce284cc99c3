//! The command `fuseline`.

mod blocks;
mod doctor;
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
    Doctor(doctor::Args),
    Emulate(emulate::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Doctor(args) => Ok(doctor::run(&args)),
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
