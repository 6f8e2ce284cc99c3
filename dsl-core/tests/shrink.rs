//! Shrinking finds the few values that a fault needs, and nothing that is no graph.

use fuseline_core::ir::{Graph, Op, Pairing, Pin, Pointwise, Type, ValueId};
use fuseline_core::oracle::run;
use fuseline_core::random::{GraphOptions, MAX_SHRINK_CALLS, random_args, random_graph, shrink};

fn has(graph: &Graph, wanted: impl Fn(&Graph, ValueId) -> bool) -> bool {
    graph.ids().any(|id| wanted(graph, id))
}

/// Whether some `outer` has an `inner` as its first operand.
fn chained(graph: &Graph, outer: fn(&Op) -> bool, inner: fn(&Op) -> bool) -> bool {
    has(graph, |graph, id| {
        let first = graph[id].inputs.first();
        outer(&graph[id].op) && first.is_some_and(|&input| inner(&graph[input].op))
    })
}

/// Shrinks, and checks what every result keeps to.
fn shrunk(graph: &Graph, fails: impl Fn(&Graph) -> bool) -> Graph {
    let mut calls = Vec::new();
    let mut ask = |candidate: &Graph| {
        candidate.verify().unwrap_or_else(|errors| panic!("{errors:?}\n{candidate}"));
        assert!(candidate.values.len() <= graph.values.len() && candidate != graph);
        assert!(!candidate.outputs.is_empty());
        calls.push(candidate.to_text());
        fails(candidate)
    };
    let small = shrink(graph, &mut ask);
    assert!(calls.len() <= MAX_SHRINK_CALLS);
    let n_calls = calls.len();
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), n_calls, "a graph is asked about once");
    assert!(fails(&small), "{small}");
    assert_eq!(shrink(graph, &mut |candidate| fails(candidate)), small, "deterministic");
    let text = small.to_text();
    let parsed = Graph::parse(&text).unwrap();
    assert_eq!((parsed.to_text(), &parsed), (text, &small));
    parsed.verify().unwrap();
    let args = small.args.iter().map(|arg| &arg.name);
    assert!(args.clone().all(|name| args.clone().filter(|other| *other == name).count() == 1));
    // What is left can be called.
    let rows = small.batch.as_ref().map_or(1, |batch| batch.max);
    run(&small, rows, &mut random_args(&small, rows, 1)).unwrap();
    small
}

/// Shrinks every random graph that fails, of the first few hundred.
fn sweep(n_least: usize, fails: impl Fn(&Graph) -> bool, check: impl Fn(&Graph)) {
    let mut n_found = 0;
    for seed in 0..400 {
        let steps = 1 + seed as usize % 20;
        let graph = random_graph(seed, GraphOptions { steps, ..GraphOptions::default() });
        if fails(&graph) {
            check(&shrunk(&graph, &fails));
            n_found += 1;
        }
    }
    assert!(n_found >= n_least, "{n_found} graphs to shrink");
}

/// An input, a weight, the product, and what is made of it.
#[test]
fn softmax_of_a_product() {
    let fails = |graph: &Graph| chained(graph, |op| *op == Op::Softmax, |op| *op == Op::Linear);
    sweep(10, fails, |small| {
        assert_eq!(small.values.len(), 4, "{small}");
        let [output] = small.outputs[..] else { panic!("one result\n{small}") };
        assert_eq!(small[output].op, Op::Softmax);
        assert!(small.batch.is_none() && small.values.iter().all(|value| !value.ty.has_batch()));
    });
}

/// An operation on what it needs, and one more.
#[test]
fn elements_of_elements() {
    let inner = |op: &Op| matches!(op, Op::Pointwise(_));
    let outer = |op: &Op| matches!(op, Op::Pointwise(op) if op.arity() == 1);
    sweep(
        100,
        |graph| chained(graph, outer, inner),
        |small| {
            let [output] = small.outputs[..] else { panic!("one result\n{small}") };
            let mut operands = small[small[output].inputs[0]].inputs.clone();
            operands.sort();
            operands.dedup();
            assert_eq!(small.values.len(), operands.len() + 2, "{small}");
        },
    );
}

/// Queries, keys, positions and a cache: an attention keeps its append.
#[test]
fn attention_with_a_window() {
    let windowed = |graph: &Graph, id: ValueId| {
        matches!(graph[id].op, Op::Attend { window: Some(_), sinks: false, .. })
    };
    sweep(
        20,
        |graph| has(graph, windowed),
        |small| {
            let append = small.values.iter().find(|value| value.op == Op::Append).unwrap();
            let same = append.inputs[1] == append.inputs[2];
            assert_eq!(small.values.len(), if same { 6 } else { 7 }, "{small}");
        },
    );
}

