//! What the field's rule would write to memory, beside what a plan of ours does.

use super::decide::{Rules, Stored, decide};
use super::expression::Decode;
use crate::ir::{Graph, Type, ValueId};
use crate::plan::{Place, Plan};
use std::fmt;

/// One value that is written to memory and read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// In the user's names.
    pub what: String,
    /// Its elements.
    pub n_elements: usize,
    /// Its bytes, once.
    pub bytes: usize,
    /// Why, if the field writes it.
    pub why: String,
}

/// Both, for one block. Results and caches are written by either, and are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The block's name.
    pub block: String,
    /// Rows of the call.
    pub rows: usize,
    /// What the field's rule writes.
    pub field: Vec<Written>,
    /// What the plan writes.
    pub plan: Vec<Written>,
}

impl Comparison {
    /// Bytes that the field's rule writes.
    pub fn field_bytes(&self) -> usize {
        self.field.iter().map(|written| written.bytes).sum()
    }

    /// Bytes that the plan writes.
    pub fn plan_bytes(&self) -> usize {
        self.plan.iter().map(|written| written.bytes).sum()
    }
}

/// Sets a plan beside the field's rule for the same graph.
pub fn compare(plan: &Plan, rules: &Rules) -> Comparison {
    let graph = plan.graph();
    let (decided, _) = decide(graph, rules, &|weight| match &graph[weight].ty {
        Type::Weight { format, .. } => Decode::of(format),
        _ => Decode { n_ops: 1, n_reads: 1, is_dense: true },
    });
    let field = decided.into_iter().map(|decided| Written {
        what: stored_text(graph, decided.stored),
        n_elements: decided.n_elements,
        bytes: decided.bytes,
        why: decided.cause.to_string(),
    });
    let stored = |id: &ValueId| matches!(plan.place(*id), Place::Scratch(_));
    let ours = graph.ids().filter(stored).map(|id| Written {
        what: graph.label(id),
        n_elements: graph[id].ty.elements(),
        bytes: graph[id].ty.bytes(),
        why: String::new(),
    });
    Comparison {
        block: graph.name.clone(),
        rows: plan.rows(),
        field: field.collect(),
        plan: ours.collect(),
    }
}

fn stored_text(graph: &Graph, stored: Stored) -> String {
    match stored {
        Stored::Value(id) => graph.label(id),
        Stored::RowResults(id) => format!("sums of {}", graph.label(id)),
        Stored::Product(id) => format!("all products of {}", graph.label(id)),
        Stored::DecodedWeight(id) => {
            format!("the decoded weight {}", graph.label(graph[id].inputs[1]))
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  rows {}  written between kernels", self.block, self.rows)?;
        let sides = [
            ("the field's rule", &self.field, self.field_bytes()),
            ("this plan", &self.plan, self.plan_bytes()),
        ];
        for (side, list, bytes) in sides {
            writeln!(f, "  {side}: {bytes} B")?;
            for written in list {
                write!(f, "    {:>12} B  {}", written.bytes, written.what)?;
                let why = &written.why;
                writeln!(
                    f,
                    "{}",
                    if why.is_empty() { String::new() } else { format!("  ({why})") }
                )?;
            }
        }
        Ok(())
    }
}
