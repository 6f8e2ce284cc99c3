//! The CPU runs partitions as the oracle computes graphs.

mod device;

use device::{Loaded, load};
use fuseline_core::backend::Backend;
use fuseline_core::cases::{cases, relative_error};
use fuseline_core::ir::Graph;
use fuseline_core::oracle::{self, Datum};
use fuseline_core::random::{GraphOptions, random_args, random_graph};
use fuseline_cpu::Cpu;
use std::sync::OnceLock;

/// The back end that is tested.
fn backend() -> &'static dyn Backend {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(Cpu::new)
}

const LAYER: &str = include_str!("../../dsl-core/tests/ir/plan/smollm2_layer.ir");

/// A layer of SmolLM2-135M with small caches, for up to 5 rows.
fn layer() -> Graph {
    let text = LAYER.replace("T:2048", "T:160").replace("cache f32[B<=16", "cache f32[B<=5");
    Graph::parse(&text).unwrap().with_rows(5)
}

/// What differs between the CPU and the oracle in one call, caches included.
fn difference(loaded: &Loaded, rows: usize, args: &[Datum], tolerance: f64) -> Result<(), String> {
    let (mut found_args, mut expected_args) = (args.to_vec(), args.to_vec());
    let expected =
        oracle::run(&loaded.graph, rows, &mut expected_args).map_err(|e| e.to_string())?;
    let found = loaded.run(rows, &mut found_args).map_err(|e| e.to_string())?;
    let compare = |what: String, expected: &[f64], found: &[f64]| {
        let error = relative_error(expected, found);
        if error <= tolerance { Ok(()) } else { Err(format!("{what}: error {error:e}")) }
    };
    for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
        compare(format!("result {index}"), expected, found)?;
    }
    for (index, pair) in expected_args.iter().zip(&found_args).enumerate() {
        if let (
            Datum::Cache { keys, values },
            Datum::Cache { keys: found_keys, values: found_values },
        ) = pair
        {
            compare(format!("keys of argument {index}"), keys, found_keys)?;
            compare(format!("values of argument {index}"), values, found_values)?;
        }
    }
    Ok(())
}

fn rows_of(graph: &Graph) -> Vec<usize> {
    let Some(batch) = &graph.batch else { return vec![1] };
    let mut rows: Vec<usize> =
        [0, 1, 3, batch.max].into_iter().filter(|&r| r <= batch.max).collect();
    rows.dedup();
    rows
}

/// Runs random graphs, and panics with the smallest that differs.
fn sweep(seeds: std::ops::Range<u64>, options: GraphOptions, tolerance: f64) {
    let mut smallest: Option<(usize, String)> = None;
    let mut n_faults = 0;
    for seed in seeds.clone() {
        let options = GraphOptions { steps: 1 + (seed % 10) as usize, ..options };
        let graph = random_graph(seed, options);
        for fusion in [true, false] {
            let loaded = load(&graph, fusion);
            for rows in rows_of(&graph) {
                let args = random_args(&graph, rows, seed);
                let Err(fault) = difference(&loaded, rows, &args, tolerance) else { continue };
                n_faults += 1;
                let size = graph.values.len();
                if smallest.as_ref().is_none_or(|(smaller, _)| size < *smaller) {
                    let context = format!("seed {seed}, fusion {fusion}, rows {rows}: {fault}");
                    smallest = Some((size, format!("{context}\n{graph}")));
                }
            }
        }
    }
    if let Some((_, fault)) = smallest {
        panic!("{n_faults} calls of seeds {seeds:?} differ; the smallest: {fault}");
    }
}

#[test]
fn random_graphs_of_f32_agree_with_the_oracle() {
    let options = GraphOptions { narrow: false, argmax: true, ..GraphOptions::default() };
    sweep(0..300, options, 2e-5);
}

#[test]
fn random_graphs_with_casts_agree_with_the_oracle() {
    let options = GraphOptions { narrow: true, argmax: false, ..GraphOptions::default() };
    sweep(1000..1300, options, 1.0 / 128.0);
}

/// Pins change plans, and no number.
#[test]
fn random_graphs_with_pins_agree_with_the_oracle() {
    let options =
        GraphOptions { narrow: false, argmax: true, pins: true, ..GraphOptions::default() };
    sweep(2000..2300, options, 2e-5);
}

#[test]
fn known_faults_of_decode_kernels_are_absent() {
    let mut faults = Vec::new();
    for case in cases() {
        for fusion in [true, false] {
            let mut args = case.args.clone();
            match load(&case.graph, fusion).run(case.rows, &mut args) {
                Ok(found) => faults.extend(case.check(&found).err()),
                Err(error) => faults.push(format!("{}: {error}", case.name)),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_real_layer_agrees_with_the_oracle() {
    for fusion in [true, false] {
        let loaded = load(&layer(), fusion);
        for rows in [0, 1, 3, 5] {
            let args = random_args(&loaded.graph, rows, 7 + rows as u64);
            difference(&loaded, rows, &args, 2e-5).unwrap();
        }
    }
}

/// Bits of every result and cache of a call.
fn bits(loaded: &Loaded, rows: usize, args: &[Datum], n_threads: usize) -> Vec<u64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    let mut args = args.to_vec();
    let results = pool.install(|| loaded.run(rows, &mut args)).unwrap();
    let caches = args.into_iter().filter_map(|datum| match datum {
        Datum::Cache { keys, values } => Some([keys, values].concat()),
        _ => None,
    });
    results.into_iter().chain(caches).flatten().map(f64::to_bits).collect()
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let graph = layer();
    for fusion in [true, false] {
        let loaded = load(&graph, fusion);
        for rows in [1, 5] {
            let args = random_args(&graph, rows, 11);
            let one = bits(&loaded, rows, &args, 1);
            assert_eq!(one, bits(&loaded, rows, &args, 3), "fusion {fusion}, rows {rows}");
        }
    }
}

#[test]
fn runs_one_after_the_other_do_not_see_each_other() {
    let graph = layer();
    let loaded = load(&graph, true);
    let args = random_args(&graph, 2, 3);
    let first = bits(&loaded, 2, &args, 2);
    bits(&loaded, 5, &random_args(&graph, 5, 4), 2);
    assert_eq!(first, bits(&loaded, 2, &args, 2));
}

/// What the field would write out in full, decoded weights and products included, is right too.
#[test]
fn the_fields_plans_are_right() {
    use fuseline_core::field::{self, Rules};
    for (format, k) in [("Q8_0", 96), ("Int4ZeroG32", 64), ("Int4FloatG32", 32), ("f16", 37)] {
        let text = format!(
            "block seed
arg %0 g input bf16[1, K:{k}]
arg %1 u input bf16[1, K:{k}]
arg %2 w weight {format}{{N:33, K:{k}}}
%3 = gelu_tanh %0 : f32[1, K:{k}]
%4 = mul %3 %1 : f32[1, K:{k}]
%5 = linear %4 %2 : f32[1, N:33]
return %5
"
        );
        let graph = Graph::parse(&text).unwrap();
        for max_ops in [1, 15, 25, 100] {
            let plan = field::plan(&graph, &Rules { max_ops, ..Rules::default() }).unwrap();
            let loaded = load(plan.graph(), true);
            let args = random_args(&graph, 1, 1);
            difference(&loaded, 1, &args, 2e-5).unwrap_or_else(|e| panic!("{format}: {e}"));
        }
    }
}
