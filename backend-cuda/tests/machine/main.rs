//! What stands for the machine under emulation does what the machine does, and what emulation
//! must not call a fault is none.

mod cases;
#[path = "../emulator/mod.rs"]
mod emulator;

use cases::{Case, N_THREADS, cases, source};
use emulator::required;
use fuseline_cuda::emulate::{Argument, Error, FaultKind, Options, Process, Shape};

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs a case: what it left in each result.
fn run(process: &mut Process, library: usize, case: &Case) -> Result<Vec<Vec<u32>>, Error> {
    let mut arguments = Vec::new();
    let mut memory = |words: &[u32], writable: bool| {
        let buffer = process.upload(&bytes(words), 4)?;
        arguments.push(Argument::Memory { buffer, at: 0, bytes: 4 * words.len(), writable });
        Ok::<_, Error>(buffer)
    };
    memory(&case.words, false)?;
    let mut results = Vec::new();
    for (before, _) in &case.results {
        results.push((memory(before, true)?, before.len()));
    }
    arguments.push(Argument::Int(case.rows as i32));
    let (n_blocks, shared_bytes) = (case.n_blocks, case.shared_bytes);
    let shape = Shape { n_blocks, n_threads: N_THREADS, shared_bytes };
    process.launch(library, case.kernel, shape, &arguments)?;
    let mut found = Vec::new();
    for (buffer, n) in results {
        let mut bytes = vec![0; 4 * n];
        process.read(buffer, 0, &mut bytes)?;
        found.push(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect());
    }
    Ok(found)
}

#[test]
fn the_machine_does_what_it_does() {
    let Some(emulator) = required(Options::default()) else { return };
    let library = emulator.compile(&[&source()]).unwrap();
    let mut process = emulator.start().unwrap();
    let number = process.open(&library).unwrap();
    for case in cases() {
        let kernel = case.kernel;
        let found = run(&mut process, number, &case).unwrap_or_else(|error| panic!("{error}"));
        for ((_, expected), found) in case.results.iter().zip(&found) {
            let words = found.len() / case.words.len().min(found.len()).max(1);
            if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
                let word = case.words.get(at / words.max(1)).copied().unwrap_or_default();
                let (found, expected) = (found[at], expected[at]);
                panic!("{kernel}: {at} is {found:#x}, not {expected:#x}, for {word:#x}");
            }
        }
    }
}

/// What is wrong with a kernel of this body, run by two blocks of 64 threads on 128 words `x`,
/// 128 words `out` and a shared array of 64 numbers.
fn fault_of(emulator: &fuseline_cuda::emulate::Emulator, body: &str) -> Option<FaultKind> {
    let kernel = "FL_KERNEL(64, 1) probe(const int* FL_RESTRICT x, int* FL_RESTRICT out, int rows) {\n\
        FL_SHARED_FLOATS(shared, 0, 64);\nconst int t = fl_thread(), b = fl_block();\n";
    let helpers: Vec<&str> = fuseline_cuda::emit::HELPERS.iter().map(|(_, text)| *text).collect();
    let source = format!("{}\n{kernel}{body}\n}}\n", helpers.join("\n"));
    let library = emulator.compile(&[&source]).unwrap();
    let mut process = emulator.start().unwrap();
    let number = process.open(&library).unwrap();
    let x = process.upload(&bytes(&[1; 128]), 4).unwrap();
    let out = process.alloc(512, 4).unwrap();
    let memory = |buffer, writable| Argument::Memory { buffer, at: 0, bytes: 512, writable };
    let arguments = [memory(x, false), memory(out, true), Argument::Int(2)];
    let shape = Shape { n_blocks: 2, n_threads: 64, shared_bytes: 256 };
    match process.launch(number, "probe", shape, &arguments) {
        Ok(()) => None,
        Err(Error::Fault(fault)) => Some(fault.kind),
        Err(error) => panic!("{error}"),
    }
}

