//! Large graphs for tests of the planner: each kind at any size, the same every time.

use fuseline_core::dtype::DType;
use fuseline_core::format::builtin;
use fuseline_core::ir::{Dim, Graph, Op, Pin, Pointwise, Reduction, Role, Type, ValueId};
use fuseline_core::random::{GraphOptions, Rng, random_graph};
use std::sync::Arc;

/// A kind of graph: its name, and the graph of about so many operations.
pub type Kind = (&'static str, fn(n_ops: usize) -> Graph);

/// Kinds whose plans have different shapes: one long kernel, repeated layers, many consumers of
/// one kernel, many kernels without a common value, and everything at once.
pub const KINDS: [Kind; 17] = [
    ("pointwise chain", pointwise_chain),
    ("decoder layers", decoder_layers),
    ("wide fan-out", wide_fan_out),
    ("wide fan-out of chains", wide_fan_out_of_chains),
    ("wide fan-out of products", wide_fan_out_of_products),
    ("linears of a norm", linears_of_a_norm),
    ("linears of parts of a norm", linears_of_parts_of_a_norm),
    ("fan-out of much arithmetic", fan_out_of_much_arithmetic),
    ("fan-out of a large norm", fan_out_of_a_large_norm),
    ("fan-out of many rows", fan_out_of_many_rows),
    ("reductions of one value", reductions_of_one_value),
    ("inlined value", inlined_value),
    ("early value", early_value),
    ("sums of any two", sums_of_any_two),
    ("small chains", small_chains),
    ("interleaved chains", interleaved_chains),
    ("random graphs joined", random_joined),
];

const UNARY: [Pointwise; 5] =
    [Pointwise::Exp, Pointwise::Neg, Pointwise::Tanh, Pointwise::Relu, Pointwise::Silu];

fn f32s(shape: &[usize]) -> Type {
    Type::tensor(DType::F32, shape.iter().map(|&size| Dim::literal(size)).collect())
}

fn q4_1(n: usize, k: usize) -> Type {
    let (n, k) = (Dim::literal(n), Dim::literal(k));
    Type::Weight { format: Arc::new(builtin("Q4_1").unwrap().clone()), n, k }
}

fn push(graph: &mut Graph, op: Op, inputs: &[ValueId]) -> ValueId {
    graph.push(op, inputs.to_vec()).unwrap_or_else(|error| panic!("{error}\n{graph}"))
}

fn pointwise(graph: &mut Graph, op: Pointwise, inputs: &[ValueId]) -> ValueId {
    push(graph, Op::Pointwise(op), inputs)
}

fn unary(graph: &mut Graph, index: usize, x: ValueId) -> ValueId {
    pointwise(graph, UNARY[index % UNARY.len()], &[x])
}

/// Each operation reads the one before it.
pub fn pointwise_chain(n_ops: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let mut x = graph.arg("x", Role::Input, f32s(&[3, 65]));
    for index in 0..n_ops {
        x = unary(&mut graph, index, x);
    }
    graph.outputs.push(x);
    graph
}

/// Layers of 16 operations: a gated product of the normed rows and a gated MLP, each added to the
/// residual stream.
pub fn decoder_layers(n_ops: usize) -> Graph {
    const WIDTH: usize = 64;
    const HIDDEN: usize = 160;
    let mut graph = Graph::new("decoder");
    let mut x = graph.arg("x", Role::Input, f32s(&[1, WIDTH]));
    let shapes =
        [[WIDTH; 2], [WIDTH; 2], [WIDTH; 2], [HIDDEN, WIDTH], [HIDDEN, WIDTH], [WIDTH, HIDDEN]];
    let layers: Vec<([ValueId; 2], [ValueId; 6])> = (0..n_ops.div_ceil(16))
        .map(|layer| {
            let norms = [0, 1].map(|index| {
                graph.arg(&format!("norm{layer}_{index}"), Role::Weight, f32s(&[WIDTH]))
            });
            let mut index = 0;
            let weights = shapes.map(|[n, k]| {
                index += 1;
                graph.arg(&format!("w{layer}_{index}"), Role::Weight, q4_1(n, k))
            });
            (norms, weights)
        })
        .collect();
    for (norms, [q, k, o, gate, up, down]) in layers {
        let g = &mut graph;
        let h = push(g, Op::RmsNorm { eps: 1e-5 }, &[x, norms[0]]);
        let (a, b) = (push(g, Op::Linear, &[h, q]), push(g, Op::Linear, &[h, k]));
        let b = pointwise(g, Pointwise::Sigmoid, &[b]);
        let product = pointwise(g, Pointwise::Mul, &[a, b]);
        let y = push(g, Op::Linear, &[product, o]);
        x = pointwise(g, Pointwise::Add, &[x, y]);
        let h = push(g, Op::RmsNorm { eps: 1e-5 }, &[x, norms[1]]);
        let h = push(g, Op::Cast(DType::BF16), &[h]);
        let (a, b) = (push(g, Op::Linear, &[h, gate]), push(g, Op::Linear, &[h, up]));
        let a = pointwise(g, Pointwise::Silu, &[a]);
        let product = pointwise(g, Pointwise::Mul, &[a, b]);
        let y = push(g, Op::Linear, &[product, down]);
        let y = push(g, Op::Cast(DType::BF16), &[y]);
        x = pointwise(g, Pointwise::Add, &[x, y]);
    }
    graph.outputs.push(x);
    graph
}

/// Every operation but the first reads the first, and is a result.
pub fn wide_fan_out(n_ops: usize) -> Graph {
    let mut graph = Graph::new("fan_out");
    let x = graph.arg("x", Role::Input, f32s(&[3, 65]));
    let first = pointwise(&mut graph, Pointwise::Exp, &[x]);
    for index in 1..n_ops {
        let y = unary(&mut graph, index, first);
        graph.outputs.push(y);
    }
    graph
}

/// Chains of four operations that all read one product and one bias.
pub fn wide_fan_out_of_chains(n_ops: usize) -> Graph {
    let mut graph = Graph::new("fan_out_of_chains");
    let x = graph.arg("x", Role::Input, f32s(&[1, 32]));
    let bias = graph.arg("bias", Role::Weight, f32s(&[48]));
    let weight = graph.arg("w", Role::Weight, q4_1(48, 32));
    let product = push(&mut graph, Op::Linear, &[x, weight]);
    for chain in 0..n_ops / 4 {
        let mut y = pointwise(&mut graph, Pointwise::Add, &[product, bias]);
        for index in 0..3 {
            y = unary(&mut graph, chain + index, y);
        }
        graph.outputs.push(y);
    }
    graph
}

/// Products of one normed row with weights of their own, each with one operation on the result.
pub fn wide_fan_out_of_products(n_ops: usize) -> Graph {
    let mut graph = Graph::new("fan_out_of_products");
    let x = graph.arg("x", Role::Input, f32s(&[1, 32]));
    let norm = graph.arg("norm", Role::Weight, f32s(&[32]));
    let weights: Vec<ValueId> = (0..n_ops / 2)
        .map(|index| graph.arg(&format!("w{index}"), Role::Weight, q4_1(24, 32)))
        .collect();
    let h = push(&mut graph, Op::RmsNorm { eps: 1e-5 }, &[x, norm]);
    for (index, weight) in weights.into_iter().enumerate() {
        let y = push(&mut graph, Op::Linear, &[h, weight]);
        let y = unary(&mut graph, index, y);
        graph.outputs.push(y);
    }
    graph
}

/// A normed row that all linears read: none can have it as its prologue.
pub fn linears_of_a_norm(n_ops: usize) -> Graph {
    let mut graph = Graph::new("linears");
    let x = graph.arg("x", Role::Input, f32s(&[1, 64]));
    let norm = graph.arg("norm", Role::Weight, f32s(&[64]));
    let weight = graph.arg("w", Role::Weight, q4_1(32, 64));
    let h = push(&mut graph, Op::RmsNorm { eps: 1e-5 }, &[x, norm]);
    for _ in 1..n_ops {
        let y = push(&mut graph, Op::Linear, &[h, weight]);
        graph.outputs.push(y);
    }
    graph
}

/// The same through views, so that no two linears have one operand.
pub fn linears_of_parts_of_a_norm(n_ops: usize) -> Graph {
    let mut graph = Graph::new("parts");
    let x = graph.arg("x", Role::Input, f32s(&[1, 64]));
    let norm = graph.arg("norm", Role::Weight, f32s(&[64]));
    let weight = graph.arg("w", Role::Weight, q4_1(24, 32));
    let h = push(&mut graph, Op::RmsNorm { eps: 1e-5 }, &[x, norm]);
    for index in 0..n_ops / 2 {
        let slice = Op::Slice { start: index % 32, len: Dim::literal(32) };
        let part = push(&mut graph, slice, &[h]);
        let y = push(&mut graph, Op::Linear, &[part, weight]);
        graph.outputs.push(y);
    }
    graph
}

/// Operations on one value that take longer than to move what they read and write.
pub fn fan_out_of_much_arithmetic(n_ops: usize) -> Graph {
    let mut graph = Graph::new("arithmetic");
    let x = graph.arg("x", Role::Input, f32s(&[512, 4096]));
    let first = pointwise(&mut graph, Pointwise::GeluErf, &[x]);
    fan_out(graph, first, n_ops)
}

/// Operations on rows that a reduction passes over twice.
pub fn fan_out_of_a_large_norm(n_ops: usize) -> Graph {
    let mut graph = Graph::new("norm");
    let x = graph.arg("x", Role::Input, f32s(&[512, 4096]));
    let norm = graph.arg("norm", Role::Weight, f32s(&[4096]));
    let first = push(&mut graph, Op::RmsNorm { eps: 1e-5 }, &[x, norm]);
    fan_out(graph, first, n_ops)
}

/// Operations on a product of so many rows that it is arithmetic that takes the time.
pub fn fan_out_of_many_rows(n_ops: usize) -> Graph {
    let mut graph = Graph::new("rows");
    let x = graph.arg("x", Role::Input, f32s(&[16, 2048]));
    let weight = graph.arg("w", Role::Weight, q4_1(4096, 2048));
    let first = push(&mut graph, Op::Linear, &[x, weight]);
    fan_out(graph, first, n_ops)
}

fn fan_out(mut graph: Graph, first: ValueId, n_ops: usize) -> Graph {
    for index in 1..n_ops {
        let op = [Pointwise::GeluErf, Pointwise::GeluTanh, Pointwise::Tanh][index % 3];
        let y = pointwise(&mut graph, op, &[first]);
        graph.outputs.push(y);
    }
    graph
}

/// Reductions of the rows of one value, which all of them can share.
pub fn reductions_of_one_value(n_ops: usize) -> Graph {
    let mut graph = Graph::new("reductions");
    let x = graph.arg("x", Role::Input, f32s(&[64, 4096]));
    let first = pointwise(&mut graph, Pointwise::GeluErf, &[x]);
    for index in 1..n_ops {
        let op = Op::Reduce(Reduction::ALL[index % Reduction::ALL.len()]);
        let y = push(&mut graph, op, &[first]);
        graph.outputs.push(y);
    }
    graph
}

/// A value that each of its users computes, half of them through a view.
pub fn inlined_value(n_ops: usize) -> Graph {
    let mut graph = Graph::new("inlined");
    let x = graph.arg("x", Role::Input, f32s(&[4, 66]));
    let inlined = pointwise(&mut graph, Pointwise::Exp, &[x]);
    graph.set_pin(inlined, Some(Pin::Inline));
    let shape = vec![Dim::literal(8), Dim::literal(33)];
    let view = push(&mut graph, Op::Reshape { shape }, &[inlined]);
    for index in 0..n_ops / 2 {
        let y = push(&mut graph, Op::Softmax, &[[inlined, view][index % 2]]);
        graph.outputs.push(y);
    }
    graph
}

/// A chain in which every third operation reads the first value, and every fourth needs a row.
pub fn early_value(n_ops: usize) -> Graph {
    let mut graph = Graph::new("early");
    let x = graph.arg("x", Role::Input, f32s(&[3, 65]));
    let first = pointwise(&mut graph, Pointwise::Exp, &[x]);
    let mut x = first;
    for index in 1..n_ops {
        x = match index % 12 {
            3 | 6 | 9 => pointwise(&mut graph, Pointwise::Add, &[x, first]),
            4 | 8 => push(&mut graph, Op::Softmax, &[x]),
            _ => unary(&mut graph, index, x),
        };
    }
    graph.outputs.push(x);
    graph
}

/// Each operation adds any two values before it, as wide as one element or as a row.
pub fn sums_of_any_two(n_ops: usize) -> Graph {
    let mut graph = Graph::new("sums");
    let mut rng = Rng::new(5);
    let row = graph.arg("row", Role::Input, f32s(&[3, 65]));
    let column = graph.arg("column", Role::Input, f32s(&[3, 1]));
    let mut values = vec![row, column];
    for _ in 0..n_ops {
        let operands = [rng.pick(&values), rng.pick(&values)];
        let sum = pointwise(&mut graph, Pointwise::Add, &operands);
        values.push(sum);
        if rng.chance(5) {
            graph.outputs.push(sum);
        }
    }
    graph.outputs.retain(|output| *output != values[n_ops + 1]);
    graph.outputs.push(values[n_ops + 1]);
    graph
}

/// Chains of eight operations, each with an argument of its own.
pub fn small_chains(n_ops: usize) -> Graph {
    let mut graph = Graph::new("chains");
    let args = arguments(&mut graph, n_ops / 8);
    for mut x in args {
        for index in 0..8 {
            x = unary(&mut graph, index, x);
        }
        graph.outputs.push(x);
    }
    graph
}

/// The same chains, the first operation of each before the second of any.
pub fn interleaved_chains(n_ops: usize) -> Graph {
    let mut graph = Graph::new("interleaved");
    let mut values = arguments(&mut graph, n_ops / 8);
    for index in 0..8 {
        values.iter_mut().for_each(|x| *x = unary(&mut graph, index, *x));
    }
    graph.outputs = values;
    graph
}

fn arguments(graph: &mut Graph, n: usize) -> Vec<ValueId> {
    (0..n).map(|index| graph.arg(&format!("x{index}"), Role::Input, f32s(&[1, 33]))).collect()
}

/// Random graphs with a fixed number of rows, side by side.
pub fn random_joined(n_ops: usize) -> Graph {
    let mut parts = Vec::new();
    let mut left = n_ops;
    let options = GraphOptions { steps: 30, ..GraphOptions::default() };
    for seed in 0.. {
        let part = random_graph(seed, options);
        if part.batch.is_none() {
            left = left.saturating_sub(part.values.len() - part.args.len());
            parts.push(part);
        }
        if left == 0 {
            break;
        }
    }
    let mut graph = Graph::new("joined");
    let mut places: Vec<Vec<ValueId>> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut ids = vec![ValueId(0); part.values.len()];
        for arg in &part.args {
            let (name, ty) = (format!("{}_{index}", arg.name), part[arg.value].ty.clone());
            ids[arg.value.index()] = graph.arg(&name, arg.role, ty);
        }
        places.push(ids);
    }
    for (part, ids) in parts.iter().zip(&mut places) {
        for id in part.ids().filter(|&id| part[id].op != Op::Arg) {
            let inputs: Vec<ValueId> =
                part[id].inputs.iter().map(|input| ids[input.index()]).collect();
            ids[id.index()] = push(&mut graph, part[id].op.clone(), &inputs);
        }
        graph.outputs.extend(part.outputs.iter().map(|output| ids[output.index()]));
    }
    graph
}
