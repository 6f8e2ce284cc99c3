//! Random graphs: well-typed blocks that combine every operation, with odd sizes.
//!
//! Values stay tame, so that comparing by relative error makes sense: no logarithm of a negative
//! number, no division by nearly zero, and what grows is capped.

mod attention;
mod elements;
mod pins;
mod products;
mod rows;
mod views;

use super::Rng;
use crate::dtype::DType;
use crate::format::{CodeMap, Group, WeightFormat};
use crate::ir::{Batch, Dim, Graph, Op, Pointwise, Role, Type, ValueId};
use crate::plan::schedule::LINEAR_ROWS;
use std::borrow::Cow;
use std::sync::Arc;

/// What random graphs may contain.
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions {
    /// How many steps, each of one operation or a few.
    pub steps: usize,
    /// The largest batch dim, `many_rows` aside.
    pub max_rows: usize,
    /// A few graphs of 17 to 24 rows: more than a product takes at once.
    pub many_rows: bool,
    /// Positions: caches, attention and rotation.
    pub attention: bool,
    /// Casts to f16 and bf16, and caches and inputs of those types. Where a back end's sum differs
    /// in its last bit, a cast may round the other way: compare with a tolerance of 2^-7.
    pub narrow: bool,
    /// An `argmax` at the end, which a difference in the last bit may change.
    pub argmax: bool,
    /// Pins on some values. They are drawn last: without them, the graph of a seed is the same.
    pub pins: bool,
}

impl Default for GraphOptions {
    fn default() -> GraphOptions {
        GraphOptions {
            steps: 8,
            max_rows: 5,
            many_rows: true,
            attention: true,
            narrow: true,
            argmax: true,
            pins: false,
        }
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

/// Elements of rows. 16 and 32 are one group of a format.
const WIDTHS: [usize; 11] = [1, 3, 7, 16, 32, 33, 48, 63, 64, 65, 96];

/// A verified graph that depends on `seed` and `options` alone. Half of them have a fixed number
/// of rows, the others a range from 1.
pub fn random_graph(seed: u64, options: GraphOptions) -> Graph {
    let mut rng = Rng::new(seed);
    let mut graph = Graph::new(&format!("random_{seed}"));
    let max = match options.many_rows && rng.chance(4) {
        true => LINEAR_ROWS + 1 + rng.below(8),
        false => 1 + rng.below(options.max_rows.max(1)),
    };
    let rows = if rng.chance(50) {
        graph.batch = Some(Batch { name: Arc::from("B"), min: 1, max });
        Dim::batch(max, "B")
    } else {
        Dim::named(max, "B")
    };
    let (pool, returned) = (Vec::new(), Vec::new());
    let mut builder = Builder { graph, rng, options, rows, index: None, pool, returned };
    builder.block();
    let mut graph = args_first(&builder.graph);
    if options.pins {
        pins::pin_some(&mut graph, &mut builder.rng);
    }
    graph
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
    /// Values that are results whatever uses them.
    returned: Vec<ValueId>,
}

impl Builder {
    fn block(&mut self) {
        let width = self.rng.pick(&WIDTHS);
        self.input(width);
        if self.rng.chance(25) {
            self.embed();
        }
        for _ in 0..self.options.steps {
            match self.rng.below(if self.options.attention { 21 } else { 18 }) {
                0 | 1 => self.norm(),
                2 => self.linear(),
                3 => self.siblings(),
                4 => self.chain(),
                5 => self.fan_out(),
                6 => self.split(),
                7 => self.in_heads(),
                8 => self.fold(),
                9 | 10 => self.unary(),
                11 | 12 => self.binary(),
                13 => self.with_constant(),
                14 => self.cast(),
                15 => self.reduce(),
                16 => self.softmax(),
                17 => self.apart(),
                18 => self.rotations(),
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

    /// Two operands in either order.
    fn either(&mut self, a: ValueId, b: ValueId) -> [ValueId; 2] {
        if self.rng.chance(50) { [a, b] } else { [b, a] }
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
        let dtype = self.input_dtype();
        let shape = vec![self.rows.clone(), self.dim(width)];
        let value = self.arg("x", Role::Input, Type::tensor(dtype, shape));
        self.keep(value, 1.0)
    }

    fn input_dtype(&mut self) -> DType {
        let narrow = self.options.narrow && self.rng.chance(20);
        if narrow { self.rng.pick(&[DType::BF16, DType::F16]) } else { DType::F32 }
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

    /// Returns what nothing uses, and some of what is used too.
    fn results(&mut self) {
        if self.options.argmax && self.rng.chance(30) {
            let x = self.pick();
            self.op(Op::Argmax, &[x.value]);
        }
        if self.options.narrow && self.rng.chance(15) {
            self.cast();
        }
        if self.ends().is_empty() {
            self.binary();
        }
        let ends = self.ends();
        for id in self.graph.ids() {
            if !is_computed(&self.graph, id) {
                continue;
            }
            if ends.contains(&id) || self.returned.contains(&id) || self.rng.chance(8) {
                self.graph.outputs.push(id);
            }
        }
    }

    /// Computed tensors that nothing uses.
    fn ends(&self) -> Vec<ValueId> {
        let users = self.graph.users();
        let unused = |id: &ValueId| users[id.index()].is_empty() && is_computed(&self.graph, *id);
        self.graph.ids().filter(unused).collect()
    }
}

/// Whether a value can be a result.
pub(super) fn is_computed(graph: &Graph, id: ValueId) -> bool {
    let tensor = matches!(graph[id].ty, Type::Tensor { .. });
    tensor && !matches!(graph[id].op, Op::Arg | Op::Const(_))
}
