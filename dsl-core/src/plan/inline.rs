//! Values that a program pins inline, once for each user: a kernel computes an operation once, so
//! what several kernels are to compute must be several operations.
//!
//! A view is no operation, so what reads a view is a user of the value behind it.

use crate::ir::{Graph, Pin, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The graph with a copy of every value that is pinned inline for each user that is not; none if
/// no such value has two users. What is inlined into inlined values is copied with them, and so
/// are the views between them. The graph is verified, so no view of an inlined value is a result.
pub(crate) fn expanded(graph: &Graph) -> Option<Graph> {
    let is_shared = shared(graph);
    let is_inline = |id: ValueId| graph[id].pin == Some(Pin::Inline);
    if !graph.ids().any(|id| is_inline(id) && is_shared[id.index()]) {
        return None;
    }
    let mut is_copied = vec![false; graph.values.len()];
    for id in graph.ids() {
        let of_copied = graph[id].op.is_view() && is_copied[graph[id].inputs[0].index()];
        is_copied[id.index()] = is_inline(id) || of_copied;
    }
    let mut copier = Copier { graph, is_copied, out: graph.clone(), new: BTreeMap::new() };
    copier.out.values.clear();
    for id in graph.ids() {
        if !copier.is_copied[id.index()] {
            copier.copy_with_inlined(id);
        }
    }
    let new = |id: &ValueId| copier.new.get(id).copied().unwrap_or(*id);
    let (outputs, args): (Vec<ValueId>, Vec<ValueId>) = (
        graph.outputs.iter().map(new).collect(),
        graph.args.iter().map(|arg| new(&arg.value)).collect(),
    );
    let mut out = copier.out;
    out.outputs = outputs;
    out.args.iter_mut().zip(args).for_each(|(arg, value)| arg.value = value);
    Some(out)
}

/// Whether several operations read each value, views looked through.
fn shared(graph: &Graph) -> Vec<bool> {
    let n_values = graph.values.len();
    let (mut readers, mut is_shared) = (vec![None; n_values], vec![false; n_values]);
    // Users first, so that the readers of a view are known when it is looked through.
    for id in graph.ids().rev() {
        let (reader, of_shared) = match graph[id].op.is_view() {
            true => (readers[id.index()], is_shared[id.index()]),
            false => (Some(id), false),
        };
        let Some(reader) = reader else { continue };
        for input in graph[id].inputs.iter().map(|input| input.index()) {
            let known = *readers[input].get_or_insert(reader);
            is_shared[input] |= of_shared || known != reader;
        }
    }
    is_shared
}

struct Copier<'a> {
    graph: &'a Graph,
    /// Whether each user has a copy of its own of the value: what is inlined, and views of it.
    is_copied: Vec<bool>,
    out: Graph,
    /// Where values are that all users share, by their place in the graph.
    new: BTreeMap<ValueId, ValueId>,
}

impl Copier<'_> {
    /// Copies a value behind its own copies of all that is inlined into it.
    fn copy_with_inlined(&mut self, id: ValueId) {
        let mut copies = BTreeMap::new();
        // Ascending, so operands come before their users.
        for inlined in self.inlined_into(id) {
            let copy = self.copy(inlined, &copies);
            copies.insert(inlined, copy);
        }
        let copy = self.copy(id, &copies);
        self.new.insert(id, copy);
    }

    fn inlined_into(&self, id: ValueId) -> BTreeSet<ValueId> {
        let (mut inlined, mut todo) = (BTreeSet::new(), vec![id]);
        while let Some(user) = todo.pop() {
            for &input in &self.graph[user].inputs {
                if self.is_copied[input.index()] && inlined.insert(input) {
                    todo.push(input);
                }
            }
        }
        inlined
    }

    /// Copies one value; `copies` are those made for the same user.
    fn copy(&mut self, id: ValueId, copies: &BTreeMap<ValueId, ValueId>) -> ValueId {
        let mut value = self.graph[id].clone();
        for input in &mut value.inputs {
            let copy = copies.get(input).or_else(|| self.new.get(input));
            *input = copy.copied().unwrap_or(*input);
        }
        self.out.values.push(value);
        ValueId(self.out.values.len() as u32 - 1)
    }
}
