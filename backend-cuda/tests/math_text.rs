//! `cuda/math.cuh`, compiled by a host compiler, gives the bits of `fuseline_core::math`.
//!
//! Skipped where there is no `g++`, or `c++` named by `CXX`, unless `FUSELINE_REQUIRE_CXX` is set.

use fuseline_core::math;
use fuseline_cuda::emulate::{MACHINE, fma_flag};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A loop around every function.
const AFTER: &str = r#"
#include <stdio.h>
int main() {
    struct { float a, b, c; int position; unsigned long long frequency; } in;
    while (fread(&in, sizeof in, 1, stdin) == 1) {
        float out[] = { RESULTS, 0.0f, 0.0f };
        const int n = sizeof out / sizeof *out;
        fl_sin_cos_turns(fl_rope_turn(in.position, in.frequency), &out[n - 2], &out[n - 1]);
        fwrite(out, 4, n, stdout);
    }
    return 0;
}
"#;

/// A row of inputs: three operands, and a position with a frequency.
struct Row {
    operands: [f32; 3],
    position: i32,
    frequency: u64,
}

type Unary = fn(f32) -> f32;

const UNARY: &[(&str, Unary)] = &[
    ("exp", math::exp),
    ("log", math::log),
    ("tanh", math::tanh),
    ("erf", math::erf),
    ("sigmoid", math::sigmoid),
    ("silu", math::silu),
    ("gelu_tanh", math::gelu_tanh),
    ("gelu_erf", math::gelu_erf),
    ("recip", math::recip),
    ("sqrt", math::sqrt),
    ("rsqrt", math::rsqrt),
    ("relu", math::relu),
    ("round", math::round),
];

fn expected(row: &Row) -> Vec<f32> {
    let [a, b, c] = row.operands;
    let mut out: Vec<f32> = UNARY.iter().map(|(_, function)| function(a)).collect();
    out.extend([math::min(a, b), math::max(a, b), math::softcap(a, b), math::clamp(a, b, c)]);
    let (sin, cos) = math::sin_cos_turns(math::rope_turn(row.position, row.frequency));
    out.extend([sin, cos]);
    out
}

/// Random bit patterns, numbers of ordinary size, and every pair of special values.
fn rows(seed: u64) -> Vec<Row> {
    let mut state = seed;
    let mut next = move || {
        // A linear congruential generator; the upper bits are the good ones.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    let mut rows = Vec::new();
    for i in 0..300_000 {
        let operands = if i % 2 == 0 {
            [next(), next(), next()].map(f32::from_bits)
        } else {
            [next(), next(), next()].map(|bits| (bits as i32 as f32) * (12.0 / 2147483648.0))
        };
        let frequency = u64::from(next()) << 32 | u64::from(next());
        rows.push(Row { operands, position: next() as i32, frequency });
    }
    let specials = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.55,
        88.72284,
        -103.97,
        -200.0,
        1e-40,
        -1e-45,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7f80_0001),
    ];
    for a in specials {
        for b in specials {
            rows.push(Row { operands: [a, b, 1.0], position: i32::MIN, frequency: 1 << 61 });
        }
    }
    rows
}

/// Runs the compiled text over the rows.
fn run(program: &Path, rows: &[Row]) -> std::io::Result<Vec<f32>> {
    let input = program.with_extension("in");
    let mut bytes = Vec::new();
    for row in rows {
        for operand in row.operands {
            bytes.extend(operand.to_bits().to_le_bytes());
        }
        bytes.extend(row.position.to_le_bytes());
        bytes.extend(row.frequency.to_le_bytes());
    }
    std::fs::File::create(&input)?.write_all(&bytes)?;
    let output = Command::new(program).stdin(std::fs::File::open(&input)?).output()?;
    assert!(output.status.success(), "{output:?}");
    Ok(output.stdout.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect())
}

#[test]
fn host_compiled_text_has_the_bits_of_rust() -> std::io::Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        assert!(std::env::var_os("FUSELINE_REQUIRE_CXX").is_none(), "no host compiler {compiler}");
        eprintln!("skipped: no host compiler {compiler}");
        return Ok(());
    }
    let mut results: Vec<String> =
        UNARY.iter().map(|(name, _)| format!("fl_{name}(in.a)")).collect();
    results.extend(["fl_min(in.a, in.b)", "fl_max(in.a, in.b)"].map(String::from));
    results.extend(["fl_softcap(in.a, in.b)", "fl_clamp(in.a, in.b, in.c)"].map(String::from));
    let text = include_str!("../cuda/math.cuh");
    let source = format!("{MACHINE}{text}{}", AFTER.replace("RESULTS", &results.join(", ")));

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, program) = (folder.join("math_text.cpp"), folder.join("math_text"));
    std::fs::write(&file, source)?;
    let compiled = Command::new(&compiler)
        .args(["-std=c++17", "-O2", "-ffp-contract=off"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
        .args(fma_flag())
        .arg("-o")
        .args([&program, &file])
        .arg("-lm")
        .output()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let seed = 0x5eed_0001;
    println!("seed {seed:#x}");
    let rows = rows(seed);
    let got = run(&program, &rows)?;
    let width = results.len() + 2;
    assert_eq!(got.len(), rows.len() * width);
    let names = results.iter().map(String::as_str).chain(["sin", "cos"]);
    let names: Vec<&str> = names.collect();
    for (row, got) in rows.iter().zip(got.chunks(width)) {
        for ((name, got), want) in names.iter().zip(got).zip(expected(row)) {
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                "{name} of {:?}, position {}, frequency {:#x}: {got:e}, expected {want:e}",
                row.operands,
                row.position,
                row.frequency
            );
        }
    }
    Ok(())
}
