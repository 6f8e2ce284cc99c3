//! What every plan keeps to.
//!
//! - Every live operation is a member of exactly one kernel.
//! - Every edge between operations has exactly one decision.
//! - What a kernel loads is an argument, or stored by an earlier kernel.
//! - Values that are needed at the same time do not share bytes of scratch memory.

use super::context::Context;
use super::{Place, Plan};
use crate::ir::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

impl Plan {
    /// Checks the plan's rules; a broken one is a fault of the planner.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let graph = self.graph();
        let cx = Context::new(graph, usize::MAX);
        let mut n_kernels = vec![0; graph.values.len()];
        for id in self.kernels().iter().flat_map(|kernel| &kernel.members) {
            n_kernels[id.index()] += 1;
        }
        for id in graph.ids().filter(|&id| cx.is_member(id)) {
            let n = n_kernels[id.index()];
            if n != 1 {
                return Err(format!("{id} is a member of {n} kernels"));
            }
        }
        let lines = self.decisions().iter().map(|line| (line.producer, line.consumer));
        let lines: BTreeSet<(ValueId, ValueId)> = lines.collect();
        let mut n_edges = 0;
        for id in graph.ids() {
            let mut inputs = graph[id].inputs.clone();
            inputs.sort_unstable();
            inputs.dedup();
            for &input in &inputs {
                if matches!(graph[input].op, Op::Arg | Op::Const(_)) {
                    continue;
                }
                n_edges += 1;
                if !lines.contains(&(input, id)) {
                    return Err(format!("the edge {input} -> {id} has no decision"));
                }
            }
        }
        if n_edges != self.decisions().len() {
            return Err(format!("{} decisions for {n_edges} edges", self.decisions().len()));
        }
        let mut written: BTreeSet<ValueId> = graph.args.iter().map(|arg| arg.value).collect();
        for (index, kernel) in self.kernels().iter().enumerate() {
            if let Some(missing) = kernel.loads.iter().find(|load| !written.contains(load)) {
                return Err(format!("kernel {index} loads {missing}, which no kernel stored"));
            }
            written.extend(&kernel.stores);
            if let Some(lost) = kernel.stores.iter().find(|&&id| self.place(id) == Place::None) {
                return Err(format!("kernel {index} stores {lost}, which has no place"));
            }
        }
        self.verify_scratch()
    }

    fn verify_scratch(&self) -> Result<(), String> {
        let graph = self.graph();
        let mut last_use: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (index, kernel) in self.kernels().iter().enumerate() {
            last_use.extend(kernel.loads.iter().map(|&id| (id, index)));
        }
        let last_use = |id: ValueId| last_use.get(&id).copied().unwrap_or(0);
        let mut lives: Vec<(ValueId, usize, usize, usize, usize)> = Vec::new();
        for (index, kernel) in self.kernels().iter().enumerate() {
            for &id in &kernel.stores {
                let Place::Scratch(at) = self.place(id) else { continue };
                let end = at + graph[id].ty.bytes();
                if end > self.scratch_bytes() {
                    return Err(format!("{id} ends at byte {end} of the scratch memory"));
                }
                lives.push((id, at, end, index, last_use(id).max(index)));
            }
        }
        // They are in the order of their beginnings, so what has ended stays ended.
        let mut alive: Vec<&(ValueId, usize, usize, usize, usize)> = Vec::new();
        for b in &lives {
            alive.retain(|a| b.3 <= a.4);
            if let Some(a) = alive.iter().find(|a| a.1 < b.2 && b.1 < a.2) {
                return Err(format!("{} and {} share bytes while both are needed", a.0, b.0));
            }
            alive.push(b);
        }
        Ok(())
    }
}
