//! Calls whose bits are the same on a GPU and under emulation: every golden plan, every reported
//! case, and the sweep of odd shapes, less those with sums inside matrix instructions, of which a
//! GPU keeps fewer bits. Those are compared with the oracle, within its limit.

use crate::device::Loaded;
use crate::{sources, sweep};
use fuseline_core::cases::cases;
use fuseline_core::ir::Graph;
use fuseline_core::oracle::Datum;
use fuseline_core::plan::{Multiply, Options, Template, compile};
use fuseline_core::random::random_args;

pub struct Call {
    pub name: String,
    pub graph: Graph,
    pub fusion: bool,
    pub rows: usize,
    pub args: Vec<Datum>,
}

pub fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    let mut add = |name: &str, graph: &Graph, rows: usize, args: &[Datum]| {
        for fusion in [true, false] {
            let name = format!("{name}, {rows} rows{}", if fusion { "" } else { ", unfused" });
            calls.push(Call { name, graph: graph.clone(), fusion, rows, args: args.to_vec() });
        }
    };
    for (name, graph) in sources::graphs() {
        for rows in [graph.rows(), 1] {
            let graph = if graph.batch.is_some() { graph.with_rows(rows) } else { graph.clone() };
            add(&name, &graph, graph.rows(), &random_args(&graph, graph.rows(), 1));
        }
    }
    for case in cases().into_iter().filter(|case| case.rows > 0) {
        add(&case.name, &case.graph, case.rows, &case.args);
    }
    for (name, graph, rows, args) in sweep::blocks() {
        add(&name, &graph, rows, &args);
    }
    // Blocks without a batch come twice, and one operation is its own fusion.
    let mut seen = std::collections::BTreeSet::new();
    calls.retain(|call| {
        let alone = call.fusion || call.graph.values.len() > call.graph.args.len() + 1;
        alone && !has_matrix_sums(call) && seen.insert(call.name.clone())
    });
    calls
}

/// Whether some kernel of a call runs on matrix instructions.
fn has_matrix_sums(call: &Call) -> bool {
    let Ok(plan) = compile(&call.graph, &Options { fusion: call.fusion }) else { return false };
    plan.kernels().iter().any(|kernel| {
        matches!(&kernel.structure.template, Template::Linear(linear) if linear.multiply != Multiply::Lanes)
    })
}

/// A number that depends on every bit of the results and of the caches after a call; a NaN is a NaN.
pub fn digest(loaded: &Loaded, call: &Call) -> Result<u64, String> {
    let mut args = call.args.clone();
    let results = loaded.run(call.rows, &mut args).map_err(|error| error.to_string())?;
    let caches = args.into_iter().flat_map(|datum| match datum {
        Datum::Cache { keys, values } => vec![keys, values],
        _ => Vec::new(),
    });
    // Fowler, Noll and Vo's FNV-1a, on 64 bits.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let numbers = results.into_iter().chain(caches).flatten();
    // Which of the many NaNs an operation gives is the machine's choice.
    let bits = |number: f64| if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
    let bytes = numbers.flat_map(|number| bits(number).to_le_bytes());
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, mix))
}
