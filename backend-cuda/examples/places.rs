//! Times the seed case (a product of one row, K = 9216, N = 2560, int4 weights, behind a gated
//! activation) with its operand at every place, and by the field's decisions, product buffer
//! included. One line of JSON for each plan.
//!
//! ```text
//! cargo run --release -p fuseline-cuda --example places
//! ```
//!
//! Needs a GPU. Each time is of one call in a recorded chain of 48 calls over 24 copies of the
//! weight (more than the L2 cache holds), the median of batches of replays; the plans take turns in
//! three rounds.

use fuseline_core::backend::{Backend, Binding, BufferRef, Call, Program, Recorded};
use fuseline_core::cases::relative_error;
use fuseline_core::field::{self, Rules};
use fuseline_core::format::WeightLayout;
use fuseline_core::ir::{Graph, Type};
use fuseline_core::oracle::{self, Datum};
use fuseline_core::plan::{OperandPlace, Options, Plan, compile, compile_at};
use fuseline_core::random::random_args;
use fuseline_cuda::runtime::{CudaDevice, Options as DeviceOptions};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const K: usize = 9216;
const N: usize = 2560;
const N_COPIES: usize = 24;
const N_CALLS: usize = 48;
const N_REPLAYS: usize = 10;
const N_ROUNDS: usize = 3;
const N_BATCHES: usize = 5;

/// Gated activations, by name.
const ACTIVATIONS: [(&str, &str); 4] = [
    ("none", "%3 = mul %0 %1 : f32[1, K:9216]\n"),
    ("silu", "%3 = silu %0 : f32[1, K:9216]\n%4 = mul %3 %1 : f32[1, K:9216]\n"),
    ("gelu_tanh", "%3 = gelu_tanh %0 : f32[1, K:9216]\n%4 = mul %3 %1 : f32[1, K:9216]\n"),
    (
        "clamped_swiglu",
        "%3 = const value=7.0 : f32[]
%4 = const value=-7.0 : f32[]
%5 = const value=1.0 : f32[]
%6 = min %0 %3 : f32[1, K:9216]
%7 = silu %6 : f32[1, K:9216]
%8 = clamp %1 %4 %3 : f32[1, K:9216]
%9 = add %8 %5 : f32[1, K:9216]
%10 = mul %7 %9 : f32[1, K:9216]
",
    ),
];

fn block(chain: &str, group: usize) -> Result<Graph, Box<dyn Error>> {
    let y = 3 + chain.lines().count();
    let text = format!(
        "block seed
format Int4 bits=4 code=unsigned(8) group={group} scale=bf16
arg %0 g input bf16[1, K:{K}]
arg %1 u input bf16[1, K:{K}]
arg %2 w weight Int4{{N:{N}, K:{K}}}
{chain}%{y} = linear %{x} %2 : f32[1, N:{N}]
return %{y}
",
        x = y - 1
    );
    Graph::parse(&text).map_err(|error| format!("{text}{error}").into())
}

/// A norm of a few rows before a product: shared or scratch, which is faster?
fn norm_block(rows: usize, k: usize, n: usize) -> Result<Graph, Box<dyn Error>> {
    let text = format!(
        "block norm
format Int4 bits=4 code=unsigned(8) group=32 scale=bf16
arg %0 g input bf16[R:{rows}, K:{k}]
arg %1 u weight bf16[K:{k}]
arg %2 w weight Int4{{N:{n}, K:{k}}}
%3 = rms_norm %0 %1 eps=0.00001 : f32[R:{rows}, K:{k}]
%4 = linear %3 %2 : f32[R:{rows}, N:{n}]
return %4
"
    );
    Graph::parse(&text).map_err(|error| format!("{text}{error}").into())
}

/// A plan, recorded.
struct Entry {
    line: serde_json::Value,
    graph: Box<dyn Recorded>,
    us: Vec<f64>,
}

fn buffer(device: &CudaDevice, bytes: &[u8]) -> Result<BufferRef, Box<dyn Error>> {
    let buffer = device.alloc(bytes.len())?;
    device.write(&buffer, 0, bytes)?;
    Ok(buffer)
}

