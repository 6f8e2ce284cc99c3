//! What NVRTC makes of linears on matrix instructions for `sm_90a`: registers, spills, and the
//! instructions of the loop over weights, beside what was there before (`kernels.txt`; `BLESS=1`
//! rewrites it, to be read). Needs no GPU, but NVRTC and the disassembler `nvdisasm`, which
//! `cargo xtask test` installs; without them the test says so and passes.

use fuseline_core::ir::Graph;
use fuseline_core::plan::matrix::n_columns;
use fuseline_core::plan::{Kernel, Multiply, Options, Template, compile};
use fuseline_cuda::emit::{COMPILE_OPTIONS, parts};
use fuseline_cuda::runtime::nvrtc::{Nvrtc, Output};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolIndex};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A product behind what `chain` says, of value `%3` on; `x` is its operand.
fn product(
    (rows, n, k): (usize, usize, usize),
    format: &str,
    (chain, x): (&str, usize),
    dtype: &str,
) -> String {
    let chain = chain.replace('X', &format!("[R:{rows}, K:{k}]"));
    let y = x.max(2) + 1;
    format!(
        "block product
format Int4 bits=4 code=unsigned(8) group=128 scale=bf16
arg %0 g input {dtype}[R:{rows}, K:{k}]
arg %1 norm weight f32[K:{k}]
arg %2 w weight {format}{{N:{n}, K:{k}}}
{chain}%{y} = linear %{x} %2 : f32[R:{rows}, N:{n}]
return %{y}
"
    )
}

/// Blocks by name.
fn blocks() -> Vec<(String, String)> {
    let plain = ("", 0);
    let norm = ("%3 = rms_norm %0 %1 eps=1e-5 : f32X\n", 3);
    let silu = ("%3 = silu %0 : f32X\n%4 = mul %3 %0 : f32X\n%5 = to %4 dtype=bf16 : bf16X\n", 5);
    let mut blocks = Vec::new();
    let mut add = |name: &str, shape, format: &str, chain, dtype: &str| {
        let (rows, n, k) = shape;
        let name = format!("{format} {n}x{k} M{rows} {name}");
        blocks.push((name, product(shape, format, chain, dtype)));
    };
    for rows in [1, 8, 16, 64] {
        add("bf16", (rows, 28672, 4096), "Int4", plain, "bf16");
    }
    add("f32", (1, 28672, 4096), "Int4", plain, "f32");
    add("f32 behind a norm", (1, 6144, 4096), "Int4", norm, "f32");
    add("bf16 behind silu", (1, 2560, 9216), "Int4", silu, "bf16");
    for format in ["Int4G32", "Int4ZeroG128", "Q4_1", "Q8_0", "bf16"] {
        add("f32", (1, 4096, 4096), format, plain, "f32");
        add("bf16", (8, 4096, 4096), format, plain, "bf16");
    }
    let layer = include_str!("../../../dsl-core/tests/ir/plan/smollm2_layer.ir");
    for rows in [1, 16] {
        let graph = Graph::parse(layer).unwrap().with_rows(rows);
        blocks.push((format!("a layer of SmolLM2, {rows} rows"), graph.to_string()));
    }
    blocks
}

/// Registers of a thread of each kernel: an attribute of type 0x2f in the section `.nv.info`, whose
/// entries are a format, a type, two bytes, and where the format is 4, as many bytes as these say:
/// here the kernel's symbol and the number.
fn registers(cubin: &[u8]) -> BTreeMap<String, u32> {
    let file = object::File::parse(cubin).unwrap();
    let section = file.section_by_name(".nv.info").unwrap();
    let mut rest = section.data().unwrap();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = BTreeMap::new();
    while rest.len() >= 4 {
        let n_bytes =
            if rest[0] == 4 { usize::from(rest[2]) + 256 * usize::from(rest[3]) } else { 0 };
        if rest[0] == 4 && rest[1] == 0x2f {
            let symbol = SymbolIndex(word(rest, 4) as usize);
            let name = file.symbol_by_index(symbol).unwrap().name().unwrap().to_string();
            found.insert(name, word(rest, 8));
        }
        rest = &rest[4 + n_bytes..];
    }
    found
}

/// What disassembled text says of a kernel.
#[derive(Debug, Default)]
struct Text {
    /// Loads and stores of local memory.
    n_local: usize,
    /// Instructions of the longest loop that multiplies, and how many of them do.
    n_loop: usize,
    n_multiplies: usize,
}

