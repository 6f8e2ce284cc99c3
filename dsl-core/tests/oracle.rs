//! The oracle against hand calculation, and rows of random graphs alone.

use fuseline_core::format::FORMATS;
use fuseline_core::ir::{Graph, Pointwise};
use fuseline_core::oracle::{Datum, OracleError, run};
use fuseline_core::random::{GraphOptions, random_args, random_graph};

fn parse(text: &str) -> Graph {
    let graph = Graph::parse(text).unwrap();
    graph.verify().unwrap();
    graph
}

fn tensor(elements: &[f64]) -> Datum {
    Datum::Tensor(elements.to_vec())
}

fn index(positions: &[i32], sequences: &[i32]) -> Datum {
    Datum::Index { positions: positions.to_vec(), sequences: sequences.to_vec() }
}

fn pointwise(op: Pointwise, operands: [f32; 3]) -> f64 {
    let (name, arity) = (op.name(), op.arity());
    let mut text = "block b\n".to_string();
    for i in 0..arity {
        text += &format!("arg %{i} x{i} input f32[1]\n");
    }
    let operand_ids: Vec<String> = (0..arity).map(|i| format!("%{i}")).collect();
    text += &format!("%{arity} = {name} {} : f32[1]\nreturn %{arity}", operand_ids.join(" "));
    let mut args: Vec<Datum> = operands[..arity].iter().map(|&x| tensor(&[f64::from(x)])).collect();
    run(&parse(&text), 1, &mut args).unwrap()[0][0]
}

/// One number of each operation, from tables.
#[test]
fn pointwise_values() {
    for &op in Pointwise::ALL {
        let (operands, expected) = match op {
            Pointwise::Add => ([2.0, -0.5, 0.0], 1.5),
            Pointwise::Sub => ([2.0, -0.5, 0.0], 2.5),
            Pointwise::Mul => ([2.0, -0.5, 0.0], -1.0),
            Pointwise::Div => ([2.0, -0.5, 0.0], -4.0),
            Pointwise::Min => ([2.0, -0.5, 0.0], -0.5),
            Pointwise::Max => ([2.0, -0.5, 0.0], 2.0),
            Pointwise::Lt | Pointwise::Le | Pointwise::Ne => ([-0.5, 2.0, 0.0], 1.0),
            Pointwise::Gt | Pointwise::Ge | Pointwise::Eq => ([-0.5, 2.0, 0.0], 0.0),
            Pointwise::Neg => ([2.0, 0.0, 0.0], -2.0),
            Pointwise::Exp => ([1.0, 0.0, 0.0], std::f64::consts::E),
            Pointwise::Log => ([10.0, 0.0, 0.0], std::f64::consts::LN_10),
            Pointwise::Silu => ([1.0, 0.0, 0.0], 0.731_058_578_630_004_9),
            Pointwise::GeluTanh => ([1.0, 0.0, 0.0], 0.841_191_990_608_276_4),
            Pointwise::GeluErf => ([1.0, 0.0, 0.0], 0.841_344_746_068_542_9),
            Pointwise::Sigmoid => ([-1.0, 0.0, 0.0], 0.268_941_421_369_995_1),
            Pointwise::Tanh => ([0.5, 0.0, 0.0], 0.462_117_157_260_009_76),
            Pointwise::Relu => ([-3.0, 0.0, 0.0], 0.0),
            Pointwise::Round => ([-2.5, 0.0, 0.0], -2.0),
            Pointwise::Recip => ([8.0, 0.0, 0.0], 0.125),
            Pointwise::Sqrt => ([2.0, 0.0, 0.0], std::f64::consts::SQRT_2),
            Pointwise::Rsqrt => ([2.0, 0.0, 0.0], std::f64::consts::FRAC_1_SQRT_2),
            // 2 · tanh(0.5)
            Pointwise::Softcap => ([1.0, 2.0, 0.0], 0.924_234_314_520_019_5),
            Pointwise::Clamp => ([9.0, -1.0, 4.0], 4.0),
            Pointwise::Select => ([-2.0, 5.0, 6.0], 5.0),
        };
        let found = pointwise(op, operands);
        assert_eq!(found, f64::from(expected as f32), "{}", op.name());
    }
    assert_eq!(pointwise(Pointwise::Select, [0.0, 5.0, 6.0]), 6.0);
    assert_eq!(pointwise(Pointwise::Clamp, [-9.0, -1.0, 4.0]), -1.0);
}

