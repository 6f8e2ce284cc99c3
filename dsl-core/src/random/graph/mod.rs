//! Random graphs: well-typed blocks that combine every operation, with odd sizes.
//!
//! Values stay tame, so that comparing by relative error makes sense: no logarithm of a negative
//! number, no division by nearly zero, and what grows is capped.

mod attention;

use super::Rng;
use crate::dtype::DType;
use crate::format::{CodeMap, FORMATS, Group, WeightFormat};
use crate::ir::{Batch, Dim, Graph, Op, Pointwise, Reduction, Role, Type, ValueId};
use std::borrow::Cow;
use std::sync::Arc;

/// What random graphs may contain.
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions {
    /// How many steps, each of one operation or a few.
    pub steps: usize,
    /// The largest batch dim.
    pub max_rows: usize,
    /// Caches and attention.
    pub attention: bool,
    /// Casts to f16 and bf16, and caches and inputs of those types. Where a back end's sum differs
    /// in its last bit, a cast may round the other way: compare with a tolerance of 2^-7.
    pub narrow: bool,
    /// An `argmax` at the end, which a difference in the last bit may change.
    pub argmax: bool,
}

impl Default for GraphOptions {
    fn default() -> GraphOptions {
        GraphOptions { steps: 8, max_rows: 5, attention: true, narrow: true, argmax: true }
    }
}

/// A declared format: 4-bit codes into a table, in groups of 16.
pub const CURVE4: WeightFormat = WeightFormat {
    name: Cow::Borrowed("Curve4"),
    bits: 4,
    code: CodeMap::Codebook(Cow::Borrowed(&[
        -1.0, -0.625, -0.5, -0.375, -0.25, -0.1875, -0.125, -0.0625, 0.0, 0.03125, 0.09375,
        0.15625, 0.21875, 0.3125, 0.4375, 0.6875,
    ])),
    group: Some(Group { size: 16, scale: DType::F16, offset: None }),
    gguf: None,
};

const WIDTHS: [usize; 10] = [1, 3, 7, 16, 32, 33, 48, 63, 64, 96];

/// A verified graph that depends on `seed` and `options` alone. Half of them have a fixed number
/// of rows, the others a range from 1.
pub fn random_graph(seed: u64, options: GraphOptions) -> Graph {
    let mut rng = Rng::new(seed);
    let mut graph = Graph::new(&format!("random_{seed}"));
    let max = 1 + rng.below(options.max_rows.max(1));
    let rows = if rng.chance(50) {
        graph.batch = Some(Batch { name: Arc::from("B"), min: 1, max });
        Dim::batch(max, "B")
    } else {
        Dim::named(max, "B")
    };
    let mut builder = Builder { graph, rng, options, rows, index: None, pool: Vec::new() };
    builder.block();
    args_first(&builder.graph)
}

/// The same graph with its arguments before all other values, as the text form has them.
fn args_first(graph: &Graph) -> Graph {
    let mut sorted = Graph { batch: graph.batch.clone(), ..Graph::new(&graph.name) };
    let mut places = vec![ValueId(0); graph.values.len()];
    for arg in &graph.args {
        let ty = graph[arg.value].ty.clone();
        places[arg.value.index()] = sorted.arg(&arg.name, arg.role, ty);
    }
    for id in graph.ids().filter(|&id| graph[id].op != Op::Arg) {
        let value = &graph[id];
        let inputs = value.inputs.iter().map(|input| places[input.index()]).collect();
        places[id.index()] = push(&mut sorted, value.op.clone(), inputs);
        if let Some(name) = &value.name {
            sorted.set_name(places[id.index()], name);
        }
    }
    sorted.outputs = graph.outputs.iter().map(|output| places[output.index()]).collect();
    sorted
}

/// Adds an operation that fits its operands, or this file is wrong.
fn push(graph: &mut Graph, op: Op, inputs: Vec<ValueId>) -> ValueId {
    let (name, operands) = (op.name(), inputs.clone());
    match graph.push(op, inputs) {
        Ok(value) => value,
        Err(error) => panic!("a random `{name}` of {operands:?}: {error}\n{graph}"),
    }
}

