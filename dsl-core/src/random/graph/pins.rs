//! Pins on some of the values that can have one.

use super::super::Rng;
use crate::ir::{Graph, Pin, ValueId};

/// Percent of the values that can be inlined and are.
const INLINED: usize = 30;

/// Percent of the others that can be materialized and are.
const MATERIALIZED: usize = 20;

/// Pins values in ways that [`Graph::verify`] takes, and changes nothing else.
pub(super) fn pin_some(graph: &mut Graph, rng: &mut Rng) {
    let stored: Vec<ValueId> = graph.outputs.iter().map(|&output| graph.base(output)).collect();
    for id in graph.ids() {
        let is_legal = |pin: Pin| pin.check(&graph[id].op).is_ok();
        let (inline, materialize) = (is_legal(Pin::Inline), is_legal(Pin::Materialize));
        if inline && !stored.contains(&id) && rng.chance(INLINED) {
            graph.set_pin(id, Some(Pin::Inline));
        } else if materialize && rng.chance(MATERIALIZED) {
            graph.set_pin(id, Some(Pin::Materialize));
        }
    }
}
