//! One call of a plan in the manifest: what each parameter holds, and what each kernel must leave.

use super::store::Store;
use fuseline_core::format::WeightLayout;
use fuseline_core::ir::{Type, ValueId};
use fuseline_core::oracle::{self, Datum};
use fuseline_core::plan::{Kernel, Multiply, Plan, Template};
use fuseline_cuda::emit::{Param, params as kernel_params};
use fuseline_cuda::emulate::{self, Half, Process, appends, is_narrow, limit, slack};
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
        Param::Keys(id) => {
            json!(["keys", id.index(), appends(plan.graph(), kernel, *id).is_some()])
        }
        Param::Values(id) => {
            json!(["values", id.index(), appends(plan.graph(), kernel, *id).is_some()])
        }
        Param::Positions(id) => json!(["positions", id.index()]),
        Param::Sequences(id) => json!(["sequences", id.index()]),
        Param::Result(id) => json!(["result", id.index()]),
        Param::Rows => json!(["rows"]),
    };
    kernel_params(plan, kernel).iter().map(entry).collect()
}

/// The manifest's entry of a call. Under `emulated` is what each kernel stores when it is run
/// without a GPU: the same bits are expected of one. Kernels on matrix instructions are not there.
pub fn entry(
    plan: &Plan,
    rows: usize,
    args: &[Datum],
    (process, library): (&mut Process, usize),
    store: &mut Store,
) -> Result<Value, Box<dyn Error>> {
    let graph = plan.graph();
    let mut after = args.to_vec();
    let all = oracle::run_all(graph, rows, &mut after)?;
    let ids: Vec<ValueId> = graph.ids().collect();
    let slack = slack(graph, rows, args, &all, is_narrow(graph, &ids))?;
    let mut values = Map::new();
    let mut put = |id: ValueId, value: Value| values.insert(id.index().to_string(), value);
    for kernel in plan.kernels() {
        for &id in kernel.loads.iter().chain(&kernel.stores) {
            if let (Type::Tensor { dtype, .. }, Some(elements)) = (&graph[id].ty, &all[id.index()])
            {
                let buffer = store.add(&dtype.encode(elements))?;
                let elements = elements.iter().filter(|x| x.is_finite());
                let largest = elements.fold(0.0, |max: f64, x| max.max(x.abs()));
                // The script's errors are relative to this.
                let scale = largest + slack[id.index()] / limit(graph, &[id]);
                put(id, json!({ "dtype": dtype.name(), "buffer": buffer, "scale": scale }));
            }
        }
    }
    for ((arg, before), after) in graph.args.iter().zip(args).zip(&after) {
        let dtype = graph[arg.value].ty.dtype();
        let entry = match (before, after) {
            (Datum::Scalar(number), _) => json!({ "bits": number.to_bits() }),
            (Datum::Weight(packed), _) => {
                let planes = match &graph[arg.value].ty {
                    Type::Weight { format, .. } => {
                        packed.clone().arranged(format, WeightLayout::Tiles)
                    }
                    _ => Default::default(),
                };
                let [codes, scales, offsets] = &planes;
                json!({
                    "codes": store.add(codes)?,
                    "scales": store.add(scales)?,
                    "offsets": store.add(offsets)?,
                })
            }
            (Datum::Index { positions, sequences }, _) => json!({
                "positions": store.add(&integers(positions))?,
                "sequences": store.add(&integers(sequences))?,
            }),
            (
                Datum::Cache { keys, values },
                Datum::Cache { keys: keys_after, values: values_after },
            ) => json!({
                "dtype": dtype.name(),
                "keys": [store.add(&dtype.encode(keys))?, store.add(&dtype.encode(keys_after))?],
                "values": [
                    store.add(&dtype.encode(values))?,
                    store.add(&dtype.encode(values_after))?,
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
    let mut stored = Vec::new();
    emulate::run_observed(process, library, plan, rows, args, &mut |it| {
        // Of sums inside matrix instructions a GPU keeps fewer bits.
        if it.alone && !on_matrix(plan, it.kernel) {
            let value = match (it.half, graph[it.value].inputs.first()) {
                (None, _) => it.value.to_string(),
                (Some(Half::Keys), Some(cache)) => format!("{cache} keys"),
                (Some(_), cache) => format!("{} values", cache.unwrap_or(&it.value)),
            };
            stored.push((it.kernel.to_string(), value, it.bytes.to_vec()));
        }
    })?;
    let mut emulated: Map<String, Value> = Map::new();
    for (kernel, value, bytes) in stored {
        let buffer = store.add(&bytes)?;
        let of_kernel = emulated.entry(kernel).or_insert_with(|| json!({}));
        of_kernel[value] = buffer.into();
    }
    Ok(json!({ "rows": rows, "values": values, "outputs": outputs, "emulated": emulated }))
}

/// Whether a kernel runs on matrix instructions.
fn on_matrix(plan: &Plan, kernel: &str) -> bool {
    plan.kernels().iter().filter(|own| own.name == kernel).any(|own| {
        matches!(&own.structure.template, Template::Linear(linear) if linear.multiply != Multiply::Lanes)
    })
}

fn integers(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}
