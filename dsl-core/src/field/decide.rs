//! Which values the field's rule writes to memory.
//!
//! Its order, after each operation: an operand that is broadcast is written if its count is over
//! the threshold; a value with several users, if it has many reads or is over the threshold; any
//! value that is over the threshold or has too many reads, unless it has only one. Reductions are
//! always written. Norms and softmax are a reduction, written, and an expression of its results.

use super::expression::{Buffer, Counts, Decode, Kind, Nodes, Term};
use crate::ir::{Graph, Op, Pointwise, Reduction, Type, ValueId};
use std::collections::BTreeMap;
use std::fmt;

/// The thresholds: those of TorchInductor 2.15 on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A value with more operations is written (`realize_opcount_threshold`).
    pub max_ops: usize,
    /// A value with more loads is written (`realize_acc_reads_threshold`).
    pub max_reads: usize,
    /// A value with several users and more loads is written (`realize_reads_threshold`).
    pub max_shared_reads: usize,
    /// Whether a matrix product of one row or one column becomes a multiplication and a sum: what
    /// `mode="max-autotune"` turns on. Without it the operands of every product are written.
    pub decomposes: bool,
    /// Whether a product that would be written has its smaller operand written instead, as was
    /// proposed.
    pub smaller_operand: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            max_ops: 30,
            max_reads: 8,
            max_shared_reads: 4,
            decomposes: true,
            smaller_operand: false,
        }
    }
}

/// Why a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It has too many operations.
    Ops(Counts),
    /// It has too many loads.
    Reads(Counts),
    /// It is the operand of a matrix product that is a call of a library.
    Operand,
    /// It is the result of a matrix product, a reduction, an attention: always written.
    Always,
    /// It is the smaller operand of a product that would be written otherwise.
    Smaller(Counts),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Ops(counts) => write!(f, "{} operations", counts.n_ops),
            Cause::Reads(counts) => write!(f, "{} reads", counts.n_reads),
            Cause::Operand => f.write_str("operand of a library's product"),
            Cause::Always => f.write_str("always written"),
            Cause::Smaller(counts) => write!(f, "for a product of {} operations", counts.n_ops),
        }
    }
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stored {
    /// A value of the graph.
    Value(ValueId),
    /// The numbers that the reduction inside an operation leaves.
    RowResults(ValueId),
    /// All `M · N · K` products of a linear.
    Product(ValueId),
    /// The decoded weight of a linear, `N · K` elements.
    DecodedWeight(ValueId),
}

/// One value that the field's rule writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What.
    pub stored: Stored,
    /// Its elements.
    pub n_elements: usize,
    /// Its bytes: written once, and read once or more.
    pub bytes: usize,
    /// Why.
    pub cause: Cause,
}

/// A matrix product as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// The linear.
    pub linear: ValueId,
    /// Of the activation.
    pub lhs: Counts,
    /// Of decoding the weight.
    pub rhs: Counts,
    /// Of both and their product.
    pub product: Counts,
    /// Whether the activation was written, the weight was, and the product was.
    pub written: [bool; 3],
}

/// Walks a graph as the field's compiler does. Gives what it writes, in order, results of the
/// block left out, and every matrix product that it decomposes. `decode` says what a weight counts:
/// [`Decode::of`] its format, as a rule.
pub fn decide(
    graph: &Graph,
    rules: &Rules,
    decode: &dyn Fn(ValueId) -> Decode,
) -> (Vec<Decided>, Vec<Product>) {
    let mut walk = Walk {
        graph,
        rules,
        decode,
        nodes: Nodes::default(),
        terms: BTreeMap::new(),
        views: BTreeMap::new(),
        written: vec![None; graph.values.len()],
        n_users: n_users(graph),
        decided: Vec::new(),
        products: Vec::new(),
    };
    graph.ids().for_each(|id| walk.visit(id));
    (walk.decided, walk.products)
}

/// Users of each value, reductions and the expressions behind them counted separately.
fn n_users(graph: &Graph) -> Vec<usize> {
    let mut n_users = vec![0; graph.values.len()];
    for id in graph.ids() {
        let uses = match graph[id].op {
            Op::Softmax | Op::RmsNorm { .. } | Op::LayerNorm { .. } => 2,
            _ => 1,
        };
        for (place, input) in graph[id].inputs.iter().enumerate() {
            n_users[input.index()] += if place == 0 { uses } else { 1 };
        }
    }
    n_users
}

