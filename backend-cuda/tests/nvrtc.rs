//! Compiles generated source for every architecture. NVRTC needs no GPU; where it is missing the
//! tests say so and pass, unless `FUSELINE_REQUIRE_NVRTC` is set, as `cargo xtask test` does.

mod sources;

use fuseline_core::target::TARGETS;
use fuseline_cuda::emit::{COMPILE_OPTIONS, parts};
use fuseline_cuda::runtime::compile_kernel;
use fuseline_cuda::runtime::nvrtc::{Nvrtc, Output};
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

/// NVRTC, unless it is missing and not required.
fn nvrtc() -> Option<&'static Nvrtc> {
    match Nvrtc::get() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            let required = std::env::var_os("FUSELINE_REQUIRE_NVRTC").is_some();
            assert!(!required, "{error}; `cargo xtask test` installs it");
            eprintln!("[SKIP] generated source is not compiled: {error}");
            None
        }
    }
}

#[test]
fn every_source_compiles_for_every_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
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
                    let compiled =
                        nvrtc.compile(source, "source", arch, COMPILE_OPTIONS, Output::Cubin);
                    if let Err(log) = compiled {
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
    let Some(nvrtc) = nvrtc() else { return };
    let (_, source) = all().remove(0);
    let broken = source.replacen("fl_barrier();", "fl_barrier()", 1);
    let error = nvrtc.compile(&broken, "broken", "sm_80", COMPILE_OPTIONS, Output::Cubin);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("does not compile `broken` for sm_80"), "{text}");
    assert!(text.contains("expected a \";\""), "{text}");
}

/// Kernel by kernel, as programs compile them; and to text, for architectures that are too new.
#[test]
fn a_kernel_compiles_alone() {
    let Some(nvrtc) = nvrtc() else { return };
    let (_, source) = all().remove(0);
    let parts = parts(&source);
    for (name, _) in &parts.kernels {
        let text = parts.source_of(name).unwrap();
        let cubin = compile_kernel(&text, name, "sm_90a").unwrap();
        assert!(cubin.starts_with(b"\x7fELF"), "{name}");
        let ptx = compile_kernel(&text, name, "sm_999").unwrap();
        let newest = nvrtc.archs().last().unwrap();
        let ptx = String::from_utf8(ptx).unwrap();
        assert!(ptx.contains(&format!(".target sm_{newest}")), "{name}");
        assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
    }
}
