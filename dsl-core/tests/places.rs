//! A sweep over operation counts on both sides of a product: nothing as large as the product is
//! stored, and no place would be cheaper than the one that is chosen.

use fuseline_core::ir::Graph;
use fuseline_core::plan::{OperandPlace, Options, Place, Plan, compile, compile_at};

fn parse(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|error| panic!("{text}{error}"))
}

/// `n` operations, one after the other, on value `x`: the lines, and the last value.
fn chain(first: usize, x: usize, n: usize, shape: &str) -> (String, usize) {
    let (mut text, mut x) = (String::new(), x);
    for step in 0..n {
        let op = ["neg", "tanh", "relu", "silu"][step % 4];
        text += &format!("%{} = {op} %{x} : f32{shape}\n", first + step);
        x = first + step;
    }
    (text, x)
}

const DECLARED: &str = "format Int4 bits=4 code=unsigned(8) group=32 scale=bf16
format Curve bits=4 code=codebook(-1.0,-0.7,-0.5,-0.4,-0.3,-0.2,-0.1,0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.8,1.0) group=32 scale=f32
";

/// A linear behind a chain of `n` operations.
fn linear(n: usize, format: &str, m: usize, outputs: usize, k: usize) -> Graph {
    let declared: String = DECLARED
        .lines()
        .filter(|line| line.starts_with(&format!("format {format} ")))
        .map(|line| format!("{line}\n"))
        .collect();
    let shape = format!("[M:{m}, K:{k}]");
    let (lines, x) = chain(2, 0, n, &shape);
    parse(&format!(
        "block product\n{declared}arg %0 x input bf16{shape}\narg %1 w weight {format}{{N:{outputs}, K:{k}}}\n\
         {lines}%{y} = linear %{x} %1 : f32[M:{m}, N:{outputs}]\nreturn %{y}\n",
        y = n + 2
    ))
}

fn total_ns(plan: &Plan) -> f64 {
    plan.kernels().iter().map(|kernel| kernel.cost.ns).sum()
}

fn most_stored(plan: &Plan) -> usize {
    let graph = plan.graph();
    let stored = graph.ids().filter(|&id| matches!(plan.place(id), Place::Scratch(_)));
    stored.map(|id| graph[id].ty.elements()).max().unwrap_or(0)
}

#[test]
fn no_place_is_cheaper_than_the_chosen_one() {
    let mut chosen = std::collections::BTreeMap::new();
    for format in ["Int4", "Curve", "Q8_0", "bf16"] {
        for (m, outputs, k) in
            [(1, 2560, 9216), (1, 1, 4096), (1, 63, 96), (2, 4096, 576), (16, 257, 1024)]
        {
            for n in 1..=64 {
                let graph = linear(n, format, m, outputs, k);
                let plan = compile(&graph, &Options::default()).unwrap();
                assert!(most_stored(&plan) <= m * k + m * outputs, "{graph}{}", plan.explain());
                for place in OperandPlace::ALL {
                    let other = compile_at(&graph, place).unwrap();
                    assert!(most_stored(&other) <= m * k + m * outputs);
                    // Gains are compared in steps of 10 ns.
                    let (ours, theirs) = (total_ns(&plan), total_ns(&other));
                    let message = format!("{place}\n{}\n{}", plan.explain(), other.explain());
                    assert!(ours <= theirs + 10.0, "{ours} against {theirs} at {message}");
                }
                let place = OperandPlace::ALL
                    .into_iter()
                    .find(|place| plan.explain().contains(&format!("  {place}: ")));
                *chosen.entry(place.map_or("scratch", OperandPlace::name)).or_insert(0) += 1;
            }
        }
    }
    // A block holds eight outputs, so computing the operand in each of them is never cheaper.
    let places: Vec<&str> = chosen.keys().copied().collect();
    assert_eq!(places, ["scratch", "shared"], "{chosen:?}");
}

/// A product that the program writes out itself, with a chain on either side.
fn written_out(n: usize, m: usize, exchanged: bool, reduction: &str) -> Graph {
    const N: usize = 2560;
    const K: usize = 9216;
    let (left, x) = chain(2, 0, n, &format!("[1, K:{K}]"));
    let (right, w) = chain(2 + n, 1, m, &format!("[N:{N}, K:{K}]"));
    let (a, b) = if exchanged { (w, x) } else { (x, w) };
    let width = if reduction == "softmax" { format!("K:{K}") } else { "1".to_string() };
    let y = 2 + n + m;
    parse(&format!(
        "block sums\narg %0 x input f32[1, K:{K}]\narg %1 w weight f32[N:{N}, K:{K}]\n{left}{right}\
         %{y} = mul %{a} %{b} : f32[N:{N}, K:{K}]\n%{z} = {reduction} %{y} : f32[N:{N}, {width}]\nreturn %{z}\n",
        z = y + 1
    ))
}

#[test]
fn products_that_programs_write_out_are_not_stored() {
    for reduction in ["row_sum", "row_max", "softmax"] {
        for n in (1..=64).step_by(if reduction == "row_sum" { 3 } else { 21 }) {
            for m in (1..=64).step_by(if reduction == "row_sum" { 7 } else { 21 }) {
                let graph = written_out(n, m, n % 2 == m % 2, reduction);
                let plan = compile(&graph, &Options::default()).unwrap();
                // What a softmax is taken of may be stored: its result is as large.
                let limit = if reduction == "softmax" { 9216 * 2560 } else { 9216 + 2560 };
                assert!(most_stored(&plan) <= limit, "{graph}{}", plan.explain());
            }
        }
    }
}
