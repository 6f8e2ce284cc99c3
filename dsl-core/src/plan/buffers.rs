//! Where values lie between kernels: one scratch memory a block, in which values that are never
//! needed at the same time share bytes.

use super::Place;
use super::context::Context;
use super::draft::Draft;
use crate::ir::{Op, ValueId};
use std::collections::BTreeMap;

/// Every value begins at a multiple of this: whole cache lines, the widest vectors.
const ALIGN_BYTES: usize = 256;

/// A value's bytes, from the kernel that writes it to the last that reads it.
struct Lifetime {
    value: ValueId,
    bytes: usize,
    first: usize,
    last: usize,
}

/// The place of every value, and the bytes of scratch memory.
pub(crate) fn place(cx: &Context<'_>, kernels: &[Draft]) -> (Vec<Place>, usize) {
    let graph = cx.graph;
    let mut places = vec![Place::None; graph.values.len()];
    for arg in &graph.args {
        places[arg.value.index()] = Place::Arg;
    }
    for (index, &output) in graph.outputs.iter().enumerate().rev() {
        places[output.index()] = Place::Output(index);
    }
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    let mut lifetime_of: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (index, kernel) in kernels.iter().enumerate() {
        for load in &kernel.loads {
            if let Some(&at) = lifetime_of.get(load) {
                lifetimes[at].last = index;
            }
        }
        for &value in &kernel.stores {
            if graph[value].op == Op::Append {
                let cache = graph.args.iter().position(|arg| arg.value == graph[value].inputs[0]);
                places[value.index()] = Place::Cache(cache.unwrap_or(0));
            } else if places[value.index()] == Place::None {
                let bytes = graph[value].ty.bytes().next_multiple_of(ALIGN_BYTES);
                lifetime_of.insert(value, lifetimes.len());
                lifetimes.push(Lifetime { value, bytes, first: index, last: index });
            }
        }
    }
    let scratch_bytes = pack(&lifetimes, &mut places);
    (places, scratch_bytes)
}

/// First fit, in the order in which values are written.
fn pack(lifetimes: &[Lifetime], places: &mut [Place]) -> usize {
    let mut placed: Vec<(usize, &Lifetime)> = Vec::new();
    let mut total = 0;
    for life in lifetimes {
        // None of those that are left begins later.
        placed.retain(|(_, other)| life.first <= other.last);
        let mut taken: Vec<(usize, usize)> =
            placed.iter().map(|(at, other)| (*at, at + other.bytes)).collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, end) in taken {
            if at + life.bytes <= start {
                break;
            }
            at = at.max(end);
        }
        places[life.value.index()] = Place::Scratch(at);
        total = total.max(at + life.bytes);
        placed.push((at, life));
    }
    total
}
