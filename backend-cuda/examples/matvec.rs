//! Times products of few rows with weights, over shapes, formats and pre-operations. One line of
//! JSON for each.
//!
//! ```text
//! cargo run --release -p fuseline-cuda --example matvec [FILTER…]
//! ```
//!
//! Needs a GPU. Each time is of one call in a recorded chain over copies of the weight of 256 MB or
//! more together (more than four times what the L2 cache holds), the median of batches of replays;
//! the cases take turns in three rounds. `FILTER` is a part of a case's name. What a case computes
//! is compared with sums in `f64` for a sample of its outputs.

use fuseline_core::backend::{Backend, Binding, BufferRef, Call, Program, Recorded};
use fuseline_core::dtype::DType;
use fuseline_core::format::{Packed, WeightFormat, WeightLayout};
use fuseline_core::ir::{Graph, Type};
use fuseline_core::oracle::{self, Datum};
use fuseline_core::plan::{OperandPlace, Options, Plan, compile, compile_at};
use fuseline_core::random::Rng;
use fuseline_cuda::runtime::{CudaDevice, Options as DeviceOptions};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of a weight's copies together.
const COLD_BYTES: usize = 256 << 20;
const MIN_CALLS: usize = 24;
const N_REPLAYS: usize = 8;
const N_ROUNDS: usize = 3;
const N_BATCHES: usize = 3;
/// Outputs of a row that are compared.
const N_SAMPLED: usize = 97;

/// Shapes of Llama-3.1-8B's products and of the seed case: N, K.
const SHAPES: [(usize, usize); 6] =
    [(4096, 4096), (2560, 9216), (6144, 4096), (4096, 14336), (28672, 4096), (128_256, 4096)];

/// A block that is timed.
struct Case {
    name: String,
    text: String,
    place: Option<OperandPlace>,
    shape: (usize, usize, usize),
}

/// What is before the product, by name: lines of text from value `%3` on.
const CHAINS: [(&str, &str); 5] = [
    ("plain", ""),
    ("product", "%3 = mul %0 %1 : f32X\n"),
    ("silu", "%3 = silu %0 : f32X\n%4 = mul %3 %1 : f32X\n"),
    ("gelu_tanh", "%3 = gelu_tanh %0 : f32X\n%4 = mul %3 %1 : f32X\n"),
    (
        "clamped_swiglu",
        "%3 = const value=7.0 : f32[]
%4 = const value=-7.0 : f32[]
%5 = const value=1.0 : f32[]
%6 = min %0 %3 : f32X
%7 = silu %6 : f32X
%8 = clamp %1 %4 %3 : f32X
%9 = add %8 %5 : f32X
%10 = mul %7 %9 : f32X
",
    ),
];

/// A block: `rounded` operands are rounded to `bf16`.
fn case(
    (rows, n, k): (usize, usize, usize),
    format: &str,
    chain: &str,
    rounded: bool,
    place: Option<OperandPlace>,
) -> Case {
    let lines = CHAINS.iter().find(|(name, _)| *name == chain).map_or("", |(_, lines)| lines);
    let mut lines = lines.replace('X', &format!("[R:{rows}, K:{k}]"));
    let mut x = match lines.lines().count() {
        0 => 0,
        count => 2 + count,
    };
    let dtype = if rounded { "bf16" } else { "f32" };
    let argument = if x == 0 { dtype } else { "bf16" };
    if x > 0 && rounded {
        lines += &format!("%{} = to %{x} dtype=bf16 : bf16[R:{rows}, K:{k}]\n", x + 1);
        x += 1;
    }
    let y = x.max(2) + 1;
    let declared = match format.strip_prefix("int4g") {
        Some(group) => format!("format Int4 bits=4 code=unsigned(8) group={group} scale=bf16\n"),
        None => String::new(),
    };
    let name = if declared.is_empty() { format } else { "Int4" };
    let text = format!(
        "block matvec
{declared}arg %0 g input {argument}[R:{rows}, K:{k}]
arg %1 u input bf16[R:{rows}, K:{k}]
arg %2 w weight {name}{{N:{n}, K:{k}}}
{lines}%{y} = linear %{x} %2 : f32[R:{rows}, N:{n}]
return %{y}
"
    );
    let at = place.map_or(String::new(), |place| format!(" {place}"));
    let name = format!("{format} {n}x{k} M{rows} {chain} {dtype}{at}");
    Case { name, text, place, shape: (rows, n, k) }
}

fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (n, k) in SHAPES {
        for rows in [1, 8, 16, 64] {
            list.push(case((rows, n, k), "int4g128", "plain", true, None));
        }
        for format in ["int4g128", "int4g32", "Q4_1", "Q8_0"] {
            list.push(case((1, n, k), format, "plain", false, None));
        }
        list.push(case((1, n, k), "bf16", "plain", true, None));
    }
    for group in ["int4g128", "int4g32"] {
        for chain in ["product", "silu", "gelu_tanh", "clamped_swiglu"] {
            let shape = (1, 2560, 9216);
            list.push(case(shape, group, chain, true, None));
            for place in [OperandPlace::Shared, OperandPlace::Scratch] {
                list.push(case(shape, group, chain, true, Some(place)));
            }
        }
    }
    list
}

/// A plan, recorded.
struct Entry {
    line: serde_json::Value,
    graph: Box<dyn Recorded>,
    n_calls: usize,
    us: Vec<f64>,
}

fn buffer(device: &CudaDevice, bytes: &[u8]) -> Result<BufferRef> {
    let buffer = device.alloc(bytes.len())?;
    device.write(&buffer, 0, bytes)?;
    Ok(buffer)
}

/// A weight of random codes and scales.
fn random_weight(format: &WeightFormat, n: usize, k: usize, rng: &mut Rng) -> Packed {
    let row_bytes = format.code_row_bytes(k);
    let mut codes = vec![0; n * row_bytes];
    let dtype = match format.code {
        fuseline_core::format::CodeMap::Float(dtype) => Some(dtype),
        _ => None,
    };
    match dtype {
        Some(dtype) => {
            let some: Vec<f64> = (0..4096).map(|_| rng.signed()).collect();
            let some = dtype.encode(&some);
            for (at, chunk) in codes.chunks_mut(some.len()).enumerate() {
                let from = (at * 5003) % (some.len() / 8) * 4;
                chunk.copy_from_slice(&some.repeat(2)[from..][..chunk.len()]);
            }
        }
        None => codes.chunks_mut(8).for_each(|bytes| {
            let random = rng.bits().to_le_bytes();
            bytes.copy_from_slice(&random[..bytes.len()]);
        }),
    }
    let n_groups = n * format.n_groups(k);
    let numbers = |rng: &mut Rng, from: f64, by: f64| -> Vec<f64> {
        (0..n_groups).map(|_| from + by * rng.signed()).collect()
    };
    let scales = numbers(rng, 0.02, 0.01);
    let offsets = numbers(rng, 0.0, 0.1);
    let group = format.group;
    Packed {
        n,
        k,
        codes,
        scales: group.map_or(Vec::new(), |group| group.scale.encode(&scales)),
        offsets: group
            .and_then(|group| group.offset)
            .map_or(Vec::new(), |dtype| dtype.encode(&offsets)),
    }
}

/// What the operand of the product is: the block without its last operation, by the oracle.
fn operand(graph: &Graph, rows: usize, args: &[Datum]) -> Result<Vec<f64>> {
    let last = graph.outputs[0];
    let x = graph[last].inputs[0];
    let mut before = graph.clone();
    before.values.truncate(last.index());
    before.outputs = vec![x];
    if x.index() < before.args.len() {
        return match &args[x.index()] {
            Datum::Tensor(x) => Ok(x.clone()),
            _ => Err("the operand is no tensor".into()),
        };
    }
    Ok(oracle::run(&before, rows, &mut args.to_vec())?.swap_remove(0))
}

