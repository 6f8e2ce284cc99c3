//! What random graphs contain, that they are tame, and that each has a plan.

use fuseline_core::dtype::DType;
use fuseline_core::format::FORMATS;
use fuseline_core::ir::{Graph, Op, Pairing, Pin, Pointwise, Reduction, Role, Type, ValueId};
use fuseline_core::oracle::{Datum, run, run_all};
use fuseline_core::plan::{Options, Place, compile};
use fuseline_core::random::{CURVE4, GraphOptions, Rng, random_args, random_graph};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Results of random graphs are numbers, mostly not zero and not huge, and the same each time.
#[test]
fn random_graphs_are_tame() {
    let (mut n_elements, mut n_zeros) = (0, 0);
    for seed in 0..300 {
        let graph = random_graph(seed, GraphOptions::default());
        graph.verify().unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{graph}"));
        let rows = graph.batch.as_ref().map_or(1, |batch| batch.max);
        let mut args = random_args(&graph, rows, seed);
        let mut same_args = random_args(&graph, rows, seed);
        let values = run_all(&graph, rows, &mut args).unwrap();
        for (id, value) in graph.ids().zip(&values) {
            let Some(elements) = value else { continue };
            let index = graph[id].ty.dtype() == DType::I32;
            for x in elements {
                assert!(
                    x.is_finite() && (index || x.abs() < 1e5),
                    "seed {seed}, {id}: {x}\n{graph}"
                );
            }
            n_elements += elements.len();
            n_zeros += elements.iter().filter(|&&x| x == 0.0).count();
        }
        let results = run(&graph, rows, &mut same_args).unwrap();
        for (output, result) in graph.outputs.iter().zip(&results) {
            assert_eq!(values[output.index()].as_ref(), Some(result));
        }
        // A call without rows is empty.
        if graph.batch.is_some() {
            let results = run(&graph, 0, &mut random_args(&graph, 0, seed)).unwrap();
            for (&output, result) in graph.outputs.iter().zip(&results) {
                assert_eq!(result.is_empty(), graph[output].ty.has_batch());
            }
        }
    }
    assert!(n_zeros * 5 < n_elements, "{n_zeros} of {n_elements} elements are zero");
}

