//! The kernels that hold the emulated machine to the real one.

use super::machine_cases::{N_THREADS, cases, source};
use super::store::Store;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::path::Path;

/// The manifest's entry: each case is a plan with one kernel and one call. And how many they are.
pub fn entry(out: &Path, store: &mut Store) -> Result<(Value, usize), Box<dyn Error>> {
    fs::write(out.join("machine.cu"), source())?;
    let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let mut plans = Vec::new();
    for case in cases() {
        let mut params = vec![json!(["elements", 0])];
        let mut values =
            json!({ "0": { "dtype": "i32", "buffer": store.add(&bytes(&case.words))? } });
        for (index, (before, after)) in case.results.iter().enumerate() {
            // Like a cache: something is there before.
            params.push(json!(["keys", index + 1, true]));
            let keys = [store.add(&bytes(before))?, store.add(&bytes(after))?];
            values[(index + 1).to_string()] = json!({ "dtype": "i32", "keys": keys });
        }
        params.push(json!(["rows"]));
        plans.push(json!({
            "bucket": case.rows,
            "scratch_bytes": 0,
            "kernels": [{
                "name": case.kernel,
                "template": "machine",
                "grid": case.n_blocks,
                "block": N_THREADS,
                "shared_bytes": case.shared_bytes,
                "moved_bytes": 0,
                "params": params,
                "limit": 0.0,
            }],
            "places": {},
            "chain_limit": 0.0,
            "calls": [{ "rows": case.rows, "values": values, "outputs": [], "emulated": {} }],
        }));
    }
    let n_kernels = plans.len();
    let entry =
        json!({ "name": "machine", "source": "machine.cu", "timed": false, "plans": plans });
    Ok((entry, n_kernels))
}
