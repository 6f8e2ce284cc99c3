//! The example's model on its real weights, against an independent implementation: exact weights,
//! double precision, greedy.

#[path = "../examples/smollm2/args.rs"]
#[allow(dead_code)]
mod args;
#[path = "../examples/smollm2/blocks.rs"]
#[allow(dead_code)]
mod blocks;
#[path = "../examples/smollm2/fetch.rs"]
#[allow(dead_code)]
mod fetch;
#[path = "../examples/smollm2/model.rs"]
#[allow(dead_code)]
mod model;

use args::CacheType;
use fuseline::prelude::*;
use model::Choices;
use serde_json::Value;
use std::time::Instant;

const REFERENCE: &str = include_str!("smollm2_q4_1_greedy.json");

fn file() -> Gguf {
    let path = std::env::var_os("FUSELINE_MODEL").map(Into::into);
    Gguf::open(fetch::model(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|id| id as u32).collect()
}

/// The likeliest token, the first one of several.
fn likeliest(logits: &[f32]) -> u32 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&logit| logit == top).unwrap() as u32
}

/// Runs all four sequences along the reference's tokens. Returns the logits of every step, and
/// the largest distance of a logit from the reference's.
fn follow(device: &Device, file: &Gguf, choices: Choices) -> (Vec<Vec<f32>>, f64) {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let (mut all, mut worst) = (Vec::new(), 0.0f64);
    for sequence in reference["sequences"].as_array().unwrap() {
        let mut model = model::load(device, file, choices, &mut |_, _| {}).unwrap();
        let name = sequence["name"].as_str().unwrap();
        let mut next = ids(&sequence["prompt_ids"]);
        let expected = ids(&sequence["greedy_ids"]);
        let steps = sequence["steps"].as_array().unwrap();
        assert_eq!(steps.len(), expected.len());
        for (index, (step, &token)) in steps.iter().zip(&expected).enumerate() {
            let logits = model.step(&next).unwrap();
            for (id, logit) in ids(&step["top_ids"]).into_iter().zip(numbers(&step["top_logits"])) {
                worst = worst.max((f64::from(logits[id as usize]) - logit).abs());
            }
            let exps = logits.iter().map(|&logit| f64::from(logit).exp());
            let log_sum = exps.sum::<f64>().ln();
            worst = worst.max((log_sum - step["logsumexp"].as_f64().unwrap()).abs());
            assert_eq!(likeliest(&logits), token, "{name}, step {index}");
            next = vec![token];
            all.push(logits);
        }
    }
    (all, worst)
}

/// All four sequences in one batch, then three, two and one of them, along the reference's tokens;
/// then the first again in memory that others have used. Returns the largest distance of a logit.
fn follow_together(device: &Device, file: &Gguf, choices: Choices, n_steps: usize) -> f64 {
    let reference: Value = serde_json::from_str(REFERENCE).unwrap();
    let sequences = reference["sequences"].as_array().unwrap();
    let n = sequences.len();
    let mut model = model::load(device, file, choices, &mut |_, _| {}).unwrap();
    let mut worst = 0.0f64;
    let mut check = |sequence: usize, step: usize, logits: &[f32]| {
        let expected = &sequences[sequence]["steps"][step];
        let top = ids(&expected["top_ids"]).into_iter().zip(numbers(&expected["top_logits"]));
        for (id, logit) in top {
            worst = worst.max((f64::from(logits[id as usize]) - logit).abs());
        }
        let token = ids(&sequences[sequence]["greedy_ids"])[step];
        assert_eq!(likeliest(logits), token, "sequence {sequence}, step {step}");
        token
    };
    // Sequences of the cache that are not 0 to 3, and not in order.
    let place = |sequence: usize| 13 - 4 * sequence;
    let mut next = Vec::new();
    for (sequence, expected) in sequences.iter().enumerate() {
        let logits = model.prompt(place(sequence), &ids(&expected["prompt_ids"])).unwrap();
        next.push(check(sequence, 0, &logits));
    }
    for step in 1..n_steps {
        let live = n - (step - 1) * n / (n_steps - 1);
        let row = |sequence| model::Row { sequence: place(sequence), id: next[sequence] };
        let rows: Vec<model::Row> = (0..live).map(row).collect();
        let logits = model.decode(&rows).unwrap();
        for (sequence, logits) in logits.chunks(logits.len() / live).enumerate() {
            next[sequence] = check(sequence, step, logits);
        }
    }
    let recorded = (1..=n).all(|rows| model.n_launches(rows).is_some());
    assert!(recorded || !choices.record, "a step was not recorded");
    // Other prompts, through the steps and the caches that are there.
    for sequence in [n - 1, 0] {
        model.reset(place(0));
        let mut next = ids(&sequences[sequence]["prompt_ids"]);
        for step in 0..n_steps / 4 {
            let logits = model.prompt(place(0), &next).unwrap();
            next = vec![check(sequence, step, &logits)];
        }
    }
    worst
}

