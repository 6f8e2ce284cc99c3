//! What a machine with a GPU, and without Rust, needs to run the tests that need one: stripped
//! binaries, the golden graphs, and a script.

use crate::error::Error;
use crate::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What is packed: the arguments with which Cargo builds it, and the name of its file.
const BINARIES: &[(&[&str], &str)] = &[
    (&["test", "--release", "--no-run", "-p", "fuseline-cuda", "--test", "gpu"], "gpu"),
    (&["test", "--release", "--no-run", "-p", "fuseline", "--test", "smollm2"], "smollm2"),
    (&["build", "--release", "-p", "fuseline", "--example", "smollm2"], "chat"),
    (&["build", "--release", "-p", "fuseline-cli", "--bin", "fuseline"], "fuseline"),
];

const SCRIPT: &str = r#"#!/usr/bin/env bash
# Runs the tests that need a GPU. Needs the NVIDIA driver and NVRTC, and for the model's tests
# FUSELINE_MODEL, the file SmolLM2-135M-Instruct.Q4_1.gguf. With FUSELINE_SANITIZE, tests run under
# compute-sanitizer too. FUSELINE_RECORD is a file for what is measured.
set -uo pipefail
cd "$(dirname "$0")"
[ -f bits.json ] && export FUSELINE_BITS="$PWD/bits.json"
export FUSELINE_REQUIRE_GPU=1 FUSELINE_GOLDENS="$PWD/plan" RUST_BACKTRACE=1
status=0
./fuseline doctor || status=1
./gpu --nocapture --test-threads=1 || status=1
if [ -n "${FUSELINE_SANITIZE:-}" ]; then
    for tool in memcheck racecheck initcheck synccheck; do
        echo "compute-sanitizer $tool"
        compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 10 \
            ./gpu --test-threads=1 reported golden ahead || status=1
    done
fi
if [ -n "${FUSELINE_MODEL:-}" ]; then
    ./smollm2 --nocapture --test-threads=1 gpu || status=1
    for graph in "" --no-graph; do
        ./chat --model "$FUSELINE_MODEL" --device cuda --greedy --max-tokens 200 --raw $graph \
            "The history of Paris begins" || status=1
    done
else
    echo "FUSELINE_MODEL is not set: the model's tests were left out"
fi
exit $status
"#;

/// Packs everything into `out`; with `bits`, what the emulation computes too, which takes minutes.
pub fn run(out: &str, bits: bool) -> Result<(), Error> {
    let out = Path::new(out);
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    };
    fs::create_dir_all(out).map_err(io(out))?;
    for (args, name) in BINARIES {
        let built = executable(args)?;
        let to = out.join(name);
        fs::copy(&built, &to).map_err(io(&to))?;
        // Symbols are most of their size. Without the tool they stay.
        let mut strip = std::process::Command::new("strip");
        if strip.arg(&to).status().is_ok_and(|status| !status.success()) {
            eprintln!("{name} keeps its symbols");
        }
    }
    let plans = out.join("plan");
    fs::create_dir_all(&plans).map_err(io(&plans))?;
    let goldens = run::root().join("dsl-core/tests/ir/plan");
    for entry in fs::read_dir(&goldens).map_err(io(&goldens))? {
        let from = entry.map_err(io(&goldens))?.path();
        let to = plans.join(from.file_name().unwrap_or_default());
        fs::copy(&from, &to).map_err(io(&to))?;
    }
    if bits {
        let path = std::path::absolute(out.join("bits.json")).map_err(io(out))?;
        let args = ["test", "--release", "-p", "fuseline-cuda", "--test", "emulated_sweep", "bits"];
        run::run(run::cargo(&args).env("FUSELINE_WRITE_BITS", path), "")?;
    }
    let script = out.join("run.sh");
    fs::write(&script, SCRIPT).map_err(io(&script))?;
    println!("{}: copy it to the machine with the GPU, and run `bash run.sh` there", out.display());
    Ok(())
}

/// Builds something, and gives the path of its executable.
fn executable(args: &[&str]) -> Result<PathBuf, Error> {
    let mut command = run::cargo(args);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let text = run::output(&mut command)?;
    let found = text.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    found.ok_or_else(|| Error::Missing {
        what: format!("an executable of `cargo {}`", args.join(" ")),
    })
}