/// A `[rows, width]` tensor that later steps can use.
#[derive(Clone, Copy)]
struct Row {
    value: ValueId,
    width: usize,
    /// About how large its elements are.
    size: f64,
}

struct Builder {
    graph: Graph,
    rng: Rng,
    options: GraphOptions,
    rows: Dim,
    index: Option<ValueId>,
    pool: Vec<Row>,
}

impl Builder {
    fn block(&mut self) {
        let width = self.rng.pick(&WIDTHS);
        self.input(width);
        if self.rng.chance(25) {
            self.embed();
        }
        for _ in 0..self.options.steps {
            match self.rng.below(if self.options.attention { 14 } else { 12 }) {
                0 | 1 => self.norm(),
                2 => self.linear(),
                3 => self.siblings(),
                4 => self.split(),
                5 | 6 => self.unary(),
                7 | 8 => self.binary(),
                9 => self.cast(),
                10 => self.reduce(),
                11 => self.softmax(),
                _ => self.attention(),
            }
        }
        self.results();
    }

    fn op(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        push(&mut self.graph, op, inputs.to_vec())
    }

    fn pointwise(&mut self, op: Pointwise, inputs: &[ValueId]) -> ValueId {
        self.op(Op::Pointwise(op), inputs)
    }

    fn number(&mut self, number: f32) -> ValueId {
        self.op(Op::Const(number), &[])
    }

    /// A size, with a name in half of the cases.
    fn dim(&mut self, size: usize) -> Dim {
        if self.rng.chance(50) { Dim::named(size, &format!("D{size}")) } else { Dim::literal(size) }
    }

    fn arg(&mut self, stem: &str, role: Role, ty: Type) -> ValueId {
        let name = format!("{stem}{}", self.graph.args.len());
        self.graph.arg(&name, role, ty)
    }

    /// An input of `width` elements a row.
    fn input(&mut self, width: usize) -> Row {
        let narrow = self.options.narrow && self.rng.chance(20);
        let dtype = if narrow { DType::BF16 } else { DType::F32 };
        let shape = vec![self.rows.clone(), self.dim(width)];
        let value = self.arg("x", Role::Input, Type::tensor(dtype, shape));
        self.keep(value, 1.0)
    }

    /// A vector of weights.
    fn vector(&mut self, width: usize) -> ValueId {
        let dtype = self.rng.pick(&[DType::F32, DType::F32, DType::BF16, DType::F16]);
        let shape = vec![self.dim(width)];
        self.arg("w", Role::Weight, Type::tensor(dtype, shape))
    }

    /// Makes `value` usable by later steps.
    fn keep(&mut self, value: ValueId, size: f64) -> Row {
        let (mut value, mut size) = (value, size);
        if size > 30.0 {
            let cap = self.number(4.0);
            (value, size) = (self.pointwise(Pointwise::Softcap, &[value, cap]), 4.0);
        }
        if self.rng.chance(20) {
            self.graph.set_name(value, &format!("h{}", value.0));
        }
        let width = self.graph[value].ty.shape().last().map_or(1, |dim| dim.size);
        let row = Row { value, width, size };
        self.pool.push(row);
        row
    }

    /// A usable value, often the latest.
    fn pick(&mut self) -> Row {
        let latest = self.pool.len() - 1;
        let at = if self.rng.chance(60) { latest } else { self.rng.below(latest + 1) };
        self.pool[at]
    }

    /// A usable value of the same width, perhaps the same value, perhaps a new input.
    fn partner(&mut self, width: usize) -> Row {
        let same: Vec<Row> = self.pool.iter().copied().filter(|row| row.width == width).collect();
        if self.rng.chance(15) { self.input(width) } else { self.rng.pick(&same) }
    }