#[test]
fn a_batch_gives_every_token_of_each_sequence() {
    let choices = Choices { cache: CacheType::F32, fusion: true, record: false };
    let worst = follow_together(&Device::cpu(), &file(), choices, 9);
    assert!(worst < 1e-3, "{worst}");
}

#[test]
fn f32_cache_gives_every_token_and_logit_fused_and_not() {
    let file = file();
    let device = Device::cpu();
    let choices = Choices { cache: CacheType::F32, fusion: true, record: false };
    let (fused, fused_worst) = follow(&device, &file, choices);
    let (apart, apart_worst) = follow(&device, &file, Choices { fusion: false, ..choices });
    println!("largest distance from the reference: {fused_worst:.2e} fused, {apart_worst:.2e} not");
    assert!(fused_worst < 1e-3, "{fused_worst}");
    assert!(apart_worst < 1e-3, "{apart_worst}");
    let pairs = fused.iter().flatten().zip(apart.iter().flatten());
    let between = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest distance between the two: {between:.2e}");
    assert!(between < 5e-4, "{between}");
    assert_eq!(fused.len(), 4 * 48);
}

#[test]
fn f16_cache_gives_every_token() {
    let choices = Choices { cache: CacheType::F16, fusion: true, record: false };
    let (_, worst) = follow(&Device::cpu(), &file(), choices);
    println!("largest distance from the reference: {worst:.2e}");
    assert!(worst < 0.05, "{worst}");
    // Rounding the cache changes something: the type is not ignored.
    assert!(worst > 1e-5, "{worst}");
}

