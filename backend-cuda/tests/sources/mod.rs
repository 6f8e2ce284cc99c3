//! The blocks whose generated source is tested: every golden plan of the core.

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, Plan, compile};
use std::fs;
use std::path::{Path, PathBuf};

/// The plans of a graph for its smallest and its largest bucket: with one row and with several.
pub fn plans(graph: &Graph, fusion: bool) -> Vec<Plan> {
    let options = Options { fusion };
    let plan = |graph: &Graph| compile(graph, &options).unwrap();
    match &graph.batch {
        Some(batch) => {
            let buckets = batch.buckets();
            let ends = [buckets[0], buckets[buckets.len() - 1]];
            let n_ends = if ends[0] == ends[1] { 1 } else { 2 };
            ends[..n_ends].iter().map(|&n| plan(&graph.with_rows(n))).collect()
        }
        None => vec![plan(graph)],
    }
}

/// Every golden graph, each once.
pub fn graphs() -> Vec<(String, Graph)> {
    // On a machine without the checkout, the bundle's copy.
    let folder = std::env::var_os("FUSELINE_GOLDENS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../dsl-core/tests/ir/plan"),
        PathBuf::from,
    );
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut graphs: Vec<(String, Graph)> = Vec::new();
    for path in paths {
        let graph = Graph::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        if !graphs.iter().any(|(_, known)| *known == graph) {
            graphs.push((path.file_stem().unwrap().to_string_lossy().into_owned(), graph));
        }
    }
    graphs
}
