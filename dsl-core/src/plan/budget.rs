//! Budgets: bounds on a plan that a program states, checked at build time.

use super::{Place, Plan};
use crate::diag::{Code, Diagnostic};
use crate::ir::{Op, Type, ValueId};

/// What a plan may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Kernels of one call.
    pub max_launches: Option<usize>,
    /// Bytes of scratch memory.
    pub max_scratch_bytes: Option<usize>,
    /// Whether a stored value as large as a whole matrix product is refused.
    pub deny_product_buffer: bool,
}

impl Plan {
    /// The stored values that are as large as a product written out before it is summed:
    /// `n · k` elements a row, for some weight of the block; or as a whole decoded weight.
    pub fn product_buffers(&self) -> Vec<ValueId> {
        let graph = self.graph();
        let products: Vec<usize> = graph
            .ids()
            .filter_map(|id| match (&graph[id].op, graph[id].inputs.last()) {
                (Op::Linear, Some(&weight)) => match &graph[weight].ty {
                    Type::Weight { n, k, .. } if n.size > 1 && k.size > 1 => {
                        Some(graph[id].ty.elements() * k.size)
                    }
                    _ => None,
                },
                // A weight that is decoded by itself, or multiplied element by element.
                (Op::Dequantize, _) => Some(graph[id].ty.elements()),
                _ => None,
            })
            .collect();
        let stored = |id: &ValueId| matches!(self.place(*id), Place::Scratch(_));
        graph
            .ids()
            .filter(stored)
            .filter(|&id| products.iter().any(|&product| graph[id].ty.elements() >= product))
            .collect()
    }

    /// Whether some stored value is as large as a whole product.
    pub fn has_product_buffer(&self) -> bool {
        !self.product_buffers().is_empty()
    }

    /// One error for each bound that the plan exceeds, with the decisions that explain it.
    pub fn check_budget(&self, budget: &Budget) -> Vec<Diagnostic> {
        let mut errors = Vec::new();
        let name = &self.graph().name;
        if let Some(limit) = budget.max_launches.filter(|&limit| self.n_launches() > limit) {
            let apart: Vec<String> = self
                .decisions()
                .iter()
                .filter(|decision| matches!(decision.verdict, super::Verdict::Apart(_)))
                .map(|decision| format!("\n      {decision}"))
                .collect();
            errors.push(Diagnostic::new(
                Code::Budget,
                format!("`{name}` launches {} kernels, its budget is {limit}", self.n_launches()),
                format!("these values are stored between kernels:{}", apart.concat()),
            ));
        }
        let limit = budget.max_scratch_bytes;
        if let Some(limit) = limit.filter(|&limit| self.scratch_bytes() > limit) {
            errors.push(Diagnostic::new(
                Code::Budget,
                format!(
                    "`{name}` needs {} B of scratch memory, its budget is {limit} B",
                    self.scratch_bytes()
                ),
                format!("it holds {}", self.scratch_list()),
            ));
        }
        if budget.deny_product_buffer && self.has_product_buffer() {
            let values: Vec<String> =
                self.product_buffers().iter().map(|&id| self.graph().label(id)).collect();
            errors.push(Diagnostic::new(
                Code::Budget,
                format!("`{name}` stores a value as large as a product: {}", values.join(", ")),
                "reduce it in the expression that makes it",
            ));
        }
        errors
    }

    fn scratch_list(&self) -> String {
        let graph = self.graph();
        let values: Vec<String> = graph
            .ids()
            .filter(|&id| matches!(self.place(id), Place::Scratch(_)))
            .map(|id| format!("{} ({} B)", graph.label(id), graph[id].ty.bytes()))
            .collect();
        values.join(", ")
    }
}
