//! Writes what a machine with a GPU, and without Rust, needs to run every kernel of a plan and to
//! check what it computes: `vectors OUT_DIR [--model FILE.gguf]`. `benches/gpu/check.py` reads it.
//!
//! - `machine.cu`: kernels that use each function of the machine in a way whose result is known;
//! - `NAME.cu`: the source of a block, with its plans with and without fusion;
//! - `manifest.json`: launches, parameters, places, and which buffer each value has in a call;
//! - `data.bin`: the buffers, one zlib stream. Expected values are the oracle's; beside them is
//!   what the same kernels store under emulation, bit for bit.
//!
//! With `--model`, the blocks of SmolLM2-135M are among them, on the weights of that file.

mod blocks;
mod call;
mod machine;
#[path = "../../tests/machine/cases.rs"]
mod machine_cases;
mod model;
mod store;

use blocks::Block;
use fuseline_core::ir::ValueId;
use fuseline_core::plan::{Options, Place, Plan, compile};
use fuseline_cuda::emulate::{self, Emulator, limit};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use store::Store;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: vectors OUT_DIR [--model FILE.gguf]";
    let out = PathBuf::from(args.next().ok_or(usage)?);
    let model = match args.next().as_deref() {
        None => None,
        Some("--model") => Some(PathBuf::from(args.next().ok_or(usage)?)),
        Some(other) => return Err(format!("{usage}; found `{other}`").into()),
    };
    fs::create_dir_all(&out)?;
    let mut all = blocks::blocks(model.is_some())?;
    if let Some(model) = &model {
        all.extend(model::blocks(model)?);
    }
    let mut store = Store::create(&out.join("data.bin"))?;
    let emulator = Emulator::new(emulate::Options {
        sanitize: false,
        optimize: true,
        ..emulate::Options::default()
    })?;
    let mut list = vec![machine::entry(&out, &mut store)?];
    for (index, block) in all.iter().enumerate() {
        eprint!("\r{} of {} blocks", index, all.len());
        let entry = block_entry(block, &emulator, &out, &mut store);
        list.push(entry.map_err(|error| format!("{}: {error}", block.name))?);
    }
    eprintln!();
    let (buffers, bytes) = store.finish()?;
    let n_kernels: usize = list.iter().map(|(_, n_kernels)| n_kernels).sum();
    let list: Vec<Value> = list.into_iter().map(|(entry, _)| entry).collect();
    println!(
        "{} blocks, {n_kernels} kernels to run, {} buffers, {bytes} B of data",
        list.len(),
        buffers.len()
    );
    let manifest = json!({ "version": 1, "buffers": buffers, "blocks": list });
    fs::write(out.join("manifest.json"), manifest.to_string())?;
    Ok(())
}

/// The manifest's entry of a block, and how many single kernels its calls run.
fn block_entry(
    block: &Block,
    emulator: &Emulator,
    out: &Path,
    store: &mut Store,
) -> Result<(Value, usize), Box<dyn Error>> {
    let mut plans = Vec::new();
    for fusion in [true, false] {
        for bucket in &block.buckets {
            let mut graph = bucket.graph.clone();
            if !fusion {
                // Kernels of one source have different names.
                graph.name += "_unfused";
            }
            plans.push((compile(&graph, &Options { fusion })?, bucket));
        }
    }
    let (source, mut n_kernels) = (format!("{}.cu", block.name), 0);
    let only: Vec<Plan> = plans.iter().map(|(plan, _)| plan.clone()).collect();
    let text = fuseline_cuda::emit::source(&only);
    fs::write(out.join(&source), &text)?;
    let mut process = emulator.start()?;
    let library = process.open(&emulator.compile(&[&text])?)?;
    let mut entries = Vec::new();
    for (plan, bucket) in &plans {
        let mut calls = Vec::new();
        for call in &bucket.calls {
            calls.push(call::entry(plan, call.rows, &call.args, (&mut process, library), store)?);
        }
        n_kernels += calls.len() * plan.kernels().len();
        let mut entry = plan_entry(plan)?;
        entry.insert("calls".to_string(), calls.into());
        entries.push(Value::from(entry));
    }
    let entry = json!({
        "name": block.name, "source": source, "timed": block.timed, "plans": entries,
    });
    Ok((entry, n_kernels))
}

/// The launches of a plan.
fn plan_entry(plan: &Plan) -> Result<Map<String, Value>, Box<dyn Error>> {
    let kernels: Vec<Value> = plan
        .kernels()
        .iter()
        .map(|kernel| {
            json!({
                "name": kernel.name,
                "template": kernel.structure.template.name(),
                "grid": kernel.launch.n_blocks,
                "block": kernel.launch.n_threads,
                "shared_bytes": kernel.launch.shared_bytes,
                "moved_bytes": kernel.cost.read_bytes + kernel.cost.write_bytes,
                "params": call::params(plan, kernel),
                "limit": limit(plan.graph(), &kernel.members),
            })
        })
        .collect();
    let places = plan.kernels().iter().flat_map(|kernel| &kernel.stores);
    let place = |&id: &ValueId| match plan.place(id) {
        Place::Scratch(at) => Some((id.index().to_string(), json!(["scratch", at]))),
        Place::Output(n) => Some((id.index().to_string(), json!(["output", n]))),
        Place::None | Place::Arg | Place::Cache(_) => None,
    };
    let places: Map<String, Value> = places.filter_map(place).collect();
    let members: Vec<ValueId> = plan.kernels().iter().flat_map(|k| k.members.clone()).collect();
    let entry = json!({
        "bucket": plan.rows(),
        "scratch_bytes": plan.scratch_bytes(),
        "kernels": kernels,
        "places": places,
        // Errors of one kernel are operands of the next.
        "chain_limit": limit(plan.graph(), &members),
    });
    match entry {
        Value::Object(entry) => Ok(entry),
        _ => Err("a plan is no object".into()),
    }
}
