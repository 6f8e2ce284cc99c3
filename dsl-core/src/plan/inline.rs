//! Values that a program pins inline, once for each user: a kernel computes an operation once, so
//! what several kernels are to compute must be several operations.

use crate::ir::{Graph, Pin, ValueId};
use std::collections::BTreeMap;

/// The graph with a copy of every value that is pinned inline for each user that is not; none if
/// no such value has two users. What is inlined into inlined values is copied with them.
pub(crate) fn expanded(graph: &Graph) -> Option<Graph> {
    let is_inline = |id: ValueId| graph[id].pin == Some(Pin::Inline);
    let users = graph.users();
    let is_shared = |id: ValueId| {
        let users = &users[id.index()];
        users.iter().any(|user| *user != users[0])
    };
    if !graph.ids().any(|id| is_inline(id) && is_shared(id)) {
        return None;
    }
    let mut copier = Copier { graph, out: graph.clone(), new: BTreeMap::new() };
    copier.out.values.clear();
    for id in graph.ids().filter(|&id| !is_inline(id)) {
        let copies = &mut BTreeMap::new();
        copier.copy(id, copies);
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

struct Copier<'a> {
    graph: &'a Graph,
    out: Graph,
    /// Values that are not inlined, by their place in the graph.
    new: BTreeMap<ValueId, ValueId>,
}

impl Copier<'_> {
    /// Copies a value behind copies of the inlined values that it reads; `copies` are those made
    /// for the same user.
    fn copy(&mut self, id: ValueId, copies: &mut BTreeMap<ValueId, ValueId>) -> ValueId {
        let mut value = self.graph[id].clone();
        for input in &mut value.inputs {
            *input = match (self.new.get(input), copies.get(input)) {
                (Some(&known), _) | (None, Some(&known)) => known,
                (None, None) => {
                    let inlined = *input;
                    let copy = self.copy(inlined, copies);
                    copies.insert(inlined, copy);
                    copy
                }
            };
        }
        let pin = value.pin;
        self.out.values.push(value);
        let copy = ValueId(self.out.values.len() as u32 - 1);
        if pin != Some(Pin::Inline) {
            self.new.insert(id, copy);
        }
        copy
    }
}
