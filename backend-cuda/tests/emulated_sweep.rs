//! Blocks of odd shapes under emulation: a sample of them against the oracle, and, for the
//! comparison with a GPU, the bits of all.

#[path = "gpu/bits.rs"]
mod bits;
#[path = "../../backend-cpu/tests/device/mod.rs"]
#[allow(dead_code)] // other tests use the rest
mod device;
mod emulator;
#[allow(dead_code)]
mod sources;
#[path = "gpu/sweep.rs"]
mod sweep;

use emulator::{in_parallel, required};
use fuseline_core::backend::Backend;
use fuseline_core::plan::compile;
use fuseline_cuda::emulate::{self, EmulatedDevice, Options, blank_unread};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const OPTIONS: Options =
    Options { sanitize: false, optimize: true, debug: false, limit_seconds: 300 };

/// The back end of [`device`].
fn backend() -> &'static dyn Backend {
    static DEVICE: OnceLock<EmulatedDevice> = OnceLock::new();
    DEVICE.get_or_init(|| EmulatedDevice::new(OPTIONS).unwrap())
}

#[test]
fn odd_shapes_are_right() {
    let Some(emulator) = required(Options::default()) else { return };
    let small = |(_, graph, ..): &sweep::Block| {
        graph.values.iter().map(|value| value.ty.elements()).sum::<usize>() < 500_000
    };
    let blocks: Vec<_> = sweep::blocks().into_iter().filter(small).step_by(9).collect();
    let found = in_parallel(&blocks, |(name, graph, rows, args)| {
        let plan = compile(graph, &Default::default()).unwrap();
        let mut args = args.clone();
        blank_unread(graph, &mut args);
        let run = || {
            let mut process = emulator.start()?;
            let source = fuseline_cuda::emit::source(std::slice::from_ref(&plan));
            let number = process.open(&emulator.compile(&[&source])?)?;
            emulate::run(&mut process, number, &plan, *rows, &args)
        };
        run().map(|_| ()).map_err(|error| format!("{name}: {error}"))
    });
    println!("{} blocks", blocks.len());
    let faults: Vec<_> = found.into_iter().filter_map(Result::err).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(blocks.len() > 20);
}

/// With `FUSELINE_WRITE_BITS`, writes what the test of the same name on a GPU compares with.
#[test]
fn bits_are_those_of_a_gpu() {
    let Some(path) = std::env::var_os("FUSELINE_WRITE_BITS") else { return };
    let Some(_) = required(OPTIONS) else { return };
    let calls = bits::calls();
    let digests = in_parallel(&calls, |call| {
        let loaded = device::load(&call.graph, call.fusion);
        let digest = bits::digest(&loaded, call).unwrap_or_else(|e| panic!("{}: {e}", call.name));
        (call.name.clone(), format!("{digest:016x}"))
    });
    let digests: BTreeMap<String, String> = digests.into_iter().collect();
    assert_eq!(digests.len(), calls.len());
    std::fs::write(path, serde_json::to_string_pretty(&digests).unwrap() + "\n").unwrap();
}
