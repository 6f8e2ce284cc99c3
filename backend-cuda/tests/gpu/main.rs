//! On a GPU: every golden plan, every reported case, random graphs and a sweep of odd shapes
//! against the oracle; the same bits in every run; recorded calls. Without a GPU the tests say so
//! and pass, unless `FUSELINE_REQUIRE_GPU` is set.

mod bits;
#[path = "../../../backend-cpu/tests/device/mod.rs"]
mod device;
#[path = "../sources/mod.rs"]
#[allow(dead_code)] // other tests use the rest
mod sources;
mod sweep;

use device::{Loaded, load};
use fuseline_core::backend::Backend;
use fuseline_core::cases::{cases, relative_error};
use fuseline_core::ir::Graph;
use fuseline_core::oracle::{self, Datum};
use fuseline_core::random::{GraphOptions, random_args, random_graph};
use fuseline_cuda::emulate::{is_narrow, limit, slack};
use fuseline_cuda::runtime::{Archive, CudaDevice, DiskCache, Options, build_archive};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The GPU, once [`gpu`] has found it.
static GPU: OnceLock<Option<CudaDevice>> = OnceLock::new();

fn gpu() -> Option<&'static CudaDevice> {
    let open = || match CudaDevice::new(Options::default()) {
        Ok(device) => Some(device),
        Err(error) => {
            assert!(std::env::var_os("FUSELINE_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("[SKIP] {error}");
            None
        }
    };
    GPU.get_or_init(open).as_ref()
}

/// The back end that is tested.
fn backend() -> &'static dyn Backend {
    gpu().unwrap()
}

/// What differs between the GPU and the oracle in one call, caches included.
fn difference(loaded: &Loaded, rows: usize, args: &[Datum]) -> Result<(), String> {
    let graph = &loaded.graph;
    let ids: Vec<_> = graph.ids().collect();
    let tolerance = limit(graph, &ids);
    let (mut found_args, mut expected_args) = (args.to_vec(), args.to_vec());
    let all =
        oracle::run_all(graph, rows, &mut expected_args).map_err(|error| error.to_string())?;
    let narrow = is_narrow(graph, &ids);
    let slack = slack(graph, rows, args, &all, narrow).map_err(|error| error.to_string())?;
    let found = loaded.run(rows, &mut found_args).map_err(|error| error.to_string())?;
    let compare = |what: String, expected: &[f64], found: &[f64]| {
        let error = relative_error(expected, found);
        if error <= tolerance { Ok(()) } else { Err(format!("{what}: error {error:e}")) }
    };
    for (id, found) in graph.outputs.iter().zip(&found) {
        let expected = all[id.index()].as_deref().unwrap_or_default();
        let distances = expected.iter().zip(found).map(|(a, b)| (a - b).abs());
        let worst = distances.filter(|distance| distance.is_finite()).fold(0.0, f64::max);
        // What cancels is off by what its terms are.
        if worst > slack[id.index()] {
            compare(graph.line(*id), expected, found)?;
        }
    }
    for (index, pair) in expected_args.iter().zip(&found_args).enumerate() {
        if let (
            Datum::Cache { keys, values },
            Datum::Cache { keys: found_keys, values: found_values },
        ) = pair
        {
            compare(format!("keys of argument {index}"), keys, found_keys)?;
            compare(format!("values of argument {index}"), values, found_values)?;
        }
    }
    Ok(())
}

/// A graph for its largest bucket, fused and not, with the bucket full and a row less.
fn check(name: &str, graph: &Graph, seed: u64) -> Vec<String> {
    let mut faults = Vec::new();
    for fusion in [true, false] {
        let loaded = load(graph, fusion);
        let full = graph.rows();
        let less = (graph.batch.is_some() && full > 1).then(|| full - 1);
        for rows in [Some(full), less].into_iter().flatten() {
            let args = random_args(graph, rows, seed);
            if let Err(fault) = difference(&loaded, rows, &args) {
                faults.push(format!("{name}, fusion {fusion}, rows {rows}: {fault}"));
            }
        }
    }
    faults
}

