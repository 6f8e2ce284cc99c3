//! Linears that read one operand become one launch: Q, K and V; gate and up. The operand is
//! prepared once, and outputs that are combined later meet in one thread.

use crate::ir::{Graph, Op, ValueId};
use std::collections::BTreeMap;

/// The name in the log.
pub const NAME: &str = "sibling_linear";

/// Pairs of linears that read the same operand: each with the first of them.
pub fn pairs(graph: &Graph) -> Vec<(ValueId, ValueId)> {
    let mut first: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut pairs = Vec::new();
    for b in graph.ids().filter(|&id| graph[id].op == Op::Linear) {
        let a = *first.entry(graph[b].inputs[0]).or_insert(b);
        if a != b {
            pairs.push((a, b));
        }
    }
    pairs
}
