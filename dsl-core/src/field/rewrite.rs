//! The field's decisions as a graph, so that the planner, the back ends and the oracle run them: a
//! decomposed product is a multiplication and a sum, a decoded weight is a value, what is written
//! is pinned to memory, and all else is pinned inline.
//!
//! A product that is left to a library becomes a sum of products as well, of operands that are in
//! memory: right in what it reads and writes, and no measure of the library. Norms and softmax stay
//! operations of their own.

use super::decide::{Decided, Product, Rules, Stored, decide};
use super::expression::Decode;
use crate::diag::Diagnostic;
use crate::ir::{Dim, Graph, Op, Pin, Pointwise, Reduction, Type, ValueId};
use crate::plan::{CompileError, Options, Plan, compile};
use std::fmt;

/// Why the field's decisions have no plan of ours.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldError {
    /// An operation cannot be written as the field decomposes it.
    Rewrite(Diagnostic),
    /// The graph breaks a rule.
    Compile(CompileError),
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::Rewrite(diagnostic) => f.write_str(&diagnostic.message),
            FieldError::Compile(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for FieldError {}

/// The plan of a graph by the field's decisions, product buffers included: for comparison only.
///
/// # Errors
/// If the graph breaks a rule of [`Graph::verify`].
pub fn plan(graph: &Graph, rules: &Rules) -> Result<Plan, FieldError> {
    graph.verify().map_err(CompileError::Graph).map_err(FieldError::Compile)?;
    let rewritten = rewrite(graph, rules).map_err(FieldError::Rewrite)?;
    compile(&rewritten, &Options::default()).map_err(FieldError::Compile)
}

/// A verified graph with the field's decisions written into it.
fn rewrite(graph: &Graph, rules: &Rules) -> Result<Graph, Diagnostic> {
    let (decided, products) = decide(graph, rules, &|weight| match &graph[weight].ty {
        Type::Weight { format, .. } => Decode::of(format),
        _ => Decode { n_ops: 1, n_reads: 1, is_dense: true },
    });
    let mut out = Graph::new(&graph.name);
    out.batch = graph.batch.clone();
    let mut writer = Writer { graph, out, new: Vec::new(), decided, products };
    for id in graph.ids() {
        let new = writer.value(id)?;
        writer.new.push(new);
    }
    let mut out = writer.out;
    out.outputs = graph.outputs.iter().map(|output| writer.new[output.index()]).collect();
    pin_the_rest(&mut out);
    Ok(out)
}

/// What is not in memory is computed where it is read.
fn pin_the_rest(graph: &mut Graph) {
    for id in graph.ids() {
        let is_free = graph[id].pin.is_none() && !graph.outputs.contains(&id);
        if is_free && Pin::Inline.check(&graph[id].op).is_ok() {
            graph.set_pin(id, Some(Pin::Inline));
        }
    }
}

struct Writer<'a> {
    graph: &'a Graph,
    out: Graph,
    /// The new value of each old one.
    new: Vec<ValueId>,
    decided: Vec<Decided>,
    products: Vec<Product>,
}

impl Writer<'_> {
    fn is_written(&self, stored: Stored) -> bool {
        self.decided.iter().any(|decided| decided.stored == stored)
    }

    fn value(&mut self, id: ValueId) -> Result<ValueId, Diagnostic> {
        let value = &self.graph[id];
        if let Some(arg) = self.graph.arg_of(id) {
            return Ok(self.out.arg(&arg.name, arg.role, value.ty.clone()));
        }
        let new = match &value.op {
            Op::Linear => self.linear(id)?,
            op => {
                let inputs = value.inputs.iter().map(|input| self.new[input.index()]).collect();
                self.out.push(op.clone(), inputs)?
            }
        };
        if let Some(name) = &value.name {
            self.out.set_name(new, name);
        }
        let stored = self.is_written(Stored::Value(id));
        if stored && Pin::Materialize.check(&self.out[new].op).is_ok() {
            self.out.set_pin(new, Some(Pin::Materialize));
        }
        Ok(new)
    }

    /// The sum over K of the products with the decoded weight.
    fn linear(&mut self, id: ValueId) -> Result<ValueId, Diagnostic> {
        let (x, weight) = (self.graph[id].inputs[0], self.graph[id].inputs[1]);
        let (new_x, new_weight) = (self.new[x.index()], self.new[weight.index()]);
        let decomposed = self.products.iter().any(|product| product.linear == id);
        let decoded = self.is_written(Stored::DecodedWeight(id));
        if !decomposed && !decoded {
            return self.out.push(Op::Linear, vec![new_x, new_weight]);
        }
        let w = self.out.push(Op::Dequantize, vec![new_weight])?;
        if decoded {
            self.out.set_pin(w, Some(Pin::Materialize));
        }
        // [.., K] against [N, K].
        let mut shape = self.graph[x].ty.shape().to_vec();
        shape.insert(shape.len().saturating_sub(1), Dim::literal(1));
        let spread = self.out.push(Op::Reshape { shape }, vec![new_x])?;
        let product = self.out.push(Op::Pointwise(Pointwise::Mul), vec![spread, w])?;
        if self.is_written(Stored::Product(id)) {
            self.out.set_pin(product, Some(Pin::Materialize));
        }
        let sum = self.out.push(Op::Reduce(Reduction::Sum), vec![product])?;
        let shape = self.graph[id].ty.shape().to_vec();
        if self.is_written(Stored::Value(id)) {
            self.out.set_pin(sum, Some(Pin::Materialize));
        }
        self.out.push(Op::Reshape { shape }, vec![sum])
    }
}