/// Reads the disassembly of one kernel.
fn read(lines: &[&str]) -> Text {
    let opcode = |line: &str| {
        let (_, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
        let mut words = rest.split_whitespace();
        let first = words.next()?;
        let opcode = if first.starts_with('@') { words.next()? } else { first };
        Some(opcode.trim_end_matches(';').to_string())
    };
    let is = |line: &str, name: &str| {
        opcode(line).is_some_and(|opcode| opcode.split('.').next() == Some(name))
    };
    let n_local = lines.iter().filter(|line| is(line, "LDL") || is(line, "STL")).count();
    // Branches back, to a label with multiplications in between and no such loop within.
    let back = |at: usize| {
        let (_, rest) = lines[at].split_once("BRA `(")?;
        let (label, _) = rest.split_once(')')?;
        let begin = lines[..at].iter().position(|line| line.trim() == format!("{label}:"))?;
        lines[begin..at].iter().any(|line| is(line, "HMMA")).then_some((begin, at))
    };
    let loops: Vec<(usize, usize)> = (0..lines.len()).filter_map(back).collect();
    let is_innermost = |&(begin, end): &(usize, usize)| {
        !loops.iter().any(|&(b, e)| (b, e) != (begin, end) && begin <= b && e <= end)
    };
    let count = |(begin, end): (usize, usize)| {
        let body = &lines[begin..=end];
        let n_loop = body.iter().filter(|line| opcode(line).is_some()).count();
        (n_loop, body.iter().filter(|line| is(line, "HMMA")).count())
    };
    let innermost = loops.iter().copied().filter(is_innermost);
    let (n_loop, n_multiplies) = innermost.map(count).max().unwrap_or_default();
    Text { n_local, n_loop, n_multiplies }
}

/// Instructions side by side that one weight takes part in; none on lanes.
fn n_wide(kernel: &Kernel) -> Option<usize> {
    let Template::Linear(linear) = &kernel.structure.template else { return None };
    match linear.multiply {
        Multiply::Lanes => None,
        Multiply::Matrix { n_parts } => Some(n_columns(linear, n_parts).div_ceil(8)),
    }
}

#[test]
fn kernels_are_compiled_as_they_were() {
    let Ok(nvrtc) = Nvrtc::get() else {
        assert!(std::env::var_os("FUSELINE_REQUIRE_NVRTC").is_none());
        eprintln!("[SKIP] no NVRTC");
        return;
    };
    let Some(disassembler) = std::env::var_os("FUSELINE_NVDISASM") else {
        eprintln!("[SKIP] no disassembler: `cargo xtask test` installs one");
        return;
    };
    let (mut report, mut spilled) = (String::new(), Vec::new());
    for (name, text) in blocks() {
        let graph = Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        let plan = compile(&graph, &Options::default()).unwrap();
        let source = fuseline_cuda::emit::source(std::slice::from_ref(&plan));
        let parts = parts(&source);
        for kernel in plan.kernels() {
            let Some(n_wide) = n_wide(kernel) else { continue };
            let source = parts.source_of(&kernel.name).unwrap();
            let cubin = nvrtc
                .compile(&source, &kernel.name, "sm_90a", COMPILE_OPTIONS, Output::Cubin)
                .unwrap();
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel.cubin");
            std::fs::write(&path, &cubin).unwrap();
            let output = Command::new(&disassembler).arg("-c").arg(&path).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {errors}", kernel.name);
            let text = String::from_utf8_lossy(&output.stdout);
            let text = read(&text.lines().collect::<Vec<_>>());
            let registers = registers(&cubin)[&kernel.name];
            // 16 by 16 weights an instruction, of 32 lanes.
            let weights = 8 * text.n_multiplies / n_wide;
            report += &format!(
                "{name}, {}: {registers} registers, {} of local memory, {} instructions ({} multiply) for {weights} weights of a lane: {:.2} each\n",
                kernel.name,
                text.n_local,
                text.n_loop,
                text.n_multiplies,
                text.n_loop as f64 / weights as f64,
            );
            if text.n_local > 0 {
                spilled.push(format!("{name}, {}", kernel.name));
            }
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compiled/kernels.txt");
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&golden, &report).unwrap();
    } else {
        let expected = std::fs::read_to_string(&golden).unwrap();
        assert_eq!(report, expected, "BLESS=1 rewrites {}", golden.display());
    }
    assert!(spilled.is_empty(), "registers are spilled: {spilled:#?}");
}
