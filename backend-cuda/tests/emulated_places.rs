//! Products of an expression with a weight, at every place where the expression can be computed,
//! and by the field's decisions: each against the oracle, without a GPU.

mod emulator;

use emulator::{in_parallel, required};
use fuseline_core::cases::relative_error;
use fuseline_core::field::{self, Rules};
use fuseline_core::ir::{Graph, Op};
use fuseline_core::oracle;
use fuseline_core::plan::{OperandPlace, Options, Plan, compile, compile_at};
use fuseline_core::random::random_args;
use fuseline_cuda::emulate::{self, Emulator};

/// A chain of `n` operations on one side of a product, a weight or a chain of `m` on the other.
fn product(n: usize, format: &str, rows: usize, (outputs, k): (usize, usize)) -> Graph {
    let declared = match format {
        "Int4" => "format Int4 bits=4 code=unsigned(8) group=32 scale=bf16\n",
        _ => "",
    };
    let mut text = format!(
        "block product
{declared}arg %0 g input bf16[R:{rows}, K:{k}]
arg %1 u input bf16[R:{rows}, K:{k}]
arg %2 w weight {format}{{N:{outputs}, K:{k}}}
%3 = silu %0 : f32[R:{rows}, K:{k}]
%4 = mul %3 %1 : f32[R:{rows}, K:{k}]
"
    );
    let mut x = 4;
    for step in 0..n {
        let op = ["tanh", "neg"][step % 2];
        text += &format!("%{} = {op} %{x} : f32[R:{rows}, K:{k}]\n", x + 1);
        x += 1;
    }
    let y = x + 1;
    text += &format!("%{y} = linear %{x} %2 : f32[R:{rows}, N:{outputs}]\nreturn %{y}\n");
    Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"))
}

/// A sum over products that the program writes itself, as `[N, K]` or with operands exchanged.
fn written_out(n: usize, m: usize, exchanged: bool, (outputs, k): (usize, usize)) -> Graph {
    let mut text = format!(
        "block sums
arg %0 x input f32[1, K:{k}]
arg %1 w weight f32[N:{outputs}, K:{k}]
"
    );
    let mut next = 2;
    let mut chain = |x: usize, n: usize, shape: &str| {
        let mut x = x;
        for step in 0..n {
            let op = ["tanh", "neg"][step % 2];
            text += &format!("%{next} = {op} %{x} : f32{shape}\n");
            (x, next) = (next, next + 1);
        }
        x
    };
    let x = chain(0, n, &format!("[1, K:{k}]"));
    let w = chain(1, m, &format!("[N:{outputs}, K:{k}]"));
    let (a, b) = if exchanged { (w, x) } else { (x, w) };
    text += &format!(
        "%{next} = mul %{a} %{b} : f32[N:{outputs}, K:{k}]
%{y} = row_sum %{next} : f32[N:{outputs}, 1]
return %{y}
",
        y = next + 1
    );
    Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"))
}

fn run(emulator: &Emulator, plan: &Plan, rows: usize) -> emulate::Result<Vec<Vec<f64>>> {
    let args = random_args(plan.graph(), rows, 3);
    let mut process = emulator.start()?;
    let source = fuseline_cuda::emit::source(std::slice::from_ref(plan));
    let number = process.open(&emulator.compile(&[&source])?)?;
    Ok(emulate::run(&mut process, number, plan, rows, &args)?.results)
}

/// No value between kernels has more than `M · K + M · N` elements.
fn assert_no_product(graph: &Graph, plan: &Plan, rows: usize, (outputs, k): (usize, usize)) {
    use fuseline_core::plan::Place;
    for id in plan.graph().ids() {
        if let Place::Scratch(_) = plan.place(id) {
            let elements = plan.graph()[id].ty.elements();
            assert!(elements <= rows * (k + outputs), "{graph}{}", plan.explain());
        }
    }
}

#[test]
fn every_place_gives_the_same_numbers() {
    let Some(emulator) = required(emulate::Options::default()) else { return };
    let mut jobs: Vec<(String, Graph, Plan, usize)> = Vec::new();
    for (n, format, rows, dims) in [
        (0, "Int4", 1, (33, 96)),
        (9, "Int4", 1, (1, 64)),
        (30, "Q8_0", 2, (65, 32)),
        (3, "Q4_1", 3, (8, 160)),
        (5, "bf16", 1, (17, 50)),
    ] {
        let graph = product(n, format, rows, dims);
        for place in OperandPlace::ALL {
            let plan = compile_at(&graph, place).unwrap();
            assert_no_product(&graph, &plan, rows, dims);
            let name = format!("{n} operations, {format}, {rows} rows, {dims:?}, {place}");
            // What counts too many operations is not computed inline.
            let is_legal = place != OperandPlace::Inline || n < 20;
            let says = |place: OperandPlace| plan.explain().contains(&format!("  {place}: "));
            match place {
                OperandPlace::Scratch => assert_eq!(plan.n_launches(), 2, "{name}"),
                _ => assert_eq!(says(place), is_legal, "{name}: {}", plan.explain()),
            }
            jobs.push((name, graph.clone(), plan, rows));
        }
        for rules in [Rules::default(), Rules { decomposes: false, ..Rules::default() }] {
            let plan = field::plan(&graph, &rules).unwrap();
            jobs.push((format!("{n}, {format}, {dims:?}, {rules:?}"), graph.clone(), plan, rows));
        }
    }
    for (n, m) in [(0, 0), (1, 20), (20, 1), (12, 12)] {
        for exchanged in [false, true] {
            let graph = written_out(n, m, exchanged, (9, 130));
            let plan = compile(&graph, &Options::default()).unwrap();
            jobs.push((format!("{n} and {m} operations"), graph.clone(), plan, 1));
            let plan = field::plan(&graph, &Rules { max_ops: 15, ..Rules::default() }).unwrap();
            jobs.push((format!("{n} and {m} operations, the field's"), graph, plan, 1));
        }
    }
    let faults = in_parallel(&jobs, |(name, graph, plan, rows)| {
        let found = run(&emulator, plan, *rows).map_err(|error| format!("{name}: {error}"))?;
        // The graph as the program wrote it, not the plan's.
        let expected = oracle::run(graph, *rows, &mut random_args(graph, *rows, 3)).unwrap();
        let error = relative_error(&expected[0], &found[0]);
        if error < 2e-5 { Ok(()) } else { Err(format!("{name}: error {error:e}")) }
    });
    let faults: Vec<String> = faults.into_iter().filter_map(Result::err).collect();
    println!("{} plans", jobs.len());
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Where the field's rule writes the product, its plan has the product buffer, and ours has not.
#[test]
fn the_fields_plan_has_the_product_buffer() {
    let graph = product(20, "Int4", 1, (33, 96));
    let ours = compile(&graph, &Options::default()).unwrap();
    let theirs = field::plan(&graph, &Rules { max_ops: 40, ..Rules::default() }).unwrap();
    assert!(!ours.has_product_buffer());
    assert!(theirs.has_product_buffer());
    let graph = theirs.graph();
    let stored = |id| matches!(theirs.place(id), fuseline_core::plan::Place::Scratch(_));
    let products = graph.ids().filter(|&id| stored(id) && graph[id].ty.elements() == 33 * 96);
    assert_eq!(products.count(), 1, "{}", theirs.explain());
    let dequantizes = graph.values.iter().filter(|value| value.op == Op::Dequantize).count();
    assert_eq!(dequantizes, 1);
}
