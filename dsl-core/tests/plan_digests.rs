//! The plans of random graphs are those that were recorded: a faster search decides the same.
//!
//! `tests/plan_digests.txt` has a line for each seed: the seed, and the digest of the graph's text
//! with its plan's. `BLESS=1` writes what was found: do that only where plans are meant to change.

use fuseline_core::plan::{Options, compile, digest};
use fuseline_core::random::{GraphOptions, random_graph};
use std::path::Path;
use std::{env, fs};

const N_SEEDS: u64 = 300;

fn line(seed: u64) -> String {
    let graph = random_graph(seed, GraphOptions::default());
    let plan = compile(&graph, &Options::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    format!("{seed} {:016x}", digest(&graph.to_string(), &[plan]))
}

#[test]
fn plans_of_random_graphs_are_as_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan_digests.txt");
    let found: Vec<String> = (0..N_SEEDS).map(line).collect();
    if env::var_os("BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, found.join("\n") + "\n").unwrap();
        return;
    }
    let recorded = fs::read_to_string(&path).unwrap();
    let recorded: Vec<&str> = recorded.lines().collect();
    assert_eq!(recorded.len(), found.len(), "{}", path.display());
    let different = recorded.iter().zip(&found).filter(|(recorded, found)| *recorded != *found);
    let different: Vec<&String> = different.map(|(_, found)| found).collect();
    assert!(different.is_empty(), "found other plans for {}: {different:?}", different.len());
}