/// A few hundred seeds reach everything that a graph can have.
#[test]
fn random_graphs_have_everything() {
    let mut missing: Vec<String> = Pointwise::ALL.iter().map(|op| op.name().to_string()).collect();
    missing.retain(|name| name != Pointwise::Round.name());
    missing.extend(Reduction::ALL.map(|reduction| reduction.row_name().to_string()));
    missing.extend(Pairing::ALL.map(|pairing| format!("{pairing:?}")));
    let small = FORMATS.iter().filter(|format| format.group_size() <= 32);
    missing.extend(small.map(|format| format!("format {}", format.name)));
    missing.push(format!("format {}", CURVE4.name));
    for word in [
        "arg",
        "const",
        "to",
        "softmax",
        "argmax",
        "rms_norm",
        "layer_norm",
        "linear",
        "slice",
        "reshape",
        "rope",
        "append",
        "attend",
        "embed",
        "partial",
        "window",
        "softcap on scores",
        "sinks",
        "operand",
        "grouped heads",
        "used result",
        "fixed",
        "ranged",
        "two rows of one sequence",
        "scalar argument",
        "shared input",
    ]
    .iter()
    .chain(&SHAPES)
    .chain(&USES)
    {
        missing.push(word.to_string());
    }
    for seed in 0..300 {
        let graph = random_graph(seed, GraphOptions::default());
        let users = graph.users();
        let mut found = Vec::new();
        found.push(if graph.batch.is_some() { "ranged" } else { "fixed" }.to_string());
        for id in graph.ids() {
            let value = &graph[id];
            found.push(value.op.name().to_string());
            let linears = users[id.index()].iter().filter(|&&user| graph[user].op == Op::Linear);
            found.extend((linears.count() > 1).then(|| "shared input".to_string()));
            let used = graph.outputs.contains(&id) && !users[id.index()].is_empty();
            found.extend(used.then(|| "used result".to_string()));
            match (&value.op, &value.ty) {
                (Op::Arg, Type::Weight { format, .. }) => {
                    found.push(format!("format {}", format.name))
                }
                (Op::Arg, Type::Tensor { shape, .. }) if shape.is_empty() => {
                    found.push("scalar argument".to_string());
                }
                (Op::Rope { pairing, rotary, .. }, ty) => {
                    found.push(format!("{pairing:?}"));
                    found.extend((rotary + 1 < ty.shape()[2].size).then(|| "partial".to_string()));
                }
                (Op::Attend { window, softcap, sinks, operand, .. }, ty) => {
                    found.extend(window.map(|_| "window".to_string()));
                    found.extend(softcap.map(|_| "softcap on scores".to_string()));
                    found.extend(sinks.then(|| "sinks".to_string()));
                    found.extend((*operand == DType::BF16).then(|| "operand".to_string()));
                    let Type::Cache { kv_heads, .. } = &graph[value.inputs[1]].ty else { continue };
                    let grouped = ty.shape()[1].size > kv_heads.size;
                    found.extend(grouped.then(|| "grouped heads".to_string()));
                }
                _ => {}
            }
        }
        found.extend(shapes(&graph).into_iter().chain(uses(&graph)).map(str::to_string));
        let rows = graph.values.iter().find_map(|value| match &value.ty {
            Type::Index { rows } => Some(rows.size),
            _ => None,
        });
        for datum in random_args(&graph, rows.unwrap_or(1), seed) {
            if let Datum::Index { positions, sequences } = datum {
                let mut places: Vec<_> = sequences.iter().zip(&positions).collect();
                places.sort();
                let shared = places.windows(2).any(|pair| pair[0].0 == pair[1].0);
                found.extend(shared.then(|| "two rows of one sequence".to_string()));
                assert!(
                    places.windows(2).all(|pair| pair[0] != pair[1]),
                    "seed {seed}: one place twice"
                );
            }
        }
        missing.retain(|word| !found.contains(word));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// Sizes and types that [`shapes`] finds.
const SHAPES: [&str; 20] = [
    "negative constant",
    "head of 1",
    "head of 2",
    "head of 40",
    "head of 80",
    "head of 2 rotates",
    "one group",
    "product of 1",
    "product of 65",
    "many ranged rows",
    "many fixed rows",
    "many rows of a product",
    "argument of f16",
    "argument of bf16",
    "result of f16",
    "result of bf16",
    "batched and fixed results",
    "as many elements in both",
    "row without batch",
    "rank 4",
];

fn shapes(graph: &Graph) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut see = |word, seen: bool| found.extend(seen.then_some(word));
    for id in graph.ids() {
        let value = &graph[id];
        let input = |index: usize| &graph[value.inputs[index]].ty;
        let rows = value.ty.shape().first().map_or(0, |dim| dim.size);
        see("many ranged rows", value.ty.has_batch() && rows > 16);
        see("rank 4", value.ty.shape().len() == 4);
        match &value.op {
            Op::Const(number) => see("negative constant", *number < 0.0),
            Op::Arg => {
                see("argument of f16", is_input(graph, id) && value.ty.dtype() == DType::F16);
                see("argument of bf16", is_input(graph, id) && value.ty.dtype() == DType::BF16);
            }
            Op::Attend { .. } => {
                let head_dim = value.ty.shape()[2].size;
                see("head of 1", head_dim == 1);
                see("head of 2", head_dim == 2);
                see("head of 40", head_dim == 40);
                see("head of 80", head_dim == 80);
                see("many fixed rows", !value.ty.has_batch() && rows > 16);
            }
            Op::Rope { .. } => see("head of 2 rotates", value.ty.shape()[2].size == 2),
            Op::Linear => {
                let Type::Weight { format, n, k } = input(1) else { continue };
                see("one group", format.group.is_some_and(|group| group.size == k.size));
                see("product of 1", n.size == 1);
                see("product of 65", n.size == 65);
                see("many rows of a product", value.ty.elements() / n.size > 16);
            }
            op if op.is_row() => {
                see("row without batch", graph.batch.is_some() && !input(0).has_batch());
            }
            _ => {}
        }
    }
    let results: Vec<&Type> = graph.outputs.iter().map(|&output| &graph[output].ty).collect();
    see("result of f16", results.iter().any(|ty| ty.dtype() == DType::F16));
    see("result of bf16", results.iter().any(|ty| ty.dtype() == DType::BF16));
    let (batched, fixed): (Vec<&Type>, Vec<&Type>) = results.iter().partition(|ty| ty.has_batch());
    see("batched and fixed results", !batched.is_empty() && !fixed.is_empty());
    let equal = |ty: &&Type| batched.iter().any(|batched| batched.elements() == ty.elements());
    see("as many elements in both", fixed.iter().any(equal));
    found
}

/// Uses of values that [`uses`] finds.
const USES: [&str; 17] = [
    "neg of a negative constant",
    "operation on constants",
    "constant first",
    "constant second",
    "broadcast first",
    "broadcast second",
    "both broadcast",
    "two pairings of one product",
    "norm, product and elements of one value",
    "product of a product",
    "append of a result",
    "append of an argument",
    "append that nothing reads",
    "view of a result",
    "view of an argument",
    "view of a view",
    "view that is a result",
];

fn uses(graph: &Graph) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut see = |word, seen: bool| found.extend(seen.then_some(word));
    let users = graph.users();
    for id in graph.ids() {
        let value = &graph[id];
        let users = &users[id.index()];
        let is_result = graph.outputs.contains(&id);
        let is_const = |at: usize| matches!(graph[value.inputs[at]].op, Op::Const(_));
        let n_elements = |at: usize| graph[value.inputs[at]].ty.elements();
        let is_used_by = |wanted: fn(&Op) -> bool| users.iter().any(|&id| wanted(&graph[id].op));
        match &value.op {
            Op::Pointwise(Pointwise::Neg) => {
                let operand = &graph[value.inputs[0]].op;
                let negative = matches!(operand, Op::Const(number) if *number < 0.0);
                see("neg of a negative constant", negative);
            }
            Op::Pointwise(op) if op.arity() == 2 => {
                see("operation on constants", is_const(0) && is_const(1));
                see("constant first", is_const(0) && !is_const(1));
                see("constant second", !is_const(0) && is_const(1));
                let n = value.ty.elements();
                see("broadcast first", n_elements(0) < n && n_elements(1) == n);
                see("broadcast second", n_elements(0) == n && n_elements(1) < n);
                see("both broadcast", n_elements(0) < n && n_elements(1) < n);
            }
            Op::Linear => {
                let mut pairings = graph.values.iter().filter_map(|rotated| match rotated.op {
                    Op::Rope { pairing, .. } if graph.base(rotated.inputs[0]) == id => {
                        Some(pairing)
                    }
                    _ => None,
                });
                let first = pairings.next();
                see("two pairings of one product", pairings.any(|other| Some(other) != first));
                see("product of a product", graph[value.inputs[0]].op == Op::Linear);
            }
            Op::Append => {
                let is_argument = |&input: &ValueId| is_input(graph, graph.base(input));
                let stored = &value.inputs[1..3];
                see("append of a result", stored.iter().any(|id| graph.outputs.contains(id)));
                see("append of an argument", stored.iter().any(is_argument));
                see("append that nothing reads", users.is_empty());
            }
            op if op.is_view() => {
                let input = value.inputs[0];
                see("view of a result", graph.outputs.contains(&input));
                see("view of an argument", graph[input].op == Op::Arg);
                see("view of a view", graph[input].op.is_view());
                see("view that is a result", is_result);
            }
            _ => {}
        }
        let every = is_used_by(|op| matches!(op, Op::RmsNorm { .. } | Op::LayerNorm { .. }))
            && is_used_by(|op| *op == Op::Linear)
            && is_used_by(|op| matches!(op, Op::Pointwise(_)));
        see("norm, product and elements of one value", every);
    }
    found
}

