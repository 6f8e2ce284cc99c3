//! The blocks that are run on random arguments: the golden graphs of the core, the reported
//! cases, and random graphs.

use fuseline_core::cases::cases;
use fuseline_core::ir::{Graph, Type};
use fuseline_core::oracle::Datum;
use fuseline_core::random::{GraphOptions, random_args, random_graph};
use fuseline_cuda::emulate::blank_unread;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// One source: a graph, and the buckets that it is planned for.
pub struct Block {
    /// The name of its file.
    pub name: String,
    /// Whether its kernels are timed.
    pub timed: bool,
    /// One plan each, with and without fusion.
    pub buckets: Vec<Bucket>,
}

/// A graph for up to a number of rows, with calls.
pub struct Bucket {
    pub graph: Graph,
    pub calls: Vec<Call>,
}

/// Rows and arguments of one call.
pub struct Call {
    pub rows: usize,
    pub args: Vec<Datum>,
}

/// Weights beyond so many bytes would make most of the data file.
const MAX_WEIGHT_BYTES: usize = 10_000_000;
/// One seed for all golden graphs: equal weights are kept once.
const GOLDEN_SEED: u64 = 1;
/// Random graphs without and with types narrower than `f32`, each.
const RANDOM_GRAPHS: u64 = 30;

/// All but the model's; golden graphs of the model are left out if it comes with real weights.
pub fn blocks(has_model: bool) -> Result<Vec<Block>, Box<dyn Error>> {
    let mut list = golden(has_model)?;
    for (index, case) in cases().into_iter().enumerate().filter(|(_, case)| case.rows > 0) {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let name: String = case.name.chars().map(word).take(40).collect();
        let call = Call { rows: case.rows, args: case.args };
        let buckets = vec![Bucket { graph: case.graph, calls: vec![call] }];
        list.push(Block { name: format!("case_{index}_{name}"), timed: false, buckets });
    }
    for seed in 0..2 * RANDOM_GRAPHS {
        let narrow = seed >= RANDOM_GRAPHS;
        let steps = 1 + (seed % 12) as usize;
        // A difference in the last bit may change an argmax where types are narrow.
        let options = GraphOptions { steps, narrow, argmax: !narrow, ..GraphOptions::default() };
        let graph = random_graph(seed, options);
        let rows = graph.rows();
        let buckets = vec![random_bucket(&graph, rows, seed)];
        list.push(Block { name: format!("random_{seed}"), timed: false, buckets });
    }
    Ok(list)
}

/// The golden graphs, each for the rows that its plan is tested with.
fn golden(has_model: bool) -> Result<Vec<Block>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(golden_folder())? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut list = Vec::new();
    for path in &paths {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(path)?;
        let graph = Graph::parse(&text).map_err(|error| format!("{stem}: {error}"))?;
        let weights = graph.args.iter().map(|arg| match &graph[arg.value].ty {
            ty @ Type::Weight { .. } => ty.bytes(),
            _ => 0,
        });
        let of_model = has_model && stem.starts_with("smollm2");
        if weights.sum::<usize>() > MAX_WEIGHT_BYTES || of_model {
            continue;
        }
        let header = text.lines().find_map(|line| line.strip_prefix("; rows "));
        let rows = header.map(str::parse).transpose()?.unwrap_or(graph.rows());
        let buckets = vec![random_bucket(&graph, rows, GOLDEN_SEED)];
        list.push(Block { name: format!("golden_{stem}"), timed: false, buckets });
    }
    Ok(list)
}

/// Where the golden graphs are.
pub fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dsl-core/tests/ir/plan")
}

/// Calls on random arguments with the bucket full, and with one row less.
fn random_bucket(graph: &Graph, bucket: usize, seed: u64) -> Bucket {
    let graph = if graph.batch.is_some() { graph.with_rows(bucket) } else { graph.clone() };
    let counts = if bucket > 1 { vec![bucket, bucket - 1] } else { vec![bucket] };
    let calls = counts
        .into_iter()
        .map(|rows| {
            let mut args = random_args(&graph, rows, seed);
            blank_unread(&graph, &mut args);
            Call { rows, args }
        })
        .collect();
    Bucket { graph, calls }
}
