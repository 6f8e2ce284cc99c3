//! The example's model as generated CUDA on its real weights, executed without a GPU.

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
use fuseline::emulate::{self, Emulator, Options, blank_unread};
use fuseline::prelude::*;
use fuseline::source::Encoding;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Graph, Role, Type};
use fuseline_core::oracle::Datum;
use fuseline_core::plan;
use fuseline_core::random::random_args;
use serde_json::Value;

/// Large blocks; the sanitizer has seen their kernels at smaller dims.
const OPTIONS: Options =
    Options { sanitize: false, optimize: true, debug: false, limit_seconds: 300 };

fn file() -> Gguf {
    let path = std::env::var_os("FUSELINE_MODEL").map(Into::into);
    Gguf::open(fetch::model(path).unwrap()).unwrap()
}

/// Whether there is a C++ compiler. Without one tests are skipped, unless `FUSELINE_REQUIRE_CXX`
/// is set.
fn emulator_is_here() -> bool {
    match Emulator::new(OPTIONS) {
        Ok(_) => true,
        Err(error) => {
            assert!(std::env::var_os("FUSELINE_REQUIRE_CXX").is_none(), "{error}");
            eprintln!("[SKIP] {error}");
            false
        }
    }
}

/// Random arguments of a block, but the weights of layer `n`.
fn layer_args(graph: &Graph, rows: usize, file: &Gguf, layer: usize) -> Vec<Datum> {
    let mut args = random_args(graph, rows, 5);
    for (arg, datum) in graph.args.iter().zip(&mut args) {
        if arg.role != Role::Weight {
            continue;
        }
        let view = file.tensor(&format!("blk.{layer}.{}.weight", arg.name)).unwrap();
        *datum = match (&graph[arg.value].ty, &view.encoding) {
            (Type::Weight { format, n, k }, Encoding::Gguf { name, .. }) => {
                assert_eq!(*name, format.name);
                let built_in = fuseline_core::format::builtin(name).unwrap();
                Datum::Weight(built_in.pack_gguf(view.bytes, n.size, k.size).unwrap())
            }
            (Type::Tensor { .. }, Encoding::Dense(DType::F32)) => {
                Datum::Tensor(DType::F32.decode(view.bytes))
            }
            (ty, encoding) => panic!("{}: {encoding} for {ty:?}", arg.name),
        };
    }
    for datum in &mut args {
        if let Datum::Index { positions, sequences } = datum {
            *positions = (0..rows).map(|row| 40 - 3 * row as i32).collect();
            *sequences = (0..rows as i32).rev().collect();
        }
    }
    blank_unread(graph, &mut args);
    args
}

/// Every kernel of the first layer, alone and in the chain, against the oracle.
#[test]
fn the_first_layer_is_right() {
    if !emulator_is_here() {
        return;
    }
    use blocks::smollm2::{cache_f16, cache_f32};
    let (file, emulator) = (file(), Emulator::new(OPTIONS).unwrap());
    for (ir, cuda) in [
        (cache_f32::layer::IR, cache_f32::layer::CUDA),
        (cache_f16::layer::IR, cache_f16::layer::CUDA),
    ] {
        let graph = Graph::parse(ir).unwrap();
        // The very text that the macro embedded.
        let library = emulator.compile(&[cuda]).unwrap();
        let mut process = emulator.start().unwrap();
        let number = process.open(&library).unwrap();
        let buckets = graph.batch.as_ref().unwrap().buckets();
        // Full, and with rows to spare.
        for (bucket, rows) in [(1, 1), (2, 1), (4, 4), (4, 3), (8, 6), (16, 12)] {
            assert!(buckets.contains(&bucket));
            let bucket_graph = graph.with_rows(bucket);
            let plan = plan::compile(&bucket_graph, &plan::Options::default()).unwrap();
            let args = layer_args(&bucket_graph, rows, &file, 0);
            let outcome = emulate::run(&mut process, number, &plan, rows, &args);
            let outcome = outcome.unwrap_or_else(|error| panic!("{rows} of {bucket}: {error}"));
            println!("{rows} of {bucket}: largest error {:.1e}", outcome.worst_error);
            // Each kernel alone, and all in a chain.
            assert_eq!(outcome.n_launches, 2 * plan.n_launches());
        }
    }
}

/// The whole model on the emulated device: the reference's tokens.
#[test]
fn the_model_says_what_the_reference_says() {
    if !emulator_is_here() {
        return;
    }
    let reference: Value = serde_json::from_str(include_str!("smollm2_q4_1_greedy.json")).unwrap();
    let file = file();
    let device = emulate::device(OPTIONS).unwrap();
    let choices = model::Choices { cache: CacheType::F32, fusion: true, record: false };
    let mut model = model::load(&device, &file, choices, &mut |_, _| {}).unwrap();
    let sequences = reference["sequences"].as_array().unwrap();
    let n_prompt = |sequence: &&Value| sequence["prompt_ids"].as_array().unwrap().len();
    let sequence = sequences.iter().min_by_key(n_prompt).unwrap();
    let ids = |value: &Value| -> Vec<u32> {
        value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    };
    let mut next = ids(&sequence["prompt_ids"]);
    println!("{} prompt tokens", next.len());
    let steps = sequence["steps"].as_array().unwrap();
    for (step, token) in steps.iter().zip(ids(&sequence["greedy_ids"])).take(2) {
        let start = std::time::Instant::now();
        let logits = model.step(&next).unwrap();
        println!("{:.1} s", start.elapsed().as_secs_f64());
        for (id, logit) in ids(&step["top_ids"]).iter().zip(step["top_logits"].as_array().unwrap())
        {
            let (found, expected) = (f64::from(logits[*id as usize]), logit.as_f64().unwrap());
            assert!((found - expected).abs() < 1e-3, "token {id}: {found}, expected {expected}");
        }
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(logits.iter().position(|&logit| logit == top), Some(token as usize));
        next = vec![token];
    }
}