/// Every rule of the checks, each with code that keeps it and code that breaks it.
#[test]
fn faults_are_seen_and_nothing_else() {
    let Some(emulator) = required(Options::default()) else { return };
    let probes = [
        ("fl_store_i32(out, 64 * b + t, fl_load_i32(x, t));", None),
        ("fl_store_i32(out, t, 1);", Some(FaultKind::Race)),
        ("if (b == 0) fl_store_i32(out, t, 1); else fl_load_i32(x, t);", None),
        ("if (b == 1) fl_load_i32(out, t);", Some(FaultKind::Uninitialized)),
        // What the same thread, or the block before a barrier, wrote may be read.
        ("fl_store_i32(out, 64 * b + t, 1); fl_load_i32(out, 64 * b + t);", None),
        (
            "fl_store_i32(out, 64 * b + t, 1); fl_barrier(); fl_load_i32(out, 64 * b + 63 - t);",
            None,
        ),
        (
            "fl_store_i32(out, 64 * b + t, 1); if (t > 0) fl_load_i32(out, 64 * b + t - 1);",
            Some(FaultKind::Race),
        ),
        // Whoever read it last, another thread must not write it before a barrier.
        (
            "shared[t] = 1.0f; fl_barrier(); float y = shared[3]; if (t == 63) shared[3] = y;",
            Some(FaultKind::SharedRace),
        ),
        (
            "shared[t] = 1.0f; fl_barrier(); float y = shared[3]; fl_barrier(); if (t == 63) shared[3] = y;",
            None,
        ),
        // A warp's barrier orders its own lanes, and no others; an exchange orders nothing.
        ("shared[t] = 1.0f; fl_warp_barrier(); float y = shared[t ^ 1]; (void)y;", None),
        (
            "shared[t] = 1.0f; fl_warp_barrier(); if (t >= 32) { float y = shared[t - 32]; (void)y; }",
            Some(FaultKind::SharedRace),
        ),
        (
            "shared[t] = 1.0f; fl_shuffle_xor(1.0f, 1); if (t > 0) { float y = shared[t - 1]; (void)y; }",
            Some(FaultKind::SharedRace),
        ),
        ("float y = shared[t]; (void)y;", Some(FaultKind::SharedUninitialized)),
        ("shared[t + b] = 1.0f;", Some(FaultKind::SharedOutOfBounds)),
        ("shared[t - 1] = 1.0f;", Some(FaultKind::SharedOutOfBounds)),
        // Who read it before, and again, is still a reader; and so are readers of other warps.
        (
            "shared[t] = 1.0f; fl_barrier(); float y = t == 0 ? shared[3] : 0.0f; fl_barrier();\n\
             y = t == 0 ? shared[3] : 0.0f; if (t == 5) shared[3] = y;",
            Some(FaultKind::SharedRace),
        ),
        (
            "shared[t] = 1.0f; fl_barrier(); if (t == 0 || t == 40) { float y = shared[3]; (void)y; }\n\
             fl_warp_barrier(); if (t == 1) shared[3] = 2.0f;",
            Some(FaultKind::SharedRace),
        ),
        // Atomics are in no order with anything else, and in need of none among themselves.
        ("if (t == 0) fl_store_i32(out, b, 0); fl_barrier(); fl_atomic_add_i32(out, b, 1);", None),
        (
            "if (t == 0) fl_store_i32(out, b, 0);\nfl_atomic_add_i32(out, b, 1);",
            Some(FaultKind::Race),
        ),
        (
            "if (t == 0) fl_store_i32(out, b, 0); fl_barrier(); fl_atomic_add_i32(out, b, 1);\n\
             if (t == 63) fl_load_i32(out, b);",
            Some(FaultKind::Race),
        ),
        (
            "if (b == 0 && t == 0) fl_store_i32(out, 0, 0); fl_barrier();\n\
             if (t == 0) fl_atomic_add_i32(out, 0, 1);",
            Some(FaultKind::Race),
        ),
        // What one block left in shared memory is nothing to the next.
        (
            "if (b == 0) shared[t] = 1.0f; else { float y = shared[t]; (void)y; }",
            Some(FaultKind::SharedUninitialized),
        ),
        ("fl_atomic_add_i32(out, 0, 1);", Some(FaultKind::Uninitialized)),
        ("fl_load_i32(x, 64 * b + t + 1);", Some(FaultKind::OutOfBounds)),
        ("fl_load_i32(x, t - 1);", Some(FaultKind::OutOfBounds)),
        ("fl_load_words2((const unsigned char*)x, 4 * t);", Some(FaultKind::Misaligned)),
        ("fl_store_i32((int*)x, t, 1);", Some(FaultKind::ReadOnly)),
        ("((volatile int*)out)[t] = 1;", Some(FaultKind::Undefined)),
        ("if (t < 32) fl_barrier();", Some(FaultKind::DivergentBarrier)),
        ("if (t < 40) fl_barrier(); else\nfl_barrier();", Some(FaultKind::DivergentBarrier)),
        ("if (t != 9) fl_warp_barrier();", Some(FaultKind::InactiveLane)),
        ("if (t < 40) fl_any(true); fl_barrier();", Some(FaultKind::InactiveLane)),
        ("if (t < 32) fl_any(true); fl_barrier();", None),
        (
            "bool z = t % 32 < 16 ? fl_any(false) : fl_all(true); (void)z;",
            Some(FaultKind::InactiveLane),
        ),
        ("int k = 0x7fffffff; k += t; fl_load_i32(x, k & 1);", Some(FaultKind::Undefined)),
        ("fl_load_i32(x, 64 / (rows - 2 + (t != 5)));", Some(FaultKind::Undefined)),
    ];
    let faults: Vec<String> = emulator::in_parallel(&probes, |(body, expected)| {
        let found = fault_of(&emulator, body);
        (found != *expected).then(|| format!("{body}\n  expected {expected:?}, found {found:?}"))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A fault says where it is: thread, line, array.
#[test]
fn a_fault_names_thread_and_line() {
    let Some(emulator) = required(Options::default()) else { return };
    let source = source()
        .replace("    fl_warp_barrier();\n    const float neighbour", "    const float neighbour");
    let library = emulator.compile(&[&source]).unwrap();
    let mut process = emulator.start().unwrap();
    let number = process.open(&library).unwrap();
    let case = cases().into_iter().find(|case| case.kernel == "barriers").unwrap();
    let Err(Error::Fault(fault)) = run(&mut process, number, &case) else {
        panic!("the missing barrier is not seen")
    };
    assert_eq!(fault.kind, FaultKind::SharedUninitialized);
    assert_eq!((fault.block, fault.thread), (0, 0));
    let line = fault.line.as_ref().unwrap();
    assert!(line.text.starts_with("const float neighbour = own["), "{line}");
    assert_eq!(fault.memory.as_ref().unwrap().name, "`own`");
    // After a fault the process is over, and says so.
    assert!(matches!(run(&mut process, number, &case), Err(Error::Died { .. })));
}

/// Threads that wait for each other say where both are.
#[test]
fn threads_that_cannot_go_on_are_both_named() {
    let Some(emulator) = required(Options::default()) else { return };
    let source = source().replace(
        "    fl_warp_barrier();\n    own[i] = neighbour;",
        "    if (i % 32 > 0) fl_warp_barrier();\n    else fl_barrier();\n    own[i] = neighbour;",
    );
    let library = emulator.compile(&[&source]).unwrap();
    let mut process = emulator.start().unwrap();
    let number = process.open(&library).unwrap();
    let case = cases().into_iter().find(|case| case.kernel == "barriers").unwrap();
    let Err(Error::Fault(fault)) = run(&mut process, number, &case) else {
        panic!("the divergence is not seen")
    };
    assert_eq!(fault.kind, FaultKind::InactiveLane, "{fault}");
    let line = fault.line.as_ref().unwrap();
    assert_eq!(line.text, "if (i % 32 > 0) fl_warp_barrier();", "{fault}");
    let other = fault.other.as_ref().unwrap();
    assert_eq!(other.thread, 0, "{fault}");
    assert_eq!(other.line.as_ref().unwrap().text, "else fl_barrier();", "{fault}");
}

/// What was recorded repeats the fault, and stops there for a debugger.
#[test]
fn a_recording_ends_at_the_fault() {
    use std::os::unix::process::ExitStatusExt;
    const SIGTRAP: i32 = 5;
    let options = Options { debug: true, ..Options::default() };
    let Some(emulator) = required(options) else { return };
    let store = "fl_store_i32(out, i, (int)(opposite";
    let source = source().replace(store, "fl_store_i32(out, i + 9, (int)(opposite");
    let library = emulator.compile(&[&source]).unwrap();
    let mut process = emulator.start().unwrap();
    let number = process.open(&library).unwrap();
    let case = cases().into_iter().find(|case| case.kernel == "barriers").unwrap();
    assert!(matches!(run(&mut process, number, &case), Err(Error::Fault(_))));
    let (program, commands) = process.replay().unwrap();
    let replayed = std::process::Command::new(program).arg(commands).output().unwrap();
    assert_eq!(replayed.status.signal(), Some(SIGTRAP), "{replayed:?}");
    let text = String::from_utf8_lossy(&replayed.stderr);
    assert!(text.contains("fault in block 0, thread "), "{text}");
    let folder = emulator.folder().to_path_buf();
    drop((process, emulator));
    std::fs::remove_dir_all(folder).unwrap();
}

/// What the driver itself can see is wrong: nothing runs.
#[test]
fn a_launch_must_fit_its_kernel() {
    let Some(emulator) = required(Options::default()) else { return };
    let twice = emulator.compile(&[&source(), &source()]).unwrap_err().to_string();
    assert!(twice.contains("two kernels of one library have this name"), "{twice}");
    let broken = emulator.compile(&["FL_KERNEL(32, 1) broken(int rows) { return rows }"]);
    assert!(matches!(broken, Err(Error::Compile { .. })), "{broken:?}");
    let library = emulator.compile(&[&source()]).unwrap();
    let shape = Shape { n_blocks: 1, n_threads: 64, shared_bytes: 0 };
    let words = bytes(&[0; 64]);
    let launch = |kernel: &str, n_threads: usize, which: usize| {
        let mut process = emulator.start().unwrap();
        let number = process.open(&library).unwrap();
        let buffer = process.upload(&words, 4).unwrap();
        let memory = |bytes, writable| Argument::Memory { buffer, at: 0, bytes, writable };
        let (own, rows) = (memory(128, true), Argument::Int(1));
        let arguments = match which {
            0 => vec![memory(128, false), own],
            1 => vec![memory(128, false), Argument::Float(1.0), rows],
            2 => vec![memory(128, false), memory(1 << 20, true), rows],
            _ => vec![memory(128, false), own, rows],
        };
        process.launch(number, kernel, Shape { n_threads, ..shape }, &arguments)
    };
    let text = |result: Result<(), Error>| result.map_err(|error| error.to_string()).unwrap_err();
    assert!(text(launch("nothing", 64, 3)).contains("no such kernel"));
    assert!(text(launch("widen", 64, 0)).contains("another number of arguments"));
    assert!(text(launch("widen", 64, 1)).contains("another type"));
    assert!(text(launch("widen", 64, 2)).contains("bytes that a buffer has not"));
    assert!(text(launch("widen", 48, 3)).contains("a multiple of 32"));
    let alias = text(launch("widen", 64, 3));
    assert!(alias.contains("two parameters with the same memory"), "{alias}");
}