    fn weight(&mut self, n: Dim, k: usize) -> ValueId {
        let fits: Vec<&WeightFormat> = FORMATS
            .iter()
            .copied()
            .chain([&CURVE4])
            .filter(|format| k.is_multiple_of(format.group_size()))
            .collect();
        let format = Arc::new(self.rng.pick(&fits).clone());
        let k = self.dim(k);
        self.arg("w", Role::Weight, Type::Weight { format, n, k })
    }

    fn product(&mut self, x: Row, n: Dim) -> ValueId {
        let weight = self.weight(n, x.width);
        self.op(Op::Linear, &[x.value, weight])
    }

    fn embed(&mut self) {
        let tokens = Type::tensor(DType::I32, vec![self.rows.clone()]);
        let tokens = self.arg("tokens", Role::Input, tokens);
        let n_rows = 2 + self.rng.below(40);
        let (n, k) = (Dim::named(n_rows, "V"), self.rng.pick(&WIDTHS));
        let table = self.weight(n, k);
        let value = self.op(Op::Embed, &[tokens, table]);
        self.keep(value, 1.0);
    }

    fn norm(&mut self) {
        let x = self.pick();
        let mut weight = self.vector(x.width);
        if self.rng.chance(25) {
            let one = self.number(1.0);
            weight = self.pointwise(Pointwise::Add, &[one, weight]);
        }
        let eps = self.rng.pick(&[1e-5, 1e-6, 1e-2]);
        let value = if self.rng.chance(70) {
            self.op(Op::RmsNorm { eps }, &[x.value, weight])
        } else {
            let bias = self.vector(x.width);
            self.op(Op::LayerNorm { eps: 1e-3 }, &[x.value, weight, bias])
        };
        self.keep(value, 3.0);
    }

    fn linear(&mut self) {
        let x = self.pick();
        let width = self.rng.pick(&WIDTHS);
        let n = self.dim(width);
        let mut value = self.product(x, n);
        if self.rng.chance(30) {
            let bias = self.vector(width);
            value = self.pointwise(Pointwise::Add, &[value, bias]);
        }
        self.keep(value, 2.0 * x.size + 1.0);
    }

    /// Two products of one input, gated or kept apart.
    fn siblings(&mut self) {
        let x = self.pick();
        let width = self.rng.pick(&WIDTHS);
        let n = self.dim(width);
        let gate = self.product(x, n.clone());
        let up = self.product(x, n);
        if self.rng.chance(70) {
            let op = self.rng.pick(&[Pointwise::Silu, Pointwise::GeluTanh, Pointwise::GeluErf]);
            let gate = self.pointwise(op, &[gate]);
            let value = self.pointwise(Pointwise::Mul, &[gate, up]);
            self.keep(value, 4.0 * x.size * x.size);
        } else {
            self.keep(gate, 2.0 * x.size);
            self.keep(up, 2.0 * x.size);
        }
    }

    fn split(&mut self) {
        let x = self.pick();
        if x.width < 2 {
            return self.linear();
        }
        let first = 1 + self.rng.below(x.width - 1);
        for (start, len) in [(0, first), (first, x.width - first)] {
            let len = self.dim(len);
            let value = self.op(Op::Slice { start, len }, &[x.value]);
            self.keep(value, x.size);
        }
    }

    fn unary(&mut self) {
        let x = self.pick();
        let op = self.rng.pick(Pointwise::ALL);
        let (value, size) = match op {
            Pointwise::Exp => {
                let x = self.pointwise(Pointwise::Tanh, &[x.value]);
                (self.pointwise(op, &[x]), 3.0)
            }
            Pointwise::Log | Pointwise::Recip | Pointwise::Sqrt | Pointwise::Rsqrt => {
                let x = self.square_plus(x.value, 1.5);
                (self.pointwise(op, &[x]), 7.0)
            }
            Pointwise::Neg
            | Pointwise::Silu
            | Pointwise::GeluTanh
            | Pointwise::GeluErf
            | Pointwise::Relu => (self.pointwise(op, &[x.value]), x.size),
            Pointwise::Sigmoid | Pointwise::Tanh => (self.pointwise(op, &[x.value]), 1.0),
            _ => return self.binary(),
        };
        self.keep(value, size);
    }