/// An append is no result: it stays while the fault needs it, beside one result.
#[test]
fn append_of_a_rotation() {
    let fails = |graph: &Graph| {
        has(graph, |graph, id| {
            let stored = graph[id].inputs.get(1).map(|&key| &graph[key].op);
            graph[id].op == Op::Append
                && matches!(stored, Some(Op::Rope { pairing: Pairing::HalfSplit, .. }))
        })
    };
    sweep(20, fails, |small| assert!(small.values.len() <= 7, "{small}"));
}

/// Two results that are views of one product.
#[test]
fn results_of_one_product() {
    let fails = |graph: &Graph| {
        let results = graph.outputs.iter().map(|&output| graph.base(output));
        let mut products: Vec<ValueId> = results.filter(|&id| graph[id].op == Op::Linear).collect();
        products.sort();
        products.windows(2).any(|pair| pair[0] == pair[1])
    };
    sweep(10, fails, |small| {
        assert_eq!(small.outputs.len(), 2, "{small}");
        // The product and a view of it, or two views.
        assert!(small.values.len() <= 5, "{small}");
    });
}

/// The number of rows of a call stays if the fault needs it.
#[test]
fn range_of_the_batch_dim() {
    let graph = Graph::parse(
        "block b
         batch B 1..=3
         arg %0 x input f32[B<=3, 4]
         %1 = neg %0 : f32[B<=3, 4]
         return %1",
    )
    .unwrap();
    let batched = shrunk(&graph, |graph| graph[ValueId(0)].ty.has_batch());
    assert_eq!(batched.batch.map(|batch| (batch.min, batch.max)), Some((3, 3)));
    let ranged = shrunk(&graph, |graph| graph.batch.as_ref().is_some_and(|b| b.min < b.max));
    assert_eq!(ranged, graph);
    let fixed = shrunk(&graph, |_| true);
    assert!(fixed.batch.is_none() && !fixed[ValueId(1)].ty.has_batch());
    assert!(matches!(&fixed[ValueId(0)].ty, Type::Tensor { shape, .. } if shape[0].size == 3));
}

/// A fault that no smaller graph has.
#[test]
fn nothing_smaller() {
    for seed in 0..40 {
        let graph = random_graph(seed, GraphOptions::default());
        assert_eq!(shrunk(&graph, |candidate| *candidate == graph), graph);
    }
}

/// A name of an argument that takes the place of a value is new.
#[test]
fn names_stay_apart() {
    let graph = Graph::parse(
        "block b
         arg %0 cut0 input f32[4]
         %1 = neg %0 : f32[4]
         %2 cut1 = exp %1 : f32[4]
         %3 = add %0 %2 : f32[4]
         %4 = mul %0 %3 : f32[4]
         return %4",
    )
    .unwrap();
    let fails = |graph: &Graph| {
        has(graph, |graph, id| {
            graph[id].op == Op::Pointwise(Pointwise::Mul)
                && graph[id].inputs[0] != graph[id].inputs[1]
        }) && graph.values[0].name.as_deref() == Some("cut0")
    };
    let small = shrunk(&graph, fails);
    let names: Vec<&str> = small.args.iter().map(|arg| &*arg.name).collect();
    assert_eq!(names, ["cut0", "cut2"], "{small}");
}

/// What an inlined value feeds may go, and then it is a result, which has no such pin.
#[test]
fn pins_that_a_fault_does_not_need_go() {
    let text = "block b
        arg %0 x input f32[4, 8]
        %1 = exp %0 : f32[4, 8] !inline
        %2 = silu %1 : f32[4, 8] !materialize
        %3 = neg %2 : f32[4, 8]
        return %3";
    let graph = Graph::parse(text).unwrap();
    let exp = |graph: &Graph, id: ValueId| graph[id].op == Op::Pointwise(Pointwise::Exp);
    let small = shrunk(&graph, |graph| has(graph, exp));
    assert_eq!(small.values.len(), 2, "{small}");
    assert!(small.values.iter().all(|value| value.pin.is_none()), "{small}");
    let inlined = |graph: &Graph, id: ValueId| graph[id].pin == Some(Pin::Inline);
    let small = shrunk(&graph, |graph| has(graph, inlined));
    let pins: Vec<Option<Pin>> = small.values.iter().map(|value| value.pin).collect();
    assert_eq!(pins, [None, Some(Pin::Inline), None], "{small}");
}