/// The oracle's functions and those of the back ends were written apart, and are to agree: on what
/// is infinite and what is no number too. The tails of GELU magnify the rounding of their argument
/// a few hundredfold.
#[test]
fn pointwise_agrees_with_f32() {
    const NUMBERS: [f32; 21] = [
        0.0,
        1.0,
        -1.0,
        0.3,
        -0.3,
        2.5,
        -2.5,
        5.5,
        -5.5,
        9.0,
        -9.0,
        13.0,
        -13.0,
        40.0,
        -40.0,
        90.0,
        -90.0,
        3e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for &op in Pointwise::ALL {
        for a in NUMBERS {
            for b in if op.arity() > 1 { &NUMBERS[..] } else { &NUMBERS[..1] } {
                let operands = [a, *b, 2.0];
                let (found, expected) = (op.eval(operands), pointwise(op, operands));
                let near = (f64::from(found) - expected).abs()
                    <= expected.abs() * 2f64.powi(-15) + f64::from(f32::MIN_POSITIVE);
                let same = f64::from(found) == expected || (found.is_nan() && expected.is_nan());
                assert!(near || same, "{} of {operands:?}: {found} for {expected}", op.name());
            }
        }
    }
}

/// Casts round to nearest, ties to even, with every bit of an f32 in view.
#[test]
fn casts() {
    for (dtype, x, expected) in [
        ("bf16", 1.0 + 2f64.powi(-8), 1.0),
        ("bf16", 1.0 + 3.0 * 2f64.powi(-8), 1.0 + 2f64.powi(-6)),
        ("bf16", 1.0 + 2f64.powi(-8) + 2f64.powi(-23), 1.0 + 2f64.powi(-7)),
        ("f16", 1.0 + 2f64.powi(-11), 1.0),
        ("f16", 1.0 + 2f64.powi(-11) + 2f64.powi(-23), 1.0 + 2f64.powi(-10)),
        ("f16", 65_519.0, 65_504.0),
        ("f16", 65_520.0, f64::INFINITY),
        ("f16", 2f64.powi(-24), 2f64.powi(-24)),
        ("f32", 1e-45, f64::from(f32::from_bits(1))),
    ] {
        let text = format!(
            "block b\narg %0 x input f32[1]\n%1 = to %0 dtype={dtype} : {dtype}[1]\nreturn %1"
        );
        let found = run(&parse(&text), 1, &mut [tensor(&[x])]).unwrap();
        assert_eq!(found, [[expected]], "{x} to {dtype}");
    }
}

#[test]
fn layer_norm_and_reductions() {
    let graph = parse(
        "block b
         arg %0 x input f32[2, 4]
         arg %1 w weight f32[4]
         arg %2 bias weight f32[4]
         %3 = layer_norm %0 %1 %2 eps=0.75 : f32[2, 4]
         %4 = row_sum %0 : f32[2, 1]
         %5 = row_mean %0 : f32[2, 1]
         %6 = row_max %0 : f32[2, 1]
         return %3 %4 %5 %6",
    );
    // Row 0 has the mean 3 and the variance 5, row 1 the variance 0.25: with eps, 5.75 and 1.
    let x = tensor(&[0.0, 2.0, 4.0, 6.0, 1.5, 2.5, 1.5, 2.5]);
    let mut args = [x, tensor(&[1.0, 2.0, 3.0, 4.0]), tensor(&[10.0, 20.0, 30.0, 40.0])];
    let found = run(&graph, 2, &mut args).unwrap();
    let root = 5.75f64.sqrt();
    let row = [10.0 - 3.0 / root, 20.0 - 2.0 / root, 30.0 + 3.0 / root, 40.0 + 12.0 / root];
    let expected: Vec<f64> = row.iter().map(|&x| f64::from(x as f32)).collect();
    assert_eq!(found[0][..4], expected);
    assert_eq!(found[0][4..], [9.5, 21.0, 28.5, 42.0]);
    assert_eq!(found[1..], [[12.0, 8.0], [3.0, 2.0], [6.0, 2.5]]);
}

const ATTEND: &str = "block b
    batch B 1..=3
    arg %0 q input f32[B<=3, 1, 2]
    arg %1 k input f32[B<=3, 1, 2]
    arg %2 v input f32[B<=3, 1, 2]
    arg %3 cache cache cache DTYPE[B<=3, 1, 2, 4]
    arg %4 pos input index[B<=3]
    arg %5 sinks weight f32[1]
    %6 = append %3 %1 %2 %4 : cache DTYPE[B<=3, 1, 2, 4]
    %7 = attend %0 %6 %4 scale=1.0 ATTRIBUTES : f32[B<=3, 1, 2]
    return %7";

fn attend_graph(dtype: &str, attributes: &str) -> Graph {
    let text = ATTEND.replace("DTYPE", dtype).replace("ATTRIBUTES", attributes);
    if attributes.contains("sinks") {
        return parse(&text.replace("%6 %4 scale", "%6 %4 %5 scale"));
    }
    parse(&text)
}

fn empty_cache() -> Datum {
    Datum::Cache { keys: vec![0.0; 3 * 4 * 2], values: vec![0.0; 3 * 4 * 2] }
}

/// All rows of a call are stored before any attends, so that the rows of a prompt see the ones
/// before them; rows of another sequence are not seen.
#[test]
fn rows_of_one_sequence_see_each_other() {
    let zeros = tensor(&[0.0; 6]);
    let v = tensor(&[1.0, 10.0, 2.0, 20.0, 9.0, 90.0]);
    let mut args =
        [zeros.clone(), zeros, v, empty_cache(), index(&[1, 0, 0], &[2, 2, 1]), tensor(&[0.0])];
    let found = run(&attend_graph("f32", ""), 3, &mut args).unwrap();
    assert_eq!(found, [[1.5, 15.0, 2.0, 20.0, 9.0, 90.0]]);
    let mut values = vec![0.0; 24];
    values[8..10].copy_from_slice(&[9.0, 90.0]);
    values[16..20].copy_from_slice(&[2.0, 20.0, 1.0, 10.0]);
    assert_eq!(args[3], Datum::Cache { keys: vec![0.0; 24], values });
}

#[test]
fn the_later_row_of_one_place_stays() {
    let zeros = tensor(&[0.0; 4]);
    let v = tensor(&[1.0, 2.0, 3.0, 4.0]);
    let mut args =
        [zeros.clone(), zeros, v, empty_cache(), index(&[0, 0], &[1, 1]), tensor(&[0.0])];
    let found = run(&attend_graph("f32", ""), 2, &mut args).unwrap();
    assert_eq!(found, [[3.0, 4.0, 3.0, 4.0]]);
}

#[test]
fn caches_round_what_they_store() {
    let x = tensor(&[1.0 + 2f64.powi(-9), 3.0]);
    let mut args =
        [tensor(&[0.0; 2]), x.clone(), x, empty_cache(), index(&[0], &[0]), tensor(&[0.0])];
    let found = run(&attend_graph("bf16", ""), 1, &mut args).unwrap();
    assert_eq!(found, [[1.0, 3.0]]);
    let Datum::Cache { keys, .. } = &args[3] else { panic!("a cache") };
    assert_eq!(keys[..3], [1.0, 3.0, 0.0]);
}

/// A sink with the score of the only key takes half of it.
#[test]
fn sinks() {
    let (q, v) = (tensor(&[1.0, 0.0]), tensor(&[4.0, -6.0]));
    let mut args = [q, tensor(&[0.75, 5.0]), v, empty_cache(), index(&[0], &[0]), tensor(&[0.75])];
    let found = run(&attend_graph("f32", "sinks=true"), 1, &mut args).unwrap();
    assert_eq!(found, [[2.0, -3.0]]);
}

/// With a bf16 operand, q loses 2^-9, and the smaller probability its low bits; the denominator
/// keeps them.
#[test]
fn operands_are_rounded() {
    let q = tensor(&[1.0 + 2f64.powi(-9), 0.0]);
    let cache = Datum::Cache {
        keys: [vec![2.0, 0.0], vec![0.0; 22]].concat(),
        values: [vec![0.0, 1.0], vec![0.0; 22]].concat(),
    };
    let (k, v) = (tensor(&[1.0, 0.0]), tensor(&[1.0, 0.0]));
    let mut args = [q, k, v, cache, index(&[1], &[0]), tensor(&[0.0])];
    let found = run(&attend_graph("f32", "operand=bf16"), 1, &mut args).unwrap();
    // e^-1 = 0.36787…, of which bf16 keeps 8 bits: 0.3671875 = 94 / 256.
    let denominator = 1.0 + (-1f64).exp();
    let expected = [0.367_187_5 / denominator, 1.0 / denominator];
    assert_eq!(found, [expected.map(|x| f64::from(x as f32))]);
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let graph = attend_graph("f32", "");
    let zeros = tensor(&[0.0; 2]);
    let good =
        [zeros.clone(), zeros.clone(), zeros, empty_cache(), index(&[0], &[0]), tensor(&[0.0])];
    let refused = |at: usize, datum: Datum| {
        let mut args = good.clone();
        args[at] = datum;
        let before = args.clone();
        let error = run(&graph, 1, &mut args).unwrap_err();
        assert_eq!(args, before);
        error
    };
    run(&graph, 1, &mut good.clone()).unwrap();
    assert_eq!(
        run(&graph, 1, &mut good.clone()[1..]),
        Err(OracleError::ArgCount { expected: 6, found: 5 })
    );
    assert_eq!(run(&graph, 4, &mut good.clone()), Err(OracleError::Rows { max: 3, found: 4 }));
    let length = |arg: &str, what, expected, found| OracleError::Length {
        arg: arg.to_string(),
        what,
        expected,
        found,
    };
    assert_eq!(refused(0, tensor(&[0.0; 3])), length("q", "elements", 2, 3));
    assert_eq!(refused(4, index(&[0, 0], &[0])), length("pos", "positions", 1, 2));
    assert_eq!(refused(4, index(&[0], &[])), length("pos", "sequences", 1, 0));
    let cache = Datum::Cache { keys: vec![0.0; 24], values: vec![0.0; 8] };
    assert_eq!(refused(3, cache), length("cache", "elements of values", 24, 8));
    assert_eq!(
        refused(0, Datum::Tokens(vec![0, 0])),
        OracleError::Kind { arg: "q".to_string(), expected: "a tensor", found: "tokens" }
    );
    assert_eq!(
        refused(4, index(&[0], &[3])),
        OracleError::Sequence { row: 0, sequence: 3, sequences: 3 }
    );
    assert_eq!(
        refused(4, index(&[4], &[0])),
        OracleError::Position { row: 0, position: 4, capacity: 4 }
    );
}

#[test]
fn tokens_and_weights_that_do_not_fit_are_refused() {
    let graph = parse(
        "block b
         arg %0 tokens input i32[2]
         arg %1 table weight Q8_0{3, 32}
         %2 = embed %0 %1 : f32[2, 32]
         return %2",
    );
    let packed = FORMATS[3].pack_planes(&[1; 96], &[1.0; 3], &[], 3, 32).unwrap();
    for id in [3, -1, i32::MAX, i32::MIN] {
        let mut args = [Datum::Tokens(vec![0, id]), Datum::Weight(packed.clone())];
        let error = run(&graph, 2, &mut args).unwrap_err();
        assert_eq!(error, OracleError::Token { id: i64::from(id), n_rows: 3 });
    }
    let mut short = packed;
    short.scales.pop();
    let mut args = [Datum::Tokens(vec![0, 1]), Datum::Weight(short)];
    let error = run(&graph, 2, &mut args).unwrap_err();
    assert_eq!(error.to_string(), "`table` has 6 bytes of scales, found 5");
}

/// Two batch dims of different sizes: a call can only have rows of one.
#[test]
fn a_view_with_another_batch_dim_is_refused() {
    let text = "block b
                arg %0 x input f32[B<=4, 6]
                %1 = reshape %0 shape=[C<=8, 3] : f32[C<=8, 3]
                %2 = neg %1 : f32[C<=8, 3]
                return %2";
    let graph = Graph::parse(text).unwrap();
    let error = run(&graph, 2, &mut [tensor(&[1.0; 12])]).unwrap_err();
    assert!(matches!(error, OracleError::Graph(_)), "{error}");
}

/// Rows do not depend on each other, or on how many there are.
#[test]
fn rows_are_independent() {
    let options = GraphOptions { attention: false, ..GraphOptions::default() };
    let mut n_compared = 0;
    for seed in 0..120 {
        let graph = random_graph(seed, options);
        let Some(batch) = &graph.batch else { continue };
        let mut args = random_args(&graph, batch.max, seed);
        let together = run(&graph, batch.max, &mut args).unwrap();
        for row in 0..batch.max {
            let mut args: Vec<Datum> = graph
                .args
                .iter()
                .zip(&args)
                .map(|(arg, datum)| {
                    let part = graph[arg.value].ty.has_batch();
                    match datum {
                        Datum::Tensor(x) if part => {
                            let width = x.len() / batch.max;
                            tensor(&x[row * width..(row + 1) * width])
                        }
                        Datum::Tokens(tokens) if part => Datum::Tokens(vec![tokens[row]]),
                        datum => datum.clone(),
                    }
                })
                .collect();
            let alone = run(&graph, 1, &mut args).unwrap();
            for (result, &output) in graph.outputs.iter().enumerate() {
                let width = alone[result].len();
                let first = if graph[output].ty.has_batch() { row * width } else { 0 };
                let expected = &together[result][first..first + width];
                assert_eq!(alone[result], expected, "seed {seed}, row {row}\n{graph}");
                n_compared += 1;
            }
        }
    }
    assert!(n_compared > 100);
}