fn record(
    device: &CudaDevice,
    plan: Plan,
    args: &[Datum],
    expected: &[f64],
    mut line: serde_json::Value,
) -> Result<Entry, Box<dyn Error>> {
    let dtype = fuseline_core::dtype::DType::BF16;
    let [Datum::Tensor(g), Datum::Tensor(u), Datum::Weight(w)] = args else {
        return Err("the block has other arguments".into());
    };
    let (g, u) = (buffer(device, &dtype.encode(g))?, buffer(device, &dtype.encode(u))?);
    let Type::Weight { format, .. } = &plan.graph()[plan.graph().args[2].value].ty else {
        return Err("the block has other arguments".into());
    };
    let [codes, scales, offsets] = &w.clone().arranged(format, WeightLayout::Tiles);
    let copies: Result<Vec<[BufferRef; 3]>, Box<dyn Error>> = (0..N_COPIES)
        .map(|_| {
            let plane = |bytes: &[u8]| buffer(device, bytes);
            Ok([plane(codes)?, plane(scales)?, plane(offsets)?])
        })
        .collect();
    let copies = copies?;
    let out_bytes = 4 * expected.len();
    let (scratch, out) = (device.alloc(plan.scratch_bytes())?, device.alloc(out_bytes)?);
    line["kernels"] = plan.n_launches().into();
    line["scratch_bytes"] = plan.scratch_bytes().into();
    line["estimate_us"] =
        (plan.kernels().iter().map(|kernel| kernel.cost.ns).sum::<f64>() / 1e3).into();
    let loaded = device.load(&Program { plan: Arc::new(plan), cuda: "" })?;
    let run = |[codes, scales, offsets]: &[BufferRef; 3]| {
        let weight = Binding::Weight { codes, scales, offsets };
        let args = [Binding::Tensor(&g), Binding::Tensor(&u), weight];
        loaded.run(&Call { rows: 1, args: &args, outputs: &[&out], scratch: &scratch })
    };
    run(&copies[0])?;
    let mut bytes = vec![0; out_bytes];
    device.read(&out, 0, &mut bytes)?;
    let found = fuseline_core::dtype::DType::F32.decode(&bytes);
    let error = relative_error(expected, &found);
    if error > 1e-4 {
        return Err(format!("{line}: error {error:e}").into());
    }
    line["largest_error"] = error.into();
    device.begin_recording()?;
    let called = (0..N_CALLS).try_for_each(|call| run(&copies[call % N_COPIES]));
    let graph = device.end_recording()?;
    called?;
    Ok(Entry { line, graph, us: Vec::new() })
}

/// Microseconds of a call: the median of batches of replays.
fn time_us(device: &CudaDevice, graph: &dyn Recorded) -> Result<f64, Box<dyn Error>> {
    graph.replay()?;
    device.synchronize()?;
    let mut us = Vec::new();
    for _ in 0..N_BATCHES {
        let start = Instant::now();
        for _ in 0..N_REPLAYS {
            graph.replay()?;
        }
        device.synchronize()?;
        us.push(start.elapsed().as_secs_f64() * 1e6 / (N_REPLAYS * N_CALLS) as f64);
    }
    us.sort_by(f64::total_cmp);
    Ok(us[us.len() / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = CudaDevice::new(DeviceOptions::default())?;
    let mut entries = Vec::new();
    for group in [128, 32] {
        for (activation, chain) in ACTIVATIONS {
            let graph = block(chain, group)?;
            let args = random_args(&graph, 1, 1);
            let expected = oracle::run(&graph, 1, &mut args.clone())?.swap_remove(0);
            let mut plans = vec![
                ("planner".to_string(), compile(&graph, &Options::default())?),
                ("field".to_string(), field::plan(&graph, &Rules::default())?),
            ];
            for place in OperandPlace::ALL {
                plans.push((place.to_string(), compile_at(&graph, place)?));
            }
            for (place, plan) in plans {
                let line = serde_json::json!({
                    "activation": activation, "group": group, "place": place,
                });
                entries.push(record(&device, plan, &args, &expected, line)?);
            }
        }
    }
    for (rows, k, n) in
        [(1, 576, 1536), (4, 576, 1536), (16, 576, 1536), (1, 4096, 4096), (8, 4096, 4096)]
    {
        let graph = norm_block(rows, k, n)?;
        let args = random_args(&graph, 1, 1);
        let expected = oracle::run(&graph, 1, &mut args.clone())?.swap_remove(0);
        for place in [OperandPlace::Shared, OperandPlace::Scratch] {
            let line = serde_json::json!({
                "activation": "rms_norm", "rows": rows, "k": k, "n": n, "group": 32,
                "place": place.to_string(),
            });
            let plan = compile_at(&graph, place)?;
            entries.push(record(&device, plan, &args, &expected, line)?);
        }
    }
    for round in 0..N_ROUNDS {
        // There and back, so that no plan always follows the same one.
        let n = entries.len();
        for at in 0..n {
            let entry = &mut entries[if round % 2 == 0 { at } else { n - 1 - at }];
            let us = time_us(&device, &*entry.graph)?;
            entry.us.push(us);
        }
    }
    for entry in &mut entries {
        let rounds: Vec<f64> = entry.us.iter().map(|us| (us * 1e3).round() / 1e3).collect();
        entry.us.sort_by(f64::total_cmp);
        entry.line["us"] = ((entry.us[N_ROUNDS / 2] * 1e3).round() / 1e3).into();
        entry.line["rounds_us"] = rounds.into();
        println!("{}", entry.line);
    }
    Ok(())
}