/// On a GPU: every kernel launched by itself, a recorded step replayed, kernels built ahead.
/// Skipped without one, unless `FUSELINE_REQUIRE_GPU` is set. With `FUSELINE_RECORD`, what was
/// measured goes into that file.
#[test]
fn a_gpu_gives_every_token_and_logit() {
    use blocks::smollm2::cache_f32::{embed, head, layer};
    use fuseline::cuda::{Archive, CudaDevice, DiskCache, Options, build_archive};
    let open = |cache: &DiskCache, ahead: Option<Archive>| {
        Device::cuda(Options { cache: cache.clone(), ahead, ..Options::default() })
    };
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    let device = match open(&cache, None) {
        Ok(device) => device,
        Err(error) => {
            assert!(std::env::var_os("FUSELINE_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("[SKIP] {error}");
            return;
        }
    };
    let file = file();
    let replay = Choices { cache: CacheType::F32, fusion: true, record: true };
    let launch = Choices { record: false, ..replay };
    let apart = Choices { fusion: false, ..launch };
    let load_ms = |device: &Device| {
        let start = Instant::now();
        model::load(device, &file, replay, &mut |_, _| {}).unwrap();
        start.elapsed().as_secs_f64() * 1e3
    };
    let cold_ms = load_ms(&device);
    let cached_ms = load_ms(&open(&cache, None).unwrap());
    let (replayed, replayed_worst) = follow(&device, &file, replay);
    let (launched, launched_worst) = follow(&device, &file, launch);
    let (_, apart_worst) = follow(&device, &file, apart);
    let backend =
        |device: &Device| device.backend().as_any().downcast_ref::<CudaDevice>().unwrap().clone();
    let arch = backend(&device).arch().to_string();
    let archive = build_archive(&[embed::CUDA, layer::CUDA, head::CUDA], &[&arch]).unwrap();
    let archive = Archive::read(archive.leak()).unwrap();
    let ahead_device = open(&DiskCache::none(), Some(archive)).unwrap();
    let ahead_ms = load_ms(&ahead_device);
    let (ahead, _) = follow(&ahead_device, &file, replay);
    let origins = backend(&ahead_device).origins();
    assert_eq!(origins.n_compiled, 0, "{origins:?}");
    assert!(launched_worst < 1e-3 && apart_worst < 1e-3);
    // However kernels come to the GPU and into the stream, no bit changes.
    assert!(replayed == launched && replayed == ahead);
    let (_, half_worst) = follow(&device, &file, Choices { cache: CacheType::F16, ..replay });
    assert!(half_worst < 0.05, "{half_worst}");
    // A recorded step for each number of rows.
    let batch_worst = follow_together(&device, &file, replay, 48);
    assert!(batch_worst < 1e-3, "{batch_worst}");

    // Speed, one token after the other.
    let step_us = |choices: Choices| {
        let mut model = model::load(&device, &file, choices, &mut |_, _| {}).unwrap();
        let mut step = |id: u32| likeliest(&model.step(&[id]).unwrap());
        let mut id = (0..16).fold(1, |id, _| step(id));
        let start = Instant::now();
        for _ in 0..256 {
            id = step(id);
        }
        let us = start.elapsed().as_secs_f64() * 1e6 / 256.0;
        (us, model.n_launches(1))
    };
    let (replayed_us, n_launches) = step_us(replay);
    let (launched_us, _) = step_us(launch);
    let (apart_us, _) = step_us(apart);
    assert_eq!(n_launches, Some(1 + 30 * 5 + 1));
    let record = serde_json::json!({
        "what": "SmolLM2-135M-Instruct Q4_1, f32 caches, batch 1: four reference sequences of 48 \
                 tokens, token for token; times of a step with its logits read back, at positions \
                 16 to 272, host included",
        "gpu": device.name(),
        "arch": arch,
        "nvrtc": fuseline::cuda::nvrtc::Nvrtc::get().unwrap().version(),
        "driver_cuda": fuseline::cuda::driver::version().unwrap(),
        "largest_logit_distance_from_reference": {
            "replayed": replayed_worst, "launched": launched_worst, "not_fused": apart_worst,
            "f16_cache": half_worst, "batches_of_4_to_1_replayed": batch_worst,
        },
        "same_bits": ["launched", "replayed", "built ahead"],
        "nodes_of_a_recorded_step": n_launches,
        "step_us": { "replayed": replayed_us, "launched": launched_us, "not_fused": apart_us },
        "tokens_per_s": { "replayed": 1e6 / replayed_us, "launched": 1e6 / launched_us },
        "load_ms": {
            "compiling": cold_ms, "from_the_disk_cache": cached_ms, "built_ahead": ahead_ms,
        },
    });
    println!("{record:#}");
    if let Some(path) = std::env::var_os("FUSELINE_RECORD") {
        std::fs::write(path, format!("{record:#}\n")).unwrap();
    }
}

#[test]
fn a_layer_is_five_kernels_and_an_operation_one_without_fusion() {
    use blocks::smollm2::cache_f32::layer;
    let reports = layer::EXPLAIN.lines().filter(|line| line.starts_with("layer  rows"));
    let n_kernels: Vec<&str> =
        reports.filter_map(|line| line.split("kernels ").nth(1)?.split(' ').next()).collect();
    assert_eq!(n_kernels, ["5", "5", "5", "5", "5"]);
    let options = LoadOptions::default().fusion(false);
    let apart = layer::load_with(&Device::cpu(), options).unwrap();
    // 2 norms, 7 linears, 2 rotations, append, attend, 2 sums, silu, product.
    assert!(apart.explain().starts_with("layer  rows 1  kernels 17"), "{}", apart.explain());
}

#[test]
fn two_sequences_in_one_batch_are_each_alone() {
    use blocks::smollm2::cache_f32::layer;
    let (file, device) = (file(), Device::cpu());
    let name = |argument: &str| format!("blk.0.{argument}.weight");
    let weights = layer::Weights::fill(&device, &file, name).unwrap();
    let block = layer::load(&device).unwrap();
    let mut arena = block.arena().unwrap();
    let row = |seed: usize| -> Vec<f32> {
        (0..576).map(|i| (((i * 7 + seed * 13) % 101) as f32 / 50.0 - 1.0) * 0.3).collect()
    };
    // Three steps of two sequences together, and of each alone.
    let mut together = block.new_kv().unwrap();
    let mut alone = [block.new_kv().unwrap(), block.new_kv().unwrap()];
    for step in 0..3 {
        let rows = [row(2 * step), row(2 * step + 1)];
        let x = Tensor::from_slice(&device, &rows.concat()).unwrap();
        let pos = Index::decode(&device, &[step, step]).unwrap();
        let both = block.call(&mut arena, &weights, &x, &mut together, &pos).unwrap();
        let both = both.to_vec().unwrap();
        for (index, cache) in alone.iter_mut().enumerate() {
            let x = Tensor::from_slice(&device, &rows[index]).unwrap();
            let pos = Index::prompt(&device, 0, step..step + 1).unwrap();
            let one = block.call(&mut arena, &weights, &x, cache, &pos).unwrap().to_vec().unwrap();
            let pairs = one.iter().zip(&both[index * 576..]);
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "sequence {index}, step {step}: {worst}");
        }
    }
}
