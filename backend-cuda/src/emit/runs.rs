//! Runs: consecutive elements of a row that a thread loads at once, into a local array, before it
//! computes with each of them.

use super::scope::Context;
use super::text::Body;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Op, Type, ValueId};
use std::collections::BTreeMap;

/// The values of an expression that are loaded in runs along its rows.
pub(crate) struct Runs {
    /// Name, type, and whether the value has all rows; else it is one row for all.
    values: BTreeMap<ValueId, (String, DType, bool)>,
    /// Elements of a row.
    width: usize,
}

impl Runs {
    /// For the expression `x`, whose elements are computed at their own coordinates: none are
    /// loaded in runs if some operation on the way reads other coordinates, or if rows do not
    /// divide into runs of `len`.
    pub fn of(cx: &Context<'_>, x: ValueId, len: usize) -> Runs {
        let shape = cx.graph()[x].ty.shape();
        let width = shape.last().map_or(1, |dim| dim.size);
        let mut runs = Runs { values: BTreeMap::new(), width };
        if width.is_multiple_of(len) && !runs.visit(cx, x, x) {
            runs.values.clear();
        }
        runs
    }

    /// Adds the loads of `id`, an operand of `x`; whether all of them are at their own coordinates.
    fn visit(&mut self, cx: &Context<'_>, x: ValueId, id: ValueId) -> bool {
        let graph = cx.graph();
        let value = &graph[id];
        if cx.kernel.loads.contains(&id) {
            let Type::Tensor { dtype, shape } = &value.ty else { return true };
            let whole = *shape == *graph[x].ty.shape();
            let row = shape.len() == 1 && !shape[0].batch && shape[0].size == self.width;
            if dtype.is_float() && (whole || row) && self.width > 1 {
                self.values.insert(id, (cx.name(id), *dtype, whole));
            }
            return true;
        }
        match &value.op {
            Op::Pointwise(_)
            | Op::Cast(_)
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Softmax => value.inputs.iter().all(|&input| self.visit(cx, x, input)),
            // Their results are at hand.
            Op::Const(_) | Op::Reduce(_) | Op::Argmax => true,
            _ => false,
        }
    }

    /// Loads `len` elements (4 or 8) of each value, from element `k` of row `row` on, into places
    /// `at..` of its array.
    pub fn load(&self, body: &mut Body, len: usize, k: &str, at: usize) {
        for (name, dtype, whole) in self.values.values() {
            let row = if *whole { format!("row * {} + ", self.width) } else { String::new() };
            let further = if at == 0 { String::new() } else { format!(" + {at}") };
            body.line(format!("fl_load{len}_{dtype}({name}, {row}{k}, {name}_run{further});"));
        }
    }

    /// Declares the arrays, of `len` elements.
    pub fn declare(&self, body: &mut Body, len: usize) {
        for (name, _, _) in self.values.values() {
            body.line(format!("float {name}_run[{len}] = {{}};"));
        }
    }

    /// What a scope is to call a value's element at place `slot` of the run.
    pub fn leaf(&self, id: ValueId, slot: &str) -> Option<String> {
        self.values.get(&id).map(|(name, _, _)| format!("{name}_run[{slot}]"))
    }
}