fn record(device: &CudaDevice, case: &Case) -> Result<Entry> {
    let graph = Graph::parse(&case.text).map_err(|error| format!("{}{error}", case.text))?;
    let (rows, n, k) = case.shape;
    let mut rng = Rng::new(7);
    let Type::Weight { format, .. } = &graph[graph.args[2].value].ty else {
        return Err("the block has other arguments".into());
    };
    let packed = random_weight(format, n, k, &mut rng);
    let mut tensors = Vec::new();
    for arg in &graph.args[..2] {
        let dtype = graph[arg.value].ty.dtype();
        let elements: Vec<f64> = (0..rows * k).map(|_| dtype.round(rng.signed() * 2.0)).collect();
        tensors.push((dtype, elements));
    }
    let args: Vec<Datum> = tensors
        .iter()
        .map(|(_, elements)| Datum::Tensor(elements.clone()))
        .chain([Datum::Weight(packed.clone())])
        .collect();
    let x = operand(&graph, rows, &args)?;

    let plan_rounds = case.name.contains("bf16") && !case.name.contains("plain");
    let plan: Plan = match case.place {
        None => compile(&graph, &Options::default())?,
        Some(place) => compile_at(&graph, place)?,
    };
    let planes = packed.clone().arranged(format, WeightLayout::Tiles);
    let bytes: usize = planes.iter().map(Vec::len).sum();
    let minimal_bytes = format.packed_bytes(n, k);
    let n_copies = COLD_BYTES.div_ceil(bytes).max(4);
    let n_calls = n_copies.max(MIN_CALLS);
    let [g, u] = [&tensors[0], &tensors[1]].map(|(dtype, x)| buffer(device, &dtype.encode(x)));
    let (g, u) = (g?, u?);
    let copies: Result<Vec<[BufferRef; 3]>> = (0..n_copies)
        .map(|_| {
            let [codes, scales, offsets] = &planes;
            Ok([buffer(device, codes)?, buffer(device, scales)?, buffer(device, offsets)?])
        })
        .collect();
    let copies = copies?;
    let out_bytes = 4 * rows * n;
    let (scratch, out) = (device.alloc(plan.scratch_bytes())?, device.alloc(out_bytes)?);
    let mut line = serde_json::json!({
        "case": case.name, "kernels": plan.n_launches(), "bytes": minimal_bytes,
        "estimate_us": plan.kernels().iter().map(|kernel| kernel.cost.ns).sum::<f64>() / 1e3,
    });
    let loaded = device.load(&Program { plan: Arc::new(plan), cuda: "" })?;
    let run = |[codes, scales, offsets]: &[BufferRef; 3]| {
        let weight = Binding::Weight { codes, scales, offsets };
        let args = [Binding::Tensor(&g), Binding::Tensor(&u), weight];
        loaded.run(&Call { rows, args: &args, outputs: &[&out], scratch: &scratch })
    };
    // Poisoned, so that what is not written is seen.
    device.write(&out, 0, &vec![0xff; out_bytes])?;
    run(&copies[0])?;
    let mut found = vec![0; out_bytes];
    device.read(&out, 0, &mut found)?;
    let found = DType::F32.decode(&found);
    if found.iter().any(|x| x.is_nan()) {
        return Err(format!("{}: not all is written", case.name).into());
    }
    let (mut difference, mut scale) = (0.0f64, 0.0f64);
    for row in 0..rows {
        for sample in 0..N_SAMPLED {
            let output = (sample * 7919 + row) % n;
            let sum: f64 = (0..k).map(|i| x[row * k + i] * format.decode(&packed, output, i)).sum();
            difference = difference.max((sum - found[row * n + output]).abs());
            scale = scale.max(sum.abs());
        }
    }
    let error = difference / scale;
    // An element on the boundary between two of bf16 may be rounded the other way.
    let allowed = if plan_rounds { 2e-4 } else { 2e-5 };
    if error > allowed {
        return Err(format!("{}: error {error:e}", case.name).into());
    }
    line["largest_error"] = error.into();
    device.begin_recording()?;
    let called = (0..n_calls).try_for_each(|call| run(&copies[call % n_copies]));
    let graph = device.end_recording()?;
    called?;
    Ok(Entry { line, graph, n_calls, us: Vec::new() })
}

/// Microseconds of a call: the median of batches of replays.
fn time_us(device: &CudaDevice, entry: &Entry) -> Result<f64> {
    entry.graph.replay()?;
    device.synchronize()?;
    let mut us = Vec::new();
    for _ in 0..N_BATCHES {
        let start = Instant::now();
        for _ in 0..N_REPLAYS {
            entry.graph.replay()?;
        }
        device.synchronize()?;
        us.push(start.elapsed().as_secs_f64() * 1e6 / (N_REPLAYS * entry.n_calls) as f64);
    }
    us.sort_by(f64::total_cmp);
    Ok(us[us.len() / 2])
}

fn main() -> Result<()> {
    let filters: Vec<String> = std::env::args().skip(1).collect();
    let device = CudaDevice::new(DeviceOptions::default())?;
    let mut entries = Vec::new();
    for case in cases() {
        let wanted = filters.iter().any(|filter| case.name.contains(filter.as_str()));
        if !filters.is_empty() && !wanted {
            continue;
        }
        match record(&device, &case) {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                println!("{}", serde_json::json!({"case": case.name, "failed": error.to_string()}))
            }
        }
    }
    for round in 0..N_ROUNDS {
        // There and back, so that no case always follows the same one.
        let n = entries.len();
        for at in 0..n {
            let entry = &mut entries[if round % 2 == 0 { at } else { n - 1 - at }];
            let us = time_us(&device, entry)?;
            entry.us.push(us);
        }
    }
    for entry in &mut entries {
        entry.us.sort_by(f64::total_cmp);
        let us = entry.us[N_ROUNDS / 2];
        entry.line["us"] = ((us * 1e3).round() / 1e3).into();
        let gb_per_s = entry.line["bytes"].as_f64().unwrap_or(0.0) / us / 1e3;
        entry.line["gb_per_s"] = gb_per_s.round().into();
        println!("{}", entry.line);
    }
    Ok(())
}
