//! The command, as users call it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const GATE: &str = "block gate
batch B 1..=2
arg %0 x input f32[B<=2, D:40]
arg %1 y input f32[B<=2, D:40]
%2 = silu %0 : f32[B<=2, D:40]
%3 z = mul %2 %1 : f32[B<=2, D:40]
return %3
";

const CRATE: &str = "#[decode(B in 1..=2, D = 40)]
mod model {
    pub fn gate(x: Tensor<f32, B, D>, y: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        x.silu() * y
    }
    pub fn sum(x: Tensor<f32, B, D>) -> Tensor<f32, B, 1> {
        x.sum()
    }
}
fn main() {}
";

fn fuseline(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
    command.current_dir(folder).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A folder with both, or none if there is no C++ compiler.
fn folder() -> Option<tempfile::TempDir> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        assert!(std::env::var_os("FUSELINE_REQUIRE_CXX").is_none(), "no compiler {compiler}");
        eprintln!("[SKIP] no compiler {compiler}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gate.ir"), GATE).unwrap();
    fs::write(folder.path().join("main.rs"), CRATE).unwrap();
    Some(folder)
}

#[test]
fn right_blocks_are_reported_and_give_success() {
    let Some(folder) = folder() else { return };
    let output = fuseline(folder.path(), &["emulate", "gate.ir"]);
    assert!(output.status.success(), "{}", stderr(&output));
    // One row; two; one of two. Each alone and in a chain.
    assert!(stdout(&output).starts_with("gate: 3 calls, 6 launches, "), "{}", stdout(&output));

    let output = fuseline(folder.path(), &["emulate", "main.rs", "--rows", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("model::gate: 1 calls") && text.contains("model::sum: 1 calls"),
        "{text}"
    );
}

#[test]
fn a_fault_is_explained_and_gives_failure() {
    let Some(folder) = folder() else { return };
    let graph = fuseline_core::ir::Graph::parse(GATE).unwrap();
    let options = fuseline_core::plan::Options::default();
    let plan = fuseline_core::plan::compile(&graph, &options).unwrap();
    let source = fuseline_cuda::emit::source(&[plan]);
    let guard = "if (i >= rows * 40) return;";
    assert!(source.contains(guard));
    fs::write(folder.path().join("gate.cu"), source.replace(guard, "")).unwrap();
    let args = ["emulate", "gate.ir", "--source", "gate.cu", "--rows", "2"];
    let output = fuseline(folder.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["access out of bounds in kernel `gate_b2_0`", "thread 80", "of %0 `x`", "of 320"] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let Some(folder) = folder() else { return };
    let cases: [(&[&str], &str); 5] = [
        (&["emulate", "nothing.ir"], "cannot read nothing.ir"),
        (&["emulate", "main.rs", "--block", "mlp"], "it has model::gate, model::sum"),
        (&["emulate", "main.rs", "--source", "gate.ir"], "choose one with --block"),
        (&["emulate", "main.rs", "--debug"], "choose one with --block"),
        (&["emulate", "gate.ir", "--rows", "3"], "the block takes at most 2 rows, found 3"),
    ];
    for (args, part) in cases {
        let output = fuseline(folder.path(), args);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn the_doctor_names_what_is_there_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
    let cache = folder.path().join("cache");
    let output = command.arg("doctor").env("FUSELINE_CACHE", &cache).output().unwrap();
    let text = stdout(&output);
    for part in ["driver", "NVRTC", "kernel cache", "C++ compiler", "verdict"] {
        assert!(text.lines().any(|line| line.starts_with(part)), "no `{part}` in\n{text}");
    }
    assert!(text.contains(&format!("{}, empty", cache.display())), "{text}");
    if text.contains("no NVIDIA driver") {
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains("help: install the driver"), "{text}");
    }
}

/// Plans, and what is written between their kernels beside what the field's rule writes.
#[test]
fn plans_are_explained_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("main.rs"), CRATE).unwrap();
    let seed = "block seed
arg %0 g input bf16[1, K:4096]
arg %1 u input bf16[1, K:4096]
arg %2 w weight Q8_0{N:64, K:4096}
%3 = gelu_tanh %0 : f32[1, K:4096]
%4 h = mul %3 %1 : f32[1, K:4096]
%5 = clamp %4 %0 %1 : f32[1, K:4096]
%6 y = linear %5 %2 : f32[1, N:64]
return %6
";
    fs::write(folder.path().join("seed.ir"), seed).unwrap();
    let output = fuseline(folder.path(), &["explain", "main.rs", "--block", "model::gate"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("pointwise_chain"), "{}", stdout(&output));
    let output = fuseline(folder.path(), &["explain", "seed.ir", "--compare", "--no-autotune"]);
    let text = stdout(&output);
    // The activation and the whole decoded weight, in bf16.
    assert!(text.contains("the field's rule: 532480 B"), "{text}");
    assert!(text.contains("this plan: "), "{text}");
    let output = fuseline(folder.path(), &["explain", "main.rs", "--rows", "3"]);
    assert!(stderr(&output).contains("expected at most 2 rows, found 3"), "{}", stderr(&output));
}
