//! Known faults of decode kernels, as cases with answers worked out by hand, run by the oracle.

use fuseline_core::cases::{cases, relative_error};
use fuseline_core::diag::Code;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Graph, Op, Role, Type};
use fuseline_core::oracle::{Datum, OracleError, run};

#[test]
fn the_oracle_gives_the_answers() {
    let mut faults = Vec::new();
    for case in cases() {
        let mut args = case.args.clone();
        match run(&case.graph, case.rows, &mut args) {
            Ok(found) => faults.extend(case.check(&found).err()),
            Err(error) => faults.push(format!("{}: {error}", case.name)),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<String> = cases().into_iter().map(|case| case.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_case_refuses_wrong_results() {
    for case in cases().into_iter().filter(|case| case.rows > 0) {
        let right = &case.expected;
        case.check(right).unwrap();
        assert!(case.check(&right[1..]).is_err(), "{}: a missing result", case.name);
        for result in 0..right.len() {
            let mut short = right.clone();
            short[result].pop();
            assert!(case.check(&short).is_err(), "{}: a missing element", case.name);
            let mut wrong = right.clone();
            let last = wrong[result].last_mut().unwrap();
            *last = if last.is_nan() { 1.0 } else { f64::NAN };
            assert!(case.check(&wrong).is_err(), "{}: a wrong element", case.name);
        }
    }
}

#[test]
fn errors_are_relative_to_the_largest_number() {
    assert_eq!(relative_error(&[1.0, -4.0], &[1.0, -4.0]), 0.0);
    assert_eq!(relative_error(&[1.0, -4.0], &[2.0, -4.0]), 0.25);
    assert_eq!(relative_error(&[f64::NAN, 4.0], &[f64::NAN, 4.0]), 0.0);
    assert_eq!(relative_error(&[f64::NAN, 4.0], &[1.0, 4.0]), f64::INFINITY);
    assert_eq!(relative_error(&[1.0], &[f64::INFINITY]), f64::INFINITY);
    assert_eq!(relative_error(&[1.0], &[]), f64::INFINITY);
}

/// Head counts that do not divide are refused, and the message has both.
#[test]
fn head_counts_that_do_not_divide() {
    for (h, kv) in [(33, 2), (3, 2)] {
        let mut graph = Graph::new("b");
        let heads = |n, label| vec![Dim::literal(1), Dim::named(n, label), Dim::literal(4)];
        let q = graph.arg("q", Role::Input, Type::tensor(DType::F32, heads(h, "H")));
        let k = graph.arg("k", Role::Input, Type::tensor(DType::F32, heads(kv, "KV")));
        let cache = Type::Cache {
            dtype: DType::F32,
            batch: Dim::literal(1),
            kv_heads: Dim::named(kv, "KV"),
            head_dim: Dim::literal(4),
            capacity: Dim::literal(8),
        };
        let cache = graph.arg("cache", Role::Cache, cache);
        let pos = graph.arg("pos", Role::Input, Type::Index { rows: Dim::literal(1) });
        let cache = graph.push(Op::Append, vec![cache, k, k, pos]).unwrap();
        let attend = Op::Attend {
            scale: 1.0,
            window: None,
            softcap: None,
            sinks: false,
            operand: DType::F32,
        };
        let error = graph.push(attend, vec![q, cache, pos]).unwrap_err();
        assert_eq!(error.code, Code::Heads);
        assert!(error.message.contains(&format!("H = {h} query heads")), "{error}");
        assert!(error.message.contains(&format!("KV = {kv} key heads")), "{error}");
    }
}

/// The fifth append to a cache of four is refused, and leaves the cache as it was.
#[test]
fn a_full_cache() {
    let text = "block b
                arg %0 x input f32[1, 1, 2]
                arg %1 cache cache cache f32[1, 1, 2, 4]
                arg %2 pos input index[1]
                %3 = append %1 %0 %0 %2 : cache f32[1, 1, 2, 4]
                %4 = attend %0 %3 %2 scale=1.0 : f32[1, 1, 2]
                return %4";
    let graph = Graph::parse(text).unwrap();
    let mut cache = Datum::Cache { keys: vec![7.0; 8], values: vec![7.0; 8] };
    let call = |cache: &Datum, position: i32| {
        let x = Datum::Tensor(vec![f64::from(position) + 1.0, 0.5]);
        let index = Datum::Index { positions: vec![position], sequences: vec![0] };
        let mut args = [x, cache.clone(), index];
        let result = run(&graph, 1, &mut args);
        (result, args[1].clone())
    };
    for position in 0..4 {
        let (result, after) = call(&cache, position);
        assert!(result.is_ok());
        cache = after;
    }
    let full = vec![1.0, 0.5, 2.0, 0.5, 3.0, 0.5, 4.0, 0.5];
    assert_eq!(cache, Datum::Cache { keys: full.clone(), values: full });
    for position in [4, -1, i32::MAX, i32::MIN] {
        let (result, after) = call(&cache, position);
        assert_eq!(result, Err(OracleError::Position { row: 0, position, capacity: 4 }));
        assert_eq!(after, cache);
    }
}