struct Walk<'a> {
    graph: &'a Graph,
    rules: &'a Rules,
    decode: &'a dyn Fn(ValueId) -> Decode,
    nodes: Nodes,
    /// Expressions by value and the views that it is seen through.
    terms: BTreeMap<(ValueId, usize), Term>,
    /// Numbers of chains of views: the chain before, and the view.
    views: BTreeMap<(usize, ValueId), usize>,
    /// The types of what is in memory.
    written: Vec<Option<Kind>>,
    n_users: Vec<usize>,
    decided: Vec<Decided>,
    products: Vec<Product>,
}

impl Walk<'_> {
    fn visit(&mut self, id: ValueId) {
        let graph = self.graph;
        let value = &graph[id];
        match &value.op {
            Op::Arg => self.written[id.index()] = Some(Kind::of(value.ty.dtype())),
            Op::Const(_) | Op::Slice { .. } | Op::Reshape { .. } | Op::Dequantize => {}
            Op::Linear => self.linear(id),
            Op::Reduce(_) | Op::Argmax => {
                let kind = self.term(value.inputs[0], 0).kind;
                // A mean is a sum, and an expression of it.
                match value.op {
                    Op::Reduce(Reduction::Mean) => self.row_results(id, 1),
                    Op::Argmax => self.write(Stored::Value(id), Kind::I32, Cause::Always),
                    _ => self.write(Stored::Value(id), kind, Cause::Always),
                }
            }
            Op::Softmax | Op::LayerNorm { .. } => {
                self.row_results(id, 2);
                self.pointwise(id);
            }
            Op::RmsNorm { .. } => {
                self.row_results(id, 1);
                self.pointwise(id);
            }
            Op::Pointwise(_) | Op::Cast(_) | Op::Rope { .. } => self.pointwise(id),
            Op::Append => {}
            Op::Attend { .. } => {
                self.operand(value.inputs[0]);
                let kind = self.term(value.inputs[0], 0).kind;
                self.write(Stored::Value(id), kind, Cause::Always);
            }
            Op::Embed => self.write(Stored::Value(id), Kind::F32, Cause::Always),
        }
        if value.op == Op::Append {
            // Into the cache, so keys and values need no memory of their own.
            self.written[id.index()] = Some(Kind::of(value.ty.dtype()));
        }
    }

    fn pointwise(&mut self, id: ValueId) {
        let graph = self.graph;
        // An operand with fewer elements is expanded.
        for &input in &graph[id].inputs {
            let is_smaller = graph[input].ty.elements() < graph[id].ty.elements();
            if matches!(graph[input].ty, Type::Tensor { .. }) && is_smaller {
                self.expand(input);
            }
        }
        let term = self.term(id, 0);
        let counts = self.nodes.counts(&[term]);
        let is_shared = self.n_users[id.index()] > 1;
        let kind = term.kind;
        if counts.n_ops > self.rules.max_ops {
            if is_shared || counts.n_reads > 1 || counts.n_ops > self.rules.max_ops.max(100) {
                self.write(Stored::Value(id), kind, Cause::Ops(counts));
            }
        } else if counts.n_reads > self.rules.max_reads
            || (is_shared && counts.n_reads > self.rules.max_shared_reads)
        {
            self.write(Stored::Value(id), kind, Cause::Reads(counts));
        }
    }

    /// An operand that is broadcast.
    fn expand(&mut self, id: ValueId) {
        let term = self.term(id, 0);
        let counts = self.nodes.counts(&[term]);
        if counts.n_ops > self.rules.max_ops {
            let base = self.graph.base(id);
            self.write(Stored::Value(base), term.kind, Cause::Ops(counts));
        }
    }

    /// An operand of a library's call.
    fn operand(&mut self, id: ValueId) {
        let base = self.graph.base(id);
        if self.written[base.index()].is_none() {
            let kind = self.term(base, 0).kind;
            self.write(Stored::Value(base), kind, Cause::Operand);
        }
    }

    fn row_results(&mut self, id: ValueId, n: usize) {
        let ty = &self.graph[self.graph[id].inputs[0]].ty;
        let width = ty.shape().last().map_or(1, |dim| dim.size).max(1);
        let n_elements = n * ty.elements() / width;
        let (stored, cause) = (Stored::RowResults(id), Cause::Always);
        self.decided.push(Decided { stored, n_elements, bytes: 4 * n_elements, cause });
    }

    fn write(&mut self, stored: Stored, kind: Kind, cause: Cause) {
        let n_elements = match stored {
            Stored::Value(id) => {
                if self.written[id.index()].is_some() {
                    return;
                }
                self.written[id.index()] = Some(kind);
                self.terms.clear();
                if self.graph.outputs.contains(&id) {
                    return; // it is written in any case
                }
                self.graph[id].ty.elements()
            }
            Stored::RowResults(_) => return,
            Stored::Product(id) => match &self.graph[self.graph[id].inputs[1]].ty {
                Type::Weight { k, .. } => self.graph[id].ty.elements() * k.size,
                _ => return,
            },
            Stored::DecodedWeight(id) => match &self.graph[self.graph[id].inputs[1]].ty {
                Type::Weight { n, k, .. } => n.size * k.size,
                _ => return,
            },
        };
        self.decided.push(Decided { stored, n_elements, bytes: n_elements * kind.bytes(), cause });
    }

    fn linear(&mut self, id: ValueId) {
        let graph = self.graph;
        let (x, weight) = (graph[id].inputs[0], graph[id].inputs[1]);
        let Type::Weight { n, k, .. } = &graph[weight].ty else { return };
        let decode = (self.decode)(weight);
        let n_rows = graph[x].ty.elements() / k.size.max(1);
        let kind = self.term(x, 0).kind;
        if !(self.rules.decomposes && (n_rows == 1 || n.size == 1)) {
            self.operand(x);
            if !decode.is_dense {
                self.write(Stored::DecodedWeight(id), kind, Cause::Operand);
            }
            return self.write(Stored::Value(id), kind, Cause::Always);
        }
        let rhs = Counts { n_ops: decode.n_ops, n_reads: decode.n_reads };
        let weight_written = rhs.n_ops > self.rules.max_ops;
        if weight_written {
            self.write(Stored::DecodedWeight(id), Kind::F32, Cause::Ops(rhs));
        }
        // The weight, with nothing of it in common with the activation.
        let inlined = if weight_written { Counts { n_ops: 1, n_reads: 1 } } else { rhs };
        let lhs = self.wide_counts(x);
        let base = graph.base(x);
        let is_written = |walk: &Self| walk.written[base.index()].is_some();
        let x_was_written = is_written(self);
        if n.size > 1 && lhs.n_ops > self.rules.max_ops && !x_was_written {
            self.write(Stored::Value(base), Kind::F32, Cause::Ops(lhs));
        }
        let product = |lhs: Counts| Counts {
            n_ops: lhs.n_ops + inlined.n_ops + 1,
            n_reads: lhs.n_reads + inlined.n_reads,
        };
        let over = |counts: Counts| {
            counts.n_ops > self.rules.max_ops || counts.n_reads > self.rules.max_reads
        };
        let mut counts = product(self.wide_counts(x));
        if over(counts) && self.rules.smaller_operand && n.size > 1 && !is_written(self) {
            self.write(Stored::Value(base), Kind::F32, Cause::Smaller(counts));
            counts = product(self.wide_counts(x));
        }
        let rules = *self.rules;
        let product_written = counts.n_ops > rules.max_ops || counts.n_reads > rules.max_reads;
        if product_written {
            let by_ops = counts.n_ops > rules.max_ops;
            let cause = if by_ops { Cause::Ops(counts) } else { Cause::Reads(counts) };
            self.write(Stored::Product(id), Kind::F32, cause);
        }
        let x_written = is_written(self) && !x_was_written;
        let written = [x_written, weight_written, product_written];
        self.products.push(Product { linear: id, lhs, rhs, product: counts, written });
        self.write(Stored::Value(id), kind, Cause::Always);
    }

    /// What an operand of a product counts, widened to `f32`.
    fn wide_counts(&mut self, x: ValueId) -> Counts {
        let term = self.term(x, 0);
        let wide = self.nodes.cast(term, Kind::F32);
        self.nodes.counts(&[wide])
    }

    /// The expression of a value's element, seen through a chain of views.
    fn term(&mut self, id: ValueId, view: usize) -> Term {
        if let Some(kind) = self.written[id.index()] {
            let is_number = self.graph[id].ty.shape().is_empty();
            return match is_number && self.graph[id].op == Op::Arg {
                true => self.nodes.number(f32::from_bits(id.0), Kind::F32),
                false => self.nodes.load(Buffer::Value(id), view, kind),
            };
        }
        if let Some(&term) = self.terms.get(&(id, view)) {
            return term;
        }
        let term = self.build(id, view);
        self.terms.insert((id, view), term);
        term
    }

    fn build(&mut self, id: ValueId, view: usize) -> Term {
        let graph = self.graph;
        let inputs = &graph[id].inputs;
        match &graph[id].op {
            Op::Const(value) => self.nodes.number(*value, Kind::F32),
            Op::Slice { .. } | Op::Reshape { .. } => {
                let next = self.views.len() + 1;
                let view = *self.views.entry((view, id)).or_insert(next);
                self.term(inputs[0], view)
            }
            Op::Pointwise(op) => {
                let terms: Vec<Term> = inputs.iter().map(|&input| self.term(input, view)).collect();
                let terms = self.nodes.promoted(&terms);
                self.function(*op, &terms)
            }
            Op::Cast(dtype) => {
                let x = self.term(inputs[0], view);
                self.nodes.cast(x, Kind::of(*dtype))
            }
            Op::Reduce(_) => {
                let sum = self.nodes.load(Buffer::RowResult(id, 0), view, Kind::F32);
                let n = self.width(id);
                self.nodes.op("div", &[sum, n])
            }
            Op::Softmax => {
                let x = self.wide(inputs[0], view);
                let max = self.nodes.load(Buffer::RowResult(id, 0), view, Kind::F32);
                let sum = self.nodes.load(Buffer::RowResult(id, 1), view, Kind::F32);
                let shifted = self.nodes.op("sub", &[x.1, max]);
                let exp = self.nodes.op("exp", &[shifted]);
                let quotient = self.nodes.op("div", &[exp, sum]);
                self.nodes.cast(quotient, x.0.kind)
            }
            Op::RmsNorm { eps } => {
                let (x, wide) = self.wide(inputs[0], view);
                let scale = self.row_scale(id, 0, *eps, view);
                let scaled = self.nodes.op("mul", &[wide, scale]);
                let scaled = self.nodes.cast(scaled, x.kind);
                let weight = self.term(inputs[1], view);
                let both = self.nodes.promoted(&[scaled, weight]);
                self.nodes.op("mul", &both)
            }
            Op::LayerNorm { eps } => {
                let (x, wide) = self.wide(inputs[0], view);
                let mean = self.nodes.load(Buffer::RowResult(id, 0), view, Kind::F32);
                let centred = self.nodes.op("sub", &[wide, mean]);
                let scale = self.row_scale(id, 1, *eps, view);
                let scaled = self.nodes.op("mul", &[centred, scale]);
                let weight = self.wide(inputs[1], view).1;
                let product = self.nodes.op("mul", &[scaled, weight]);
                let bias = self.wide(inputs[2], view).1;
                let sum = self.nodes.op("add", &[product, bias]);
                self.nodes.cast(sum, x.kind)
            }
            Op::Rope { .. } => {
                let x = self.term(inputs[0], view);
                let partner = self.nodes.op("partner", &[x]);
                let cos = self.nodes.load(Buffer::RowResult(id, 0), view, x.kind);
                let sin = self.nodes.load(Buffer::RowResult(id, 1), view, x.kind);
                let own = self.nodes.op("mul", &[x, cos]);
                let negated = self.nodes.op("neg", &[partner]);
                let turned = self.nodes.op("where", &[negated, partner]);
                let other = self.nodes.op("mul", &[turned, sin]);
                self.nodes.op("add", &[own, other])
            }
            // All others are written where they are made.
            Op::Arg
            | Op::Argmax
            | Op::Linear
            | Op::Append
            | Op::Attend { .. }
            | Op::Embed
            | Op::Dequantize => self.nodes.load(Buffer::Value(id), view, Kind::F32),
        }
    }

    /// An operand, and the same widened.
    fn wide(&mut self, id: ValueId, view: usize) -> (Term, Term) {
        let x = self.term(id, view);
        (x, self.nodes.cast(x, Kind::F32))
    }

    /// The elements of a row, as a number.
    fn width(&mut self, id: ValueId) -> Term {
        let shape = self.graph[self.graph[id].inputs[0]].ty.shape();
        let width = shape.last().map_or(1, |dim| dim.size);
        self.nodes.number(width as f32, Kind::F32)
    }

    /// `1 / sqrt(sum / n + eps)`, the sum being a row result.
    fn row_scale(&mut self, id: ValueId, result: usize, eps: f32, view: usize) -> Term {
        let sum = self.nodes.load(Buffer::RowResult(id, result), view, Kind::F32);
        let width = self.width(id);
        let mean = self.nodes.op("div", &[sum, width]);
        let eps = self.nodes.number(eps, Kind::F32);
        let shifted = self.nodes.op("add", &[mean, eps]);
        self.nodes.op("rsqrt", &[shifted])
    }

    /// A function as it is decomposed; those that are widened inside give their operand's type.
    fn function(&mut self, op: Pointwise, terms: &[Term]) -> Term {
        let nodes = &mut self.nodes;
        let kind = terms.first().map_or(Kind::F32, |term| term.kind);
        match op {
            Pointwise::Silu => {
                let x = nodes.cast(terms[0], Kind::F32);
                let one = nodes.number(1.0, Kind::F32);
                let negated = nodes.op("neg", &[x]);
                let exp = nodes.op("exp", &[negated]);
                let sum = nodes.op("add", &[exp, one]);
                let quotient = nodes.op("div", &[x, sum]);
                nodes.cast(quotient, kind)
            }
            Pointwise::GeluTanh => {
                let x = nodes.cast(terms[0], Kind::F32);
                let number = |nodes: &mut Nodes, value| nodes.number(value, Kind::F32);
                let (half, cubic) = (number(nodes, 0.5), number(nodes, 0.044_715));
                let (root, one) = (number(nodes, 0.797_884_6), number(nodes, 1.0));
                let halved = nodes.op("mul", &[x, half]);
                let square = nodes.op("mul", &[x, x]);
                let cube = nodes.op("mul", &[square, x]);
                let scaled = nodes.op("mul", &[cube, cubic]);
                let inner = nodes.op("add", &[x, scaled]);
                let inner = nodes.op("mul", &[inner, root]);
                let tanh = nodes.op("tanh", &[inner]);
                let sum = nodes.op("add", &[tanh, one]);
                let product = nodes.op("mul", &[halved, sum]);
                nodes.cast(product, kind)
            }
            Pointwise::GeluErf => {
                let x = nodes.cast(terms[0], Kind::F32);
                let (half, root) = (nodes.number(0.5, Kind::F32), nodes.number(0.7, Kind::F32));
                let one = nodes.number(1.0, Kind::F32);
                let halved = nodes.op("mul", &[x, half]);
                let inner = nodes.op("mul", &[x, root]);
                let erf = nodes.op("erf", &[inner]);
                let sum = nodes.op("add", &[erf, one]);
                let product = nodes.op("mul", &[halved, sum]);
                nodes.cast(product, kind)
            }
            // With numbers on both sides, or on one: `clamp`, and `min` or `max` by a number.
            Pointwise::Clamp => {
                let wide: Vec<Term> = terms.iter().map(|&t| nodes.cast(t, Kind::F32)).collect();
                let low = nodes.op("max", &[wide[0], wide[1]]);
                let both = nodes.op("min", &[low, wide[2]]);
                nodes.cast(both, kind)
            }
            Pointwise::Min | Pointwise::Max if terms.iter().any(|t| t.number.is_some()) => {
                let wide: Vec<Term> = terms.iter().map(|&t| nodes.cast(t, Kind::F32)).collect();
                let bounded = nodes.op(op.name(), &wide);
                nodes.cast(bounded, kind)
            }
            Pointwise::Softcap => {
                let quotient = nodes.op("div", terms);
                let tanh = nodes.op("tanh", &[quotient]);
                nodes.op("mul", &[tanh, terms[1]])
            }
            _ => nodes.op(op.name(), terms),
        }
    }
}