    /// `x² + number`, which is no less than `number`.
    fn square_plus(&mut self, x: ValueId, number: f32) -> ValueId {
        let square = self.pointwise(Pointwise::Mul, &[x, x]);
        let number = self.number(number);
        self.pointwise(Pointwise::Add, &[square, number])
    }

    fn binary(&mut self) {
        let a = self.pick();
        let b = self.second(a.width);
        let op = self.rng.pick(Pointwise::ALL);
        let (value, size) = match op {
            Pointwise::Mul => {
                // One factor of at most 1.
                let b = self.pointwise(Pointwise::Tanh, &[b.value]);
                (self.pointwise(op, &[a.value, b]), a.size)
            }
            Pointwise::Div => {
                let b = self.square_plus(b.value, 1.0);
                (self.pointwise(op, &[a.value, b]), a.size)
            }
            Pointwise::Lt
            | Pointwise::Le
            | Pointwise::Gt
            | Pointwise::Ge
            | Pointwise::Eq
            | Pointwise::Ne => {
                let mask = self.pointwise(op, &[a.value, b.value]);
                let c = self.second(a.width);
                let value = self.pointwise(Pointwise::Select, &[mask, a.value, c.value]);
                (value, a.size.max(c.size))
            }
            Pointwise::Clamp => {
                let (low, high) = (self.number(-1.5), self.number(2.0));
                (self.pointwise(op, &[a.value, low, high]), 2.0)
            }
            Pointwise::Softcap => {
                let cap = self.number(3.0);
                (self.pointwise(op, &[a.value, cap]), 3.0)
            }
            Pointwise::Sub | Pointwise::Min | Pointwise::Max => {
                (self.pointwise(op, &[b.value, a.value]), a.size + b.size)
            }
            _ => (self.pointwise(Pointwise::Add, &[a.value, b.value]), a.size + b.size),
        };
        self.keep(value, size);
    }

    /// What broadcasts with rows of `width`: such a row, a vector, one number a row, a constant,
    /// or a scalar argument.
    fn second(&mut self, width: usize) -> Row {
        let (value, size) = match self.rng.below(8) {
            0 => (self.vector(width), 1.0),
            1 => {
                let x = self.pick();
                (self.op(Op::Reduce(Reduction::Mean), &[x.value]), x.size)
            }
            2 => (self.number(0.75), 1.0),
            3 => (self.arg("s", Role::Input, Type::tensor(DType::F32, Vec::new())), 1.0),
            _ => return self.partner(width),
        };
        Row { value, width, size }
    }

    fn cast(&mut self) {
        let x = self.pick();
        if !self.options.narrow {
            return self.unary();
        }
        let dtype = self.rng.pick(&[DType::BF16, DType::F16, DType::F32]);
        let value = self.op(Op::Cast(dtype), &[x.value]);
        self.keep(value, x.size);
    }

    fn reduce(&mut self) {
        let x = self.pick();
        let reduction = self.rng.pick(&Reduction::ALL);
        let value = self.op(Op::Reduce(reduction), &[x.value]);
        let size = x.size * if reduction == Reduction::Sum { x.width as f64 } else { 1.0 };
        self.keep(value, size);
    }

    fn softmax(&mut self) {
        let x = self.pick();
        let value = self.op(Op::Softmax, &[x.value]);
        self.keep(value, 1.0);
    }

    /// Returns what nothing uses, and some of what is used too.
    fn results(&mut self) {
        if self.graph.values.iter().all(|value| value.op == Op::Arg) {
            self.binary();
        }
        if self.options.argmax && self.rng.chance(30) {
            let x = self.pick();
            self.op(Op::Argmax, &[x.value]);
        }
        let users = self.graph.users();
        for id in self.graph.ids() {
            let tensor = matches!(self.graph[id].ty, Type::Tensor { .. });
            if matches!(self.graph[id].op, Op::Arg | Op::Const(_)) || !tensor {
                continue;
            }
            if users[id.index()].is_empty() || self.rng.chance(8) {
                self.graph.outputs.push(id);
            }
        }
    }
}
