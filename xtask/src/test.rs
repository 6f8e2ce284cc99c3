//! Every test, with everything that tests would otherwise skip themselves for.

use crate::error::Error;
use crate::package::{DISASSEMBLER, NVRTC};
use crate::run;
use std::ffi::OsString;

/// Runs all tests with `args` for `cargo test`.
pub fn run(args: &[&str]) -> Result<(), Error> {
    let mut env: Vec<(&str, OsString)> = Vec::new();
    if cfg!(target_os = "linux") {
        let mut folders = vec![NVRTC.folder()?];
        let known = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        // An empty entry means the current folder, which nobody meant.
        folders.extend(std::env::split_paths(&known).filter(|path| !path.as_os_str().is_empty()));
        // Folders that came out of the list go back into it.
        let joined = std::env::join_paths(folders).unwrap_or(known);
        env.push(("LD_LIBRARY_PATH", joined));
        env.push(("FUSELINE_REQUIRE_NVRTC", "1".into()));
        env.push(("FUSELINE_NVDISASM", DISASSEMBLER.file()?.into()));
    } else {
        eprintln!("NVRTC is for Linux: generated source is not compiled here");
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    if run::is_here(&compiler) {
        env.push(("FUSELINE_REQUIRE_CXX", "1".into()));
    } else {
        eprintln!("no C++ compiler `{compiler}`: generated source is not run on the CPU");
    }
    for what in [["--workspace", "--all-targets"], ["--workspace", "--doc"]] {
        // Tests run a real model and an exact reference: without optimization they take an hour.
        let mut tests = run::cargo(&["test", "--release"]);
        tests.args(what).args(args).envs(env.iter().map(|(name, value)| (name, value)));
        run::run(&mut tests, "")?;
    }
    Ok(())
}
