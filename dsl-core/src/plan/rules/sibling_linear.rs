//! Linears that read one operand become one launch: Q, K and V; gate and up. The operand is
//! prepared once, and outputs that are combined later meet in one thread.

use crate::ir::{Graph, Op, ValueId};

/// The name in the log.
pub const NAME: &str = "sibling_linear";

/// Pairs of linears that read the same operand: each with the first of them.
pub fn pairs(graph: &Graph) -> Vec<(ValueId, ValueId)> {
    let linears: Vec<ValueId> = graph.ids().filter(|&id| graph[id].op == Op::Linear).collect();
    linears
        .iter()
        .filter_map(|&b| {
            let same = |a: &&ValueId| **a < b && graph[**a].inputs[0] == graph[b].inputs[0];
            linears.iter().find(same).map(|&a| (a, b))
        })
        .collect()
}
