//! Compiles generated source for every architecture. NVRTC needs no GPU; where it is missing the
//! tests say so and pass, unless `FUSELINE_REQUIRE_NVRTC` is set, as `cargo xtask test` does.

mod sources;

use cudarc::nvrtc::{result, sys};
use fuseline_core::target::TARGETS;
use std::ffi::{CStr, CString};

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
        if compiled.is_ok() && sys::nvrtcGetCUBINSize(program, &mut size) == sys::nvrtcResult::NVRTC_SUCCESS {
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
    let sources = sources::all();
    assert!(sources.len() > 5, "{} sources", sources.len());
    for (name, source) in sources {
        for target in TARGETS {
            if let Err(log) = compile(&source, target.arch) {
                let lines: Vec<String> =
                    source.lines().enumerate().map(|(i, l)| format!("{:5} {l}", i + 1)).collect();
                let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("failed.cu");
                std::fs::write(&path, &source).unwrap();
                panic!("{name} for {}:\n{log}\n{} lines in {}", target.arch, lines.len(), path.display());
            }
        }
    }
}

#[test]
fn a_fault_in_the_source_is_found() {
    if nvrtc_is_here() {
        let (_, source) = sources::all().remove(0);
        let broken = source.replacen("fl_barrier();", "fl_barrier()", 1);
        assert!(compile(&broken, "sm_80").is_err());
    }
}