/// Whether a value is a tensor that each call brings.
fn is_input(graph: &Graph, id: ValueId) -> bool {
    let arg = graph.arg_of(id);
    let tensor = matches!(graph[id].ty, Type::Tensor { .. });
    tensor && arg.is_some_and(|arg| arg.role == Role::Input)
}

/// Every random graph has a plan for each of its buckets, fused or not.
#[test]
fn random_graphs_have_plans() {
    let mut faults = Vec::new();
    for seed in 0..300 {
        let steps = 1 + seed as usize % 14;
        let graph = random_graph(seed, GraphOptions { steps, ..GraphOptions::default() });
        let graphs = match &graph.batch {
            Some(batch) => batch.buckets().iter().map(|&rows| graph.with_rows(rows)).collect(),
            None => vec![graph],
        };
        for (graph, fusion) in graphs.iter().flat_map(|graph| [(graph, true), (graph, false)]) {
            let plan = catch_unwind(AssertUnwindSafe(|| compile(graph, &Options { fusion })));
            if !matches!(plan, Ok(Ok(_))) {
                faults.push(format!("seed {seed}, fusion {fusion}\n{graph}"));
            }
        }
    }
    faults.sort_by_key(String::len);
    assert!(faults.is_empty(), "{} have no plan; the smallest: {}", faults.len(), faults[0]);
}

