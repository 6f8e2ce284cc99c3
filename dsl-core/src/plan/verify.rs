//! What every plan keeps to.
//!
//! - Every live operation is a member of exactly one kernel.
//! - Every edge between operations has exactly one decision.
//! - What a kernel loads is an argument, or stored by an earlier kernel.
//! - Values that are needed at the same time do not share bytes of scratch memory.

use super::context::Context;
use super::{Place, Plan};
use crate::ir::{Op, ValueId};

impl Plan {
    /// Checks the plan's rules; a broken one is a fault of the planner.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let graph = self.graph();
        let cx = Context::new(graph, usize::MAX);
        for id in graph.ids().filter(|&id| cx.is_member(id)) {
            let n = self.kernels().iter().filter(|kernel| kernel.members.contains(&id)).count();
            if n != 1 {
                return Err(format!("{id} is a member of {n} kernels"));
            }
        }
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
                let mut lines = self.decisions().iter();
                if !lines.any(|line| line.producer == input && line.consumer == id) {
                    return Err(format!("the edge {input} -> {id} has no decision"));
                }
            }
        }
        if n_edges != self.decisions().len() {
            return Err(format!("{} decisions for {n_edges} edges", self.decisions().len()));
        }
        let mut written: Vec<ValueId> = graph.args.iter().map(|arg| arg.value).collect();
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
        let last_use = |id: ValueId| {
            self.kernels().iter().rposition(|kernel| kernel.loads.contains(&id)).unwrap_or(0)
        };
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
        for (i, a) in lives.iter().enumerate() {
            for b in &lives[i + 1..] {
                let bytes = a.1 < b.2 && b.1 < a.2;
                let time = a.3 <= b.4 && b.3 <= a.4;
                if bytes && time {
                    return Err(format!("{} and {} share bytes while both are needed", a.0, b.0));
                }
            }
        }
        Ok(())
    }
}
