//! Compiles generated source for every architecture. NVRTC needs no GPU; where it is missing the
//! tests say so and pass, unless `FUSELINE_REQUIRE_NVRTC` is set, as `cargo xtask test` does.

mod sources;

use cudarc::nvrtc::{result, sys};
use fuseline_core::target::TARGETS;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name and source of every block: each golden plan, fused and unfused.
fn all() -> Vec<(String, String)> {
    sources::graphs()
        .into_iter()
        .flat_map(|(name, graph)| {
            [true, false].map(|fusion| {
                let source = fuseline_cuda::emit::source(&sources::plans(&graph, fusion));
                (format!("{name}, fusion {fusion}"), source)
            })
        })
        .collect()
}

/// Kernels that use every function of the machine.
fn machine() -> String {
    let helpers = fuseline_cuda::emit::HELPERS.iter().map(|(_, text)| *text);
    helpers.chain([include_str!("machine/machine.cu")]).collect::<Vec<_>>().join("\n")
}

/// Machine code of `source` for `arch`, or NVRTC's log.
fn compile(source: &str, arch: &str) -> Result<Vec<u8>, String> {
    let source = CString::new(source).map_err(|e| e.to_string())?;
    let program = result::create_program(&source, None).map_err(|e| format!("{e:?}"))?;
    let options: Vec<String> = fuseline_cuda::emit::COMPILE_OPTIONS
        .iter()
        .map(|option| (*option).to_string())
        .chain([format!("--gpu-architecture={arch}")])
        .collect();
    // SAFETY: `program` was made above and is destroyed once, at the end; the buffer has the size
    // that NVRTC asks for.
    unsafe {
        let compiled = result::compile_program(program, &options);
        let log = result::get_program_log(program).map_err(|e| format!("{e:?}"))?;
        let log = CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned();
        let mut size = 0;
        let mut cubin = Vec::new();
        if compiled.is_ok()
            && sys::nvrtcGetCUBINSize(program, &mut size) == sys::nvrtcResult::NVRTC_SUCCESS
        {
            cubin = vec![0u8; size];
            sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast());
        }
        let _ = result::destroy_program(program);
        if cubin.is_empty() { Err(log) } else { Ok(cubin) }
    }
}

fn nvrtc_is_here() -> bool {
    // SAFETY: asks the loader whether the library can be opened, and nothing else.
    let here = unsafe { sys::is_culib_present() };
    if !here {
        assert!(
            std::env::var_os("FUSELINE_REQUIRE_NVRTC").is_none(),
            "NVRTC is required but cannot be loaded; `cargo xtask test` installs it"
        );
        eprintln!("[SKIP] NVRTC cannot be loaded: generated source is not compiled");
    }
    here
}

#[test]
fn every_source_compiles_for_every_architecture() {
    if !nvrtc_is_here() {
        return;
    }
    let mut sources = all();
    sources.push(("the machine's functions".to_string(), machine()));
    assert!(sources.len() > 20, "{} sources", sources.len());
    let jobs: Vec<(usize, &str)> =
        (0..sources.len()).flat_map(|i| TARGETS.iter().map(move |t| (i, t.arch))).collect();
    let next = AtomicUsize::new(0);
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                while let Some(&(index, arch)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, source) = &sources[index];
                    if let Err(log) = compile(source, arch) {
                        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
                        let path = folder.join(format!("failed_{index}.cu"));
                        std::fs::write(&path, source).unwrap();
                        panic!("{name} for {arch}, {}:\n{log}", path.display());
                    }
                }
            });
        }
    });
}

#[test]
fn a_fault_in_the_source_is_found() {
    if nvrtc_is_here() {
        let (_, source) = all().remove(0);
        let broken = source.replacen("fl_barrier();", "fl_barrier()", 1);
        assert!(compile(&broken, "sm_80").is_err());
    }
}
