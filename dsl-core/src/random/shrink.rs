//! From a graph that shows a fault, a smaller graph that still shows it.

use super::graph::is_computed;
use crate::ir::{Graph, Op, Pin, Role, Type, Value, ValueId};
use std::collections::BTreeSet;

/// How many graphs [`shrink`] asks about at most.
pub const MAX_SHRINK_CALLS: usize = 200;

/// The smallest graph it finds for which `fails` is still true; `graph` itself, for which it is
/// taken to be true, if there is no other.
///
/// Each step weighs every graph that is one of these away, and takes the one with the fewest
/// values that still fails:
///
/// - fewer results: one, the first of them, the last of them, or all but one; with all appends, or
///   those that are read;
/// - one append fewer;
/// - a computed tensor as the only result, or an operand in the place of a result;
/// - an argument in the place of a computed tensor;
/// - a pin fewer;
/// - as many rows in each call as the batch dim has room for, or no batch dim.
///
/// Results go before all else, since each takes much with it. What is then unused goes too,
/// arguments included. Every graph that `fails` sees is verified, and none is seen twice, at most
/// [`MAX_SHRINK_CALLS`] in all. The same `graph` and answers give the same graph.
pub fn shrink(graph: &Graph, fails: &mut dyn FnMut(&Graph) -> bool) -> Graph {
    let mut smallest = graph.clone();
    let mut seen = BTreeSet::new();
    let mut asked = |candidate: &Graph| {
        seen.len() < MAX_SHRINK_CALLS && seen.insert(candidate.to_text()) && fails(candidate)
    };
    loop {
        let of_results = step(&smallest, fewer_results(&smallest), &mut asked);
        match of_results.or_else(|| step(&smallest, other_moves(&smallest), &mut asked)) {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
    }
}

/// The smallest candidate that still fails.
fn step(
    graph: &Graph,
    mut candidates: Vec<Graph>,
    fails: &mut dyn FnMut(&Graph) -> bool,
) -> Option<Graph> {
    // A graph without results shows nothing.
    let is_smaller = |small: &Graph| size(small) < size(graph) && !small.outputs.is_empty();
    candidates.retain(|candidate| is_smaller(candidate) && candidate.verify().is_ok());
    // Equal sizes stay in the order of the moves.
    candidates.sort_by_key(size);
    candidates.into_iter().find(|candidate| fails(candidate))
}

/// What shrinks: values, those that are computed, results, pins, and how calls may differ.
fn size(graph: &Graph) -> [usize; 5] {
    let n_computed = graph.values.len() - graph.args.len();
    let ranged = graph.batch.as_ref().is_some_and(|batch| batch.min < batch.max);
    let batched = graph.batch.is_some() || graph.values.iter().any(|value| value.ty.has_batch());
    let calls = usize::from(ranged) + usize::from(batched);
    let n_pins = graph.values.iter().filter(|value| value.pin.is_some()).count();
    [graph.values.len(), n_computed, graph.outputs.len(), n_pins, calls]
}

/// The moves that leave out results and appends. What is still read stays, so some graphs are as
/// large as `graph`.
fn fewer_results(graph: &Graph) -> Vec<Graph> {
    let (outputs, all) = (&graph.outputs, appends(graph));
    let mut list = Vec::new();
    for appends in [&[][..], &all] {
        let mut keep = |outputs: &[ValueId]| list.push(rebuild(graph, outputs, appends, None));
        for (at, &output) in outputs.iter().enumerate() {
            keep(&[output]);
            keep(&outputs[..=at]);
            keep(&outputs[at..]);
            keep(&without(outputs, output));
        }
    }
    for &append in &all {
        list.push(rebuild(graph, outputs, &without(&all, append), None));
    }
    list
}

/// The moves within the graph, those of its pins, and those of the batch dim.
fn other_moves(graph: &Graph) -> Vec<Graph> {
    let (outputs, all) = (&graph.outputs, appends(graph));
    let computed: Vec<ValueId> = graph.ids().filter(|&id| is_computed(graph, id)).collect();
    let users = graph.users();
    let mut list = Vec::new();
    for &id in &computed {
        list.push(rebuild(graph, &[id], &[], None));
        list.push(rebuild(graph, &[id], &all, None));
        let mut others = without(outputs, id);
        if others.is_empty() {
            // Where it was the only result, the first that reads it is the result now.
            others.extend(users[id.index()].iter().find(|user| computed.contains(user)));
        }
        list.push(rebuild(graph, &others, &all, Some(id)));
    }
    for &output in outputs {
        let operands = graph[output].inputs.iter().filter(|input| computed.contains(input));
        for &operand in operands {
            let mut outputs = without(outputs, operand);
            outputs.iter_mut().filter(|id| **id == output).for_each(|id| *id = operand);
            list.push(rebuild(graph, &outputs, &all, None));
        }
    }
    list.extend(graph.ids().filter(|&id| graph[id].pin.is_some()).map(|id| {
        let mut unpinned = graph.clone();
        unpinned.set_pin(id, None);
        unpinned
    }));
    list.extend(with_one_batch(graph));
    list.push(without_batch(graph));
    list
}

fn appends(graph: &Graph) -> Vec<ValueId> {
    graph.ids().filter(|&id| graph[id].op == Op::Append).collect()
}

fn without(list: &[ValueId], left_out: ValueId) -> Vec<ValueId> {
    list.iter().copied().filter(|&id| id != left_out).collect()
}

/// The values that the results and appends need, with an argument in the place of `cut`.
fn rebuild(graph: &Graph, outputs: &[ValueId], appends: &[ValueId], cut: Option<ValueId>) -> Graph {
    let mut needed = vec![false; graph.values.len()];
    for id in graph.ids().rev() {
        needed[id.index()] |= outputs.contains(&id) || appends.contains(&id);
        if needed[id.index()] && cut != Some(id) {
            graph[id].inputs.iter().for_each(|input| needed[input.index()] = true);
        }
    }
    let mut small = Graph { batch: graph.batch.clone(), ..Graph::new(&graph.name) };
    let mut places = vec![ValueId(0); graph.values.len()];
    for arg in graph.args.iter().filter(|arg| needed[arg.value.index()]) {
        let ty = graph[arg.value].ty.clone();
        places[arg.value.index()] = small.arg(&arg.name, arg.role, ty);
    }
    if let Some(cut) = cut.filter(|cut| needed[cut.index()]) {
        let ty = graph[cut].ty.clone();
        places[cut.index()] = small.arg(&new_name(graph), Role::Input, ty);
    }
    for id in graph.ids().filter(|&id| needed[id.index()] && cut != Some(id)) {
        let value = &graph[id];
        if value.op == Op::Arg {
            continue;
        }
        let inputs = value.inputs.iter().map(|input| places[input.index()]).collect();
        places[id.index()] = ValueId(small.values.len() as u32);
        small.values.push(Value { inputs, ..value.clone() });
    }
    small.outputs = outputs.iter().map(|output| places[output.index()]).collect();
    for output in small.outputs.clone() {
        let stored = small.base(output);
        if small[stored].pin == Some(Pin::Inline) {
            small.set_pin(stored, None);
        }
    }
    small
}

/// A name that no value has.
fn new_name(graph: &Graph) -> String {
    let taken = |name: &String| graph.values.iter().any(|v| v.name.as_deref() == Some(name));
    let mut names = (0..=graph.values.len()).map(|n| format!("cut{n}"));
    names.find(|name| !taken(name)).unwrap_or_default()
}

/// The same graph for calls that fill the batch dim.
fn with_one_batch(graph: &Graph) -> Option<Graph> {
    let mut graph = graph.clone();
    let batch = graph.batch.as_mut()?;
    batch.min = batch.max;
    Some(graph)
}

/// The same graph with the batch dim's size as a fixed one.
fn without_batch(graph: &Graph) -> Graph {
    let mut graph = Graph { batch: None, ..graph.clone() };
    for value in &mut graph.values {
        if let Op::Reshape { shape } = &mut value.op {
            shape.iter_mut().for_each(|dim| dim.batch = false);
        }
        match &mut value.ty {
            Type::Tensor { shape, .. } => shape.iter_mut().for_each(|dim| dim.batch = false),
            Type::Cache { batch, .. } => batch.batch = false,
            Type::Index { rows } => rows.batch = false,
            Type::Weight { .. } => {}
        }
    }
    graph
}
