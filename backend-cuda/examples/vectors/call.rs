//! One call of a plan in the manifest: what each parameter holds, and what each kernel must leave.

use super::store::Store;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Graph, Op, Reduction, Type, ValueId};
use fuseline_core::oracle::{self, Datum};
use fuseline_core::plan::{Kernel, Plan};
use fuseline_cuda::emit::{Param, params as kernel_params};
use serde_json::{Map, Value, json};
use std::error::Error;

/// The parameters of a kernel: kind and value, in order.
pub fn params(plan: &Plan, kernel: &Kernel) -> Vec<Value> {
    let entry = |param: &Param| match param {
        Param::Elements(id) => json!(["elements", id.index()]),
        Param::Scalar(id) => json!(["scalar", id.index()]),
        Param::Codes(id) => json!(["codes", id.index()]),
        Param::Scales(id) => json!(["scales", id.index()]),
        Param::Offsets(id) => json!(["offsets", id.index()]),
        Param::Keys(id) => json!(["keys", id.index(), appends(plan.graph(), kernel, *id)]),
        Param::Values(id) => json!(["values", id.index(), appends(plan.graph(), kernel, *id)]),
        Param::Positions(id) => json!(["positions", id.index()]),
        Param::Sequences(id) => json!(["sequences", id.index()]),
        Param::Result(id) => json!(["result", id.index()]),
        Param::Rows => json!(["rows"]),
    };
    kernel_params(plan, kernel).iter().map(entry).collect()
}

/// Whether a kernel appends to a cache.
fn appends(graph: &Graph, kernel: &Kernel, cache: ValueId) -> bool {
    let to_it = |id: &ValueId| graph[*id].op == Op::Append && graph[*id].inputs[0] == cache;
    kernel.stores.iter().any(to_it)
}

/// The largest error, relative to the largest element, of `f32` results of these operations. A
/// sum that differs in its last bit may be rounded to a narrower type the other way.
pub fn limit(graph: &Graph, members: &[ValueId]) -> f64 {
    let of_type = |dtype| match dtype {
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        DType::F32 | DType::I32 => 2e-5,
    };
    let narrow = members.iter().map(|&id| match graph[id].op {
        Op::Attend { operand, .. } => of_type(operand),
        Op::Append => of_type(graph[id].ty.dtype()),
        Op::Cast(dtype) => of_type(dtype),
        _ => of_type(DType::F32),
    });
    narrow.fold(of_type(DType::F32), f64::max)
}

/// The manifest's entry of a call.
pub fn entry(
    plan: &Plan,
    rows: usize,
    args: &[Datum],
    store: &mut Store,
) -> Result<Value, Box<dyn Error>> {
    let graph = plan.graph();
    let mut after = args.to_vec();
    let all = oracle::run_all(graph, rows, &mut after)?;
    let mut values = Map::new();
    let mut put = |id: ValueId, value: Value| values.insert(id.index().to_string(), value);
    for kernel in plan.kernels() {
        for &id in kernel.loads.iter().chain(&kernel.stores) {
            if let (Type::Tensor { dtype, .. }, Some(elements)) = (&graph[id].ty, &all[id.index()])
            {
                let buffer = store.add(&encode(*dtype, elements))?;
                let scale = sum_scale(graph, id, rows, &all);
                put(id, json!({ "dtype": dtype.name(), "buffer": buffer, "scale": scale }));
            }
        }
    }
    for ((arg, before), after) in graph.args.iter().zip(args).zip(&after) {
        let dtype = graph[arg.value].ty.dtype();
        let entry = match (before, after) {
            (Datum::Scalar(number), _) => json!({ "bits": number.to_bits() }),
            (Datum::Weight(packed), _) => json!({
                "codes": store.add(&packed.codes)?,
                "scales": store.add(&packed.scales)?,
                "offsets": store.add(&packed.offsets)?,
            }),
            (Datum::Index { positions, sequences }, _) => json!({
                "positions": store.add(&integers(positions))?,
                "sequences": store.add(&integers(sequences))?,
            }),
            (
                Datum::Cache { keys, values },
                Datum::Cache { keys: keys_after, values: values_after },
            ) => json!({
                "dtype": dtype.name(),
                "keys": [store.add(&encode(dtype, keys))?, store.add(&encode(dtype, keys_after))?],
                "values": [
                    store.add(&encode(dtype, values))?,
                    store.add(&encode(dtype, values_after))?,
                ],
            }),
            // Tensors are there already, if a kernel reads them.
            _ => continue,
        };
        put(arg.value, entry);
    }
    let outputs: Vec<usize> = graph.outputs.iter().map(|id| id.index()).collect();
    let stored = |id: &ValueId| plan.kernels().iter().any(|kernel| kernel.stores.contains(id));
    if let Some(id) = graph.outputs.iter().find(|id| !stored(id)) {
        return Err(format!("no kernel stores the result {id}").into());
    }
    Ok(json!({ "rows": rows, "values": values, "outputs": outputs }))
}

/// What errors of a sum are relative to: the largest sum of magnitudes, since terms may cancel.
/// Other values have the largest element, so 0 here.
fn sum_scale(graph: &Graph, id: ValueId, rows: usize, all: &[Option<Vec<f64>>]) -> f64 {
    let value = &graph[id];
    let Op::Reduce(Reduction::Sum | Reduction::Mean) = value.op else { return 0.0 };
    let x = value.inputs[0];
    let width = match graph[x].ty.shape().last() {
        Some(dim) if dim.batch => rows,
        Some(dim) => dim.size,
        None => 1,
    };
    let count = if value.op == Op::Reduce(Reduction::Mean) { width as f64 } else { 1.0 };
    let sums = all[x.index()].iter().flat_map(|elements| elements.chunks(width.max(1)));
    let sums = sums.map(|row| row.iter().map(|x| x.abs()).sum::<f64>() / count);
    sums.filter(|sum| sum.is_finite()).fold(0.0, f64::max)
}

fn integers(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Elements as they lie in memory.
fn encode(dtype: DType, elements: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(elements.len() * dtype.bytes());
    for &x in elements {
        match dtype {
            DType::F32 => bytes.extend((x as f32).to_le_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f32(x as f32).to_le_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f32(x as f32).to_le_bytes()),
            DType::I32 => bytes.extend((x as i32).to_le_bytes()),
        }
    }
    bytes
}