#[test]
fn every_golden_plan_is_right() {
    if gpu().is_none() {
        return;
    }
    let graphs = sources::graphs();
    let faults: Vec<String> =
        graphs.iter().flat_map(|(name, graph)| check(name, graph, 1)).collect();
    println!("{} golden graphs, fused and not", graphs.len());
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_reported_case_is_right() {
    if gpu().is_none() {
        return;
    }
    let mut faults = Vec::new();
    for case in cases() {
        for fusion in [true, false] {
            let mut args = case.args.clone();
            match load(&case.graph, fusion).run(case.rows, &mut args) {
                Ok(found) => faults.extend(case.check(&found).err()),
                Err(error) => faults.push(format!("{}: {error}", case.name)),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn random_graphs_are_right() {
    if gpu().is_none() {
        return;
    }
    let mut faults = Vec::new();
    for seed in 0..60 {
        let narrow = seed % 2 == 1;
        let steps = 1 + (seed % 10) as usize;
        let options = GraphOptions { steps, narrow, argmax: !narrow, ..GraphOptions::default() };
        let graph = random_graph(seed, options);
        faults.extend(check(&format!("seed {seed}\n{graph}"), &graph, seed));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn odd_shapes_are_right() {
    if gpu().is_none() {
        return;
    }
    let blocks = sweep::blocks();
    let mut faults = Vec::new();
    for (name, graph, rows, args) in &blocks {
        let loaded = load(graph, true);
        let result = difference(&loaded, *rows, args);
        faults.extend(result.err().map(|fault| format!("{name}: {fault}")));
    }
    println!("{} blocks of odd shapes", blocks.len());
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Bit for bit what the emulation gives, where `FUSELINE_BITS` is the file that it wrote.
#[test]
fn bits_are_those_of_emulation() {
    let (Some(_), Some(path)) = (gpu(), std::env::var_os("FUSELINE_BITS")) else { return };
    let expected: BTreeMap<String, String> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let calls = bits::calls();
    assert_eq!(calls.len(), expected.len());
    let mut faults = Vec::new();
    for call in &calls {
        let digest = bits::digest(&load(&call.graph, call.fusion), call).unwrap();
        if expected.get(&call.name) != Some(&format!("{digest:016x}")) {
            faults.push(&call.name);
        }
    }
    println!("{} calls, {} with other bits than the emulation's", calls.len(), faults.len());
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Rows of the layer.
const ROWS: usize = 2;

/// A layer of SmolLM2: five kernels.
fn layer() -> Graph {
    let graphs = sources::graphs();
    let (_, graph) = graphs.iter().find(|(name, _)| name == "smollm2_layer").unwrap();
    graph.with_rows(ROWS)
}

fn bits(loaded: &Loaded, args: &[Datum]) -> Vec<u64> {
    let mut args = args.to_vec();
    let results = loaded.run(ROWS, &mut args).unwrap();
    let caches = args.into_iter().filter_map(|datum| match datum {
        Datum::Cache { keys, values } => Some([keys, values].concat()),
        _ => None,
    });
    results.into_iter().chain(caches).flatten().map(f64::to_bits).collect()
}

#[test]
fn runs_and_replays_have_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let graph = layer();
    let loaded = load(&graph, true);
    let args = random_args(&graph, ROWS, 3);
    let first = bits(&loaded, &args);
    for run in 1..100 {
        assert_eq!(bits(&loaded, &args), first, "run {run}");
    }
    // And what is replayed: the caches are written again with the same rows.
    let uploaded = device::upload(&graph, &args);
    let (outputs, scratch) = (loaded.outputs(), device::buffer(&vec![0; loaded.scratch_bytes]));
    loaded.call(ROWS, &uploaded, &outputs, &scratch).unwrap();
    let expected: Vec<Vec<u8>> = outputs.iter().map(device::read).collect();
    gpu.begin_recording().unwrap();
    let called = loaded.call(ROWS, &uploaded, &outputs, &scratch);
    let graph = gpu.end_recording().unwrap();
    called.unwrap();
    assert_eq!(graph.n_launches(), 5);
    for run in 0..100 {
        graph.replay().unwrap();
        let found: Vec<Vec<u8>> = outputs.iter().map(device::read).collect();
        assert!(found == expected, "replay {run}");
    }
}

#[test]
fn many_replays_take_no_memory() {
    let Some(gpu) = gpu() else { return };
    let n: usize = std::env::var("FUSELINE_REPLAYS").map_or(2000, |n| n.parse().unwrap());
    let graph = layer();
    let loaded = load(&graph, true);
    let args = device::upload(&graph, &random_args(&graph, ROWS, 3));
    let (outputs, scratch) = (loaded.outputs(), device::buffer(&vec![0; loaded.scratch_bytes]));
    gpu.begin_recording().unwrap();
    let called = loaded.call(ROWS, &args, &outputs, &scratch);
    let graph = gpu.end_recording().unwrap();
    called.unwrap();
    let resident_bytes = || -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    for _ in 0..100 {
        graph.replay().unwrap();
    }
    gpu.synchronize().unwrap();
    let (free, _) = gpu.memory_bytes().unwrap();
    let resident = resident_bytes();
    let start = std::time::Instant::now();
    for _ in 0..n {
        graph.replay().unwrap();
    }
    gpu.synchronize().unwrap();
    let us = start.elapsed().as_secs_f64() * 1e6 / n as f64;
    println!("{n} replays of a layer, {us:.2} us each");
    let (free_after, _) = gpu.memory_bytes().unwrap();
    assert!(free_after >= free, "{} bytes of the GPU's memory are gone", free - free_after);
    let grown = resident_bytes().saturating_sub(resident);
    assert!(grown < 1 << 20, "{grown} bytes of memory are gone");
}

/// What a plan of three kernels gives on a device of its own: each reads what the one before wrote.
fn chained(device: &CudaDevice) -> Vec<u8> {
    use fuseline_core::backend::{Binding, Call, Program};
    let text = "block chain
arg %0 x input f32[R:64, D:1000]
%1 = exp %0 : f32[R:64, D:1000]
%2 = softmax %1 : f32[R:64, D:1000]
%3 = row_sum %2 : f32[R:64, 1]
%4 = sub %2 %3 : f32[R:64, D:1000]
return %4
";
    let options = fuseline_core::plan::Options { fusion: false };
    let plan = fuseline_core::plan::compile(&Graph::parse(text).unwrap(), &options).unwrap();
    let scratch = device.alloc(plan.scratch_bytes()).unwrap();
    let loaded = device.load(&Program { plan: std::sync::Arc::new(plan), cuda: "" }).unwrap();
    let numbers: Vec<u8> =
        (0..64_000).flat_map(|i| ((i * 37 % 101) as f32 / 101.0).to_le_bytes()).collect();
    let x = device.alloc(numbers.len()).unwrap();
    device.write(&x, 0, &numbers).unwrap();
    let out = device.alloc(numbers.len()).unwrap();
    let (args, outputs) = ([Binding::Tensor(&x)], [&out]);
    // One call right behind the other: the first kernel of each has one before it to wait for.
    for _ in 0..50 {
        loaded.run(&Call { rows: 1, args: &args, outputs: &outputs, scratch: &scratch }).unwrap();
    }
    let mut bytes = vec![0; out.bytes()];
    device.read(&out, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn kernels_that_begin_early_change_no_bit() {
    if gpu().is_none() {
        return;
    }
    let open = |overlap_launches: bool| {
        CudaDevice::new(Options { overlap_launches, ..Options::default() }).unwrap()
    };
    assert!(chained(&open(true)) == chained(&open(false)));
}

/// From a cache on disk, and after it was damaged.
#[test]
fn the_disk_cache_is_used_and_mended() {
    let Some(_) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let graph = layer();
    let plan = fuseline_core::plan::compile(&graph, &Default::default()).unwrap();
    let program = fuseline_core::backend::Program { plan: std::sync::Arc::new(plan), cuda: "" };
    let open = || {
        let cache = DiskCache::at(folder.path());
        CudaDevice::new(Options { cache, ..Options::default() }).unwrap()
    };
    let device = open();
    let start = std::time::Instant::now();
    device.load(&program).unwrap();
    println!("cold, without a cache: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    assert_eq!(device.origins().n_compiled, 5);
    device.load(&program).unwrap();
    assert_eq!((device.origins().n_compiled, device.origins().n_loaded), (5, 5));
    let device = open();
    let start = std::time::Instant::now();
    device.load(&program).unwrap();
    println!("with a cache: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    assert_eq!((device.origins().n_compiled, device.origins().n_cached), (0, 5));
    for (index, entry) in std::fs::read_dir(folder.path()).unwrap().enumerate() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        match index {
            0 => bytes.truncate(100),
            1 => bytes[200] ^= 1,
            2 => bytes.clear(),
            _ => continue,
        }
        std::fs::write(path, bytes).unwrap();
    }
    let device = open();
    device.load(&program).unwrap();
    assert_eq!((device.origins().n_compiled, device.origins().n_cached), (3, 2));
}

/// Whole files of the cache with code that this driver refuses: text of a version to come, machine
/// code for another architecture. They are compiled again.
#[test]
fn code_that_the_driver_refuses_is_compiled_again() {
    use fuseline_cuda::emit::{COMPILE_OPTIONS, parts};
    use fuseline_cuda::runtime::cache::Key;
    use fuseline_cuda::runtime::compile_kernel;
    use fuseline_cuda::runtime::nvrtc::Nvrtc;
    let Some(gpu) = gpu() else { return };
    let graph = layer();
    let plan = fuseline_core::plan::compile(&graph, &Default::default()).unwrap();
    let source = fuseline_cuda::emit::source(std::slice::from_ref(&plan));
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    let compiler = format!("NVRTC {}", Nvrtc::get().unwrap().version());
    let parts = parts(&source);
    for (index, (name, _)) in parts.kernels.iter().enumerate() {
        let text = parts.source_of(name).unwrap();
        let image = match index % 3 {
            0 => b".version 99.0\n.target sm_90\n.address_size 64\n".to_vec(),
            1 => compile_kernel(&text, name, "sm_120a").unwrap(),
            _ => b"nothing".to_vec(),
        };
        cache.put(&Key::new(&text, &compiler, gpu.arch(), COMPILE_OPTIONS), &image).unwrap();
    }
    let device = CudaDevice::new(Options { cache, ..Options::default() }).unwrap();
    let program = fuseline_core::backend::Program { plan: std::sync::Arc::new(plan), cuda: "" };
    device.load(&program).unwrap();
    assert_eq!((device.origins().n_cached, device.origins().n_compiled), (5, 5));
}

/// What cannot be recorded ends the recording with an error, and the device is as before.
#[test]
fn a_recording_that_fails_leaves_the_device_whole() {
    let Some(gpu) = gpu() else { return };
    let graph = layer();
    let loaded = load(&graph, true);
    let args = random_args(&graph, ROWS, 3);
    let expected = bits(&loaded, &args);
    let own = gpu.alloc(16).unwrap();
    gpu.begin_recording().unwrap();
    assert!(gpu.begin_recording().is_err());
    // Reading waits for work that does not run.
    assert!(gpu.read(&own, 0, &mut [0; 16]).is_err());
    assert!(gpu.end_recording().is_err());
    assert!(bits(&loaded, &args) == expected);
    // An empty recording replays nothing.
    gpu.begin_recording().unwrap();
    let empty = gpu.end_recording().unwrap();
    assert_eq!(empty.n_launches(), 0);
    empty.replay().unwrap();
    assert!(bits(&loaded, &args) == expected);
}

/// With kernels that were built ahead nothing is compiled.
#[test]
fn kernels_built_ahead_are_used() {
    let Some(gpu) = gpu() else { return };
    let graph = layer();
    let plan = fuseline_core::plan::compile(&graph, &Default::default()).unwrap();
    let source = fuseline_cuda::emit::source(std::slice::from_ref(&plan));
    let program = fuseline_core::backend::Program { plan: std::sync::Arc::new(plan), cuda: "" };
    let open = |archs: &[&str]| {
        let bytes = build_archive(&[&source], archs).unwrap();
        let ahead = Some(Archive::read(bytes.leak()).unwrap());
        let cache = DiskCache::none();
        CudaDevice::new(Options { cache, ahead, ..Options::default() }).unwrap()
    };
    let device = open(&[gpu.arch(), "sm_80"]);
    let start = std::time::Instant::now();
    device.load(&program).unwrap();
    println!("built ahead: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    assert_eq!((device.origins().n_embedded, device.origins().n_compiled), (5, 0));
    // Machine code for another architecture is no code for this one.
    let device = open(&["sm_80"]);
    device.load(&program).unwrap();
    assert_eq!((device.origins().n_embedded, device.origins().n_compiled), (0, 5));
}

/// On a stream, with memory, and in a graph of another user of cudarc.
#[test]
fn other_users_of_cudarc_are_served() {
    use fuseline_core::backend::{Binding, Call, Program};
    use fuseline_cuda::runtime::cudarc::driver::{CudaContext, DevicePtr, sys};
    if gpu().is_none() {
        return;
    }
    let context = CudaContext::new(0).unwrap();
    // SAFETY: everything below is ordered by one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let device = CudaDevice::with_stream(stream.clone(), Options::default()).unwrap();
    let text = "block gate
arg %0 x input f32[D:1000]
%1 = silu %0 : f32[D:1000]
return %1
";
    let plan = fuseline_core::plan::compile(&Graph::parse(text).unwrap(), &Default::default());
    let program = Program { plan: std::sync::Arc::new(plan.unwrap()), cuda: "" };
    let loaded = device.load(&program).unwrap();
    let numbers: Vec<f32> = (0..1000).map(|i| i as f32 / 100.0 - 5.0).collect();
    let x = device.buffer(stream.clone_htod(&numbers).unwrap());
    // The result goes into memory that stays cudarc's.
    let out = stream.alloc_zeros::<f32>(1000).unwrap();
    let pointer = out.device_ptr(&stream).0;
    // SAFETY: `out` lives until the end, and only the device's stream touches it meanwhile.
    let result = unsafe { device.raw_buffer(pointer, 4000) };
    let scratch = device.alloc(0).unwrap();
    let args = [Binding::Tensor(&x)];
    let run = || {
        let outputs = [&result];
        loaded.run(&Call { rows: 1, args: &args, outputs: &outputs, scratch: &scratch }).unwrap();
    };
    let silu = |x: &[f32]| x.iter().map(|&x| fuseline_core::math::silu(x)).collect::<Vec<f32>>();
    run();
    assert_eq!(stream.clone_dtoh(&out).unwrap(), silu(&numbers));
    // A view is a part of somebody's memory; a buffer is a slice to cudarc.
    let both = stream.clone_htod(&[&numbers[..], &numbers[..]].concat()).unwrap();
    // SAFETY: `both` lives until the end, and only the device's stream touches it.
    let second = unsafe { device.view_buffer(&both.slice(1000..)) };
    // SAFETY: the same.
    let first = unsafe { device.view_buffer(&both.slice(..1000)) };
    let (views, outputs) = ([Binding::Tensor(&first)], [&second]);
    loaded.run(&Call { rows: 1, args: &views, outputs: &outputs, scratch: &scratch }).unwrap();
    let expected = [numbers.clone(), silu(&numbers)].concat();
    assert_eq!(stream.clone_dtoh(&both).unwrap(), expected);
    let own = device.alloc(4000).unwrap();
    device.write(&own, 0, bytemuck::cast_slice(&numbers)).unwrap();
    let slice = device.slice::<f32>(&own).unwrap();
    assert_eq!(stream.clone_dtoh(&slice.slice(10..20)).unwrap(), numbers[10..20]);
    drop(slice);
    let mut read = vec![0; 4000];
    device.read(&own, 0, &mut read).unwrap();
    assert_eq!(read.as_slice(), bytemuck::cast_slice::<f32, u8>(&numbers));
    assert!(device.slice::<[f32; 3]>(&own).is_err());
    // The caller's own graph.
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    run();
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    let moved: Vec<f32> = numbers.iter().map(|x| x + 0.5).collect();
    let bytes: Vec<u8> = moved.iter().flat_map(|x| x.to_le_bytes()).collect();
    device.write(&x, 0, &bytes).unwrap();
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&out).unwrap(), silu(&moved));
}

/// What cannot be done is an error, and what follows is right.
#[test]
fn errors_leave_the_device_whole() {
    use fuseline_core::backend::BackendError;
    let Some(gpu) = gpu() else { return };
    let (_, total) = gpu.memory_bytes().unwrap();
    let error = gpu.alloc(2 * total).unwrap_err();
    assert_eq!(error, BackendError::OutOfMemory { bytes: 2 * total });
    let other = CudaDevice::new(Options::default()).unwrap();
    let foreign = other.alloc(16).unwrap();
    let error = gpu.write(&foreign, 0, &[1]).unwrap_err();
    assert!(matches!(error, BackendError::ForeignBuffer { .. }), "{error}");
    let own = gpu.alloc(16).unwrap();
    assert!(matches!(gpu.write(&own, 15, &[1, 2]), Err(BackendError::Size { .. })));
    assert!(gpu.end_recording().is_err());
    let error = CudaDevice::new(Options { ordinal: 1000, ..Options::default() }).unwrap_err();
    assert!(error.to_string().starts_with("no GPU 1000: the driver has"), "{error}");
    let case = &cases()[0];
    let found = load(&case.graph, true).run(case.rows, &mut case.args.clone()).unwrap();
    case.check(&found).unwrap();
}

/// Two devices in turns on one thread, each with its own memory, then both on a fresh thread; on
/// two GPUs where there are two.
#[test]
fn devices_take_turns_on_any_thread() {
    if gpu().is_none() {
        return;
    }
    let second = Options { ordinal: 1, ..Options::default() };
    let n_gpus = fuseline_cuda::runtime::driver::device_count().unwrap();
    let second = CudaDevice::new(if n_gpus > 1 { second } else { Options::default() }).unwrap();
    let devices = [CudaDevice::new(Options::default()).unwrap(), second];
    let expected = chained(&devices[0]);
    for turn in 0..6 {
        assert!(chained(&devices[turn % 2]) == expected, "turn {turn}");
    }
    let fresh = std::thread::spawn(move || devices.map(|device| chained(&device)));
    assert!(fresh.join().unwrap() == [expected.clone(), expected]);
}

/// Several threads with buffers of their own, on one device.
#[test]
fn threads_do_not_disturb_each_other() {
    if gpu().is_none() {
        return;
    }
    let graph = layer();
    let loaded = load(&graph, true);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (graph, loaded) = (&graph, &loaded);
            scope.spawn(move || {
                let args = random_args(graph, ROWS, seed);
                let first = bits(loaded, &args);
                for _ in 0..10 {
                    assert!(bits(loaded, &args) == first, "seed {seed}");
                }
                difference(loaded, ROWS, &args).unwrap();
            });
        }
    });
}