/// Pins are legal and change nothing else.
#[test]
fn random_graphs_can_have_pins() {
    let mut n_pins = [0, 0];
    for seed in 0..300 {
        let steps = 1 + seed as usize % 14;
        let options = GraphOptions { steps, ..GraphOptions::default() };
        let mut graph = random_graph(seed, GraphOptions { pins: true, ..options });
        graph.verify().unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{graph}"));
        assert_eq!(Graph::parse(&graph.to_text()).as_ref(), Ok(&graph), "seed {seed}");
        for id in graph.ids() {
            match graph[id].pin {
                Some(Pin::Materialize) => n_pins[0] += 1,
                Some(Pin::Inline) => n_pins[1] += 1,
                None => {}
            }
            graph.set_pin(id, None);
        }
        assert_eq!(graph, random_graph(seed, options), "seed {seed}");
    }
    assert!(n_pins.iter().all(|&n| n > 300), "{n_pins:?}");
}

/// What a plan without errors stores: no inlined value, and every materialized one that a result
/// needs.
#[test]
fn plans_of_random_graphs_keep_pins() {
    let (mut n_kept, mut n_refused, mut n_copied) = ([0, 0], 0, 0);
    for seed in 0..600 {
        let steps = 1 + seed as usize % 14;
        let options = GraphOptions { steps, pins: true, ..GraphOptions::default() };
        let graph = random_graph(seed, options);
        for rows in [1, 4].into_iter().take(if graph.batch.is_some() { 2 } else { 1 }) {
            let graph = graph.with_rows(rows);
            let compiled = |fusion| {
                let plan = compile(&graph, &Options { fusion });
                plan.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{graph}"))
            };
            compiled(false);
            let plan = compiled(true);
            let errors = plan.check_pins();
            let planned = plan.graph();
            n_copied += usize::from(planned.values.len() > graph.values.len());
            for id in plan.kernels().iter().flat_map(|kernel| &kernel.members) {
                let is_stored = plan.kernels().iter().any(|kernel| kernel.stores.contains(id));
                let context = || format!("seed {seed}, {id}\n{planned}{}", plan.explain());
                match planned[*id].pin {
                    Some(Pin::Inline) if is_stored => {
                        let label = format!("{} cannot be computed inline", planned.label(*id));
                        let said = errors.iter().any(|error| error.message.starts_with(&label));
                        assert!(said, "{}", context());
                    }
                    Some(Pin::Inline) => n_kept[0] += 1,
                    Some(Pin::Materialize) => {
                        assert!(is_stored && plan.place(*id) != Place::None, "{}", context());
                        n_kept[1] += 1;
                    }
                    None => {}
                }
            }
            n_refused += usize::from(!errors.is_empty());
        }
    }
    assert!(n_kept.iter().all(|&n| n > 600), "{n_kept:?}");
    assert!(n_copied > 100, "{n_copied} plans with copies");
    // None of these graphs has a pin that cannot be kept.
    assert_eq!(n_refused, 0);
}

#[test]
fn random_numbers_are_signed_and_not_zero() {
    let mut rng = Rng::new(7);
    let numbers: Vec<f64> = (0..10_000).map(|_| rng.signed()).collect();
    assert!(numbers.iter().all(|&x| x != 0.0 && x.abs() < 1.0 && f64::from(x as f32) == x));
    let mean = numbers.iter().sum::<f64>() / 10_000.0;
    assert!(mean.abs() < 0.03, "{mean}");
    assert!((0..100).all(|_| rng.below(3) < 3) && rng.below(0) == 0);
}
