//! Running other programs, and where the checkout and its build products are.

use crate::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).unwrap_or(own)
}

/// The folder of build products.
pub fn target() -> PathBuf {
    // A relative one is meant from where the user is, as Cargo takes it.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A Cargo command in the workspace, by the Cargo that runs this task.
pub fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).env("CARGO_TARGET_DIR", absolute(target()));
    command
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Runs a command to its end, with its output on the terminal. `help` follows an error.
pub fn run(command: &mut Command, help: &'static str) -> Result<(), Error> {
    let line = line(command);
    eprintln!("$ {line}");
    let status = command.status().map_err(|source| start_error(command, source, help))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command: line, status, help }) }
}

/// Runs a command, and returns what it prints; its errors are on the terminal.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let found = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| start_error(command, source, ""))?;
    if !found.status.success() {
        return Err(Error::Failed { command: line(command), status: found.status, help: "" });
    }
    Ok(String::from_utf8_lossy(&found.stdout).into_owned())
}

/// Whether a program can be started and is content.
pub fn is_here(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The command line, for messages.
pub fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn start_error(command: &Command, source: std::io::Error, help: &'static str) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    Error::Start { program, source, help }
}
