//! Random graphs: the oracle, the CPU's partition and the generated CUDA agree.
//!
//! `FUSELINE_RANDOM_GRAPHS` is how many (500), `FUSELINE_RANDOM_SEED` the first seed (0), and
//! `FUSELINE_RANDOM_RECORD` a file for what was run.

#[path = "../../backend-cpu/tests/device/mod.rs"]
mod device;
mod emulator;

use emulator::{in_parallel, required};
use fuseline_core::backend::Backend;
use fuseline_core::ir::{Graph, Type};
use fuseline_core::plan::{self, Plan};
use fuseline_core::random::{GraphOptions, random_args, random_graph, shrink};
use fuseline_cpu::Cpu;
use fuseline_cuda::emulate::{self, Emulator, Options, Process, blank_unread};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Instant;

/// The CPU, with which the emulated kernels are compared.
fn backend() -> &'static dyn Backend {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(Cpu::new)
}

/// Graphs that are compiled together.
const CHUNK: u64 = 10;

/// The graph of a seed. Every other one has types narrower than `f32`; a difference in the last
/// bit may change an argmax there, so those have none.
fn graph_of(seed: u64) -> Graph {
    let narrow = seed % 2 == 1;
    let steps = 1 + (seed / 2 % 12) as usize;
    random_graph(seed, GraphOptions { steps, narrow, argmax: !narrow, ..GraphOptions::default() })
}

/// A graph's plan, with or without fusion.
struct Job {
    seed: u64,
    fusion: bool,
    graph: Graph,
    plan: Plan,
}

impl Job {
    fn new(graph: &Graph, seed: u64, fusion: bool) -> Result<Job, String> {
        let mut graph = graph.clone();
        if !fusion {
            // Kernels of one library have different names.
            graph.name += "_unfused";
        }
        let plan = plan::compile(&graph, &plan::Options { fusion });
        let plan = plan.map_err(|error| format!("does not compile: {error}"))?;
        Ok(Job { seed, fusion, graph, plan })
    }

    fn source(&self) -> String {
        fuseline_cuda::emit::source(std::slice::from_ref(&self.plan))
    }
}

/// What was run.
#[derive(Default)]
struct Tally {
    n_calls: usize,
    n_launches: usize,
    worst_error: f64,
    /// Kernels by template, weights by format.
    seen: BTreeMap<String, usize>,
}

/// Whether oracle, CPU and emulated kernels agree in all calls of a job. The process is over
/// after a fault.
fn agree(process: &mut Process, number: usize, job: &Job, tally: &mut Tally) -> Result<(), String> {
    let on_cpu = device::load(&job.graph, job.fusion);
    let full = job.plan.rows();
    let mut counts = vec![full];
    if job.graph.batch.is_some() {
        counts.extend([full / 2, full - 1]);
        counts.dedup();
        // Without rows nothing is launched.
        counts.retain(|&rows| rows > 0);
    }
    for rows in counts {
        let mut args = random_args(&job.graph, rows, job.seed);
        blank_unread(&job.graph, &mut args);
        let context = |error: String| format!("rows {rows}: {error}");
        let outcome = emulate::run(process, number, &job.plan, rows, &args)
            .map_err(|error| context(error.to_string()))?;
        let found = on_cpu.run(rows, &mut args).map_err(|error| context(error.to_string()))?;
        for (index, (cpu, cuda)) in found.iter().zip(&outcome.results).enumerate() {
            let distances = cpu.iter().zip(cuda).map(|(a, b)| (a - b).abs());
            let distance = distances.filter(|distance| distance.is_finite()).fold(0.0, f64::max);
            let alike = |(a, b): (&f64, &f64)| a.is_finite() == b.is_finite();
            // Each may be off by what is allowed.
            let allowed = 2.0 * outcome.allowed[index];
            if distance > allowed || !cpu.iter().zip(cuda).all(alike) {
                let text = format!("result {index}: CPU and CUDA differ by {distance:e}");
                return Err(context(format!("{text} of {allowed:e} allowed")));
            }
        }
        tally.n_calls += 1;
        tally.n_launches += outcome.n_launches;
        tally.worst_error = tally.worst_error.max(outcome.worst_error);
    }
    for kernel in job.plan.kernels() {
        *tally.seen.entry(kernel.structure.template.name().to_string()).or_default() += 1;
    }
    for arg in &job.graph.args {
        if let Type::Weight { format, .. } = &job.graph[arg.value].ty {
            *tally.seen.entry(format.name.to_string()).or_default() += 1;
        }
    }
    Ok(())
}

/// A job by itself.
fn alone(emulator: &Emulator, job: &Job) -> Result<(), String> {
    let library = emulator.compile(&[&job.source()]).map_err(|error| error.to_string())?;
    let mut process = emulator.start().map_err(|error| error.to_string())?;
    let number = process.open(&library).map_err(|error| error.to_string())?;
    agree(&mut process, number, job, &mut Tally::default())
}

/// The jobs of a chunk that fail, and why.
fn chunk(emulator: &Emulator, seeds: std::ops::Range<u64>) -> (Tally, Vec<(Job, String)>) {
    let jobs: Vec<Job> = seeds
        .flat_map(|seed| [true, false].map(|fusion| Job::new(&graph_of(seed), seed, fusion)))
        .collect::<Result<_, _>>()
        .unwrap();
    let sources: Vec<String> = jobs.iter().map(Job::source).collect();
    let texts: Vec<&str> = sources.iter().map(String::as_str).collect();
    let library = emulator.compile(&texts).unwrap();
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    let mut process = None;
    for job in jobs {
        let (mut running, number) = process.take().unwrap_or_else(|| {
            let mut process = emulator.start().unwrap();
            let number = process.open(&library).unwrap();
            (process, number)
        });
        match agree(&mut running, number, &job, &mut tally) {
            Ok(()) => process = Some((running, number)),
            Err(error) => failures.push((job, error)),
        }
    }
    (tally, failures)
}

/// The smallest graph that fails like a job, and how.
fn smallest(emulator: &Emulator, job: &Job, error: &str) -> (Graph, String) {
    let mut last = error.to_string();
    let graph = shrink(&job.graph, &mut |graph| {
        let found = Job::new(graph, job.seed, job.fusion).and_then(|job| alone(emulator, &job));
        match found {
            Ok(()) => false,
            Err(error) => {
                last = error;
                true
            }
        }
    });
    (graph, last)
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, found `{text}`")),
        Err(_) => default,
    }
}

#[test]
fn random_graphs_agree() {
    let Some(emulator) = required(Options::default()) else { return };
    let (first, n_graphs) =
        (number("FUSELINE_RANDOM_SEED", 0), number("FUSELINE_RANDOM_GRAPHS", 500));
    let end = first + n_graphs;
    println!("seeds {first} to {}", end - 1);
    let start = Instant::now();
    let chunks: Vec<u64> = (first..end).step_by(CHUNK as usize).collect();
    let done = in_parallel(&chunks, |&first| chunk(&emulator, first..end.min(first + CHUNK)));
    let (mut total, mut failures) = (Tally::default(), Vec::new());
    for (tally, found) in done {
        total.n_calls += tally.n_calls;
        total.n_launches += tally.n_launches;
        total.worst_error = total.worst_error.max(tally.worst_error);
        for (what, n) in tally.seen {
            *total.seen.entry(what).or_default() += n;
        }
        failures.extend(found);
    }
    let seconds = start.elapsed().as_secs_f64();
    let Tally { n_calls, n_launches, worst_error, seen } = &total;
    println!("{n_graphs} graphs, {n_calls} calls, {n_launches} launches in {seconds:.0} s");
    println!("largest error {worst_error:.2e}; {seen:?}");
    if let Some(path) = std::env::var_os("FUSELINE_RANDOM_RECORD") {
        let record = serde_json::json!({
            "first_seed": first, "graphs": n_graphs, "plans": "fused and unfused",
            "calls": n_calls, "launches": n_launches, "failures": failures.len(),
            "worst_error": worst_error, "kernels_by_template_and_weights_by_format": seen,
            "seconds": seconds.round(),
        });
        std::fs::write(path, format!("{record:#}\n")).unwrap();
    }
    if let Some((job, error)) = failures.iter().min_by_key(|(job, _)| job.graph.values.len()) {
        let seeds: Vec<u64> = failures.iter().map(|(job, _)| job.seed).collect();
        let (graph, last) = smallest(&emulator, job, error);
        let (seed, fusion) = (job.seed, job.fusion);
        panic!(
            "graphs of the seeds {seeds:?} fail; seed {seed}, fusion {fusion}:\n{error}\n\n\
             the smallest graph that fails too:\n{graph}\n{last}"
        );
    }
    if n_graphs >= 500 {
        for what in ["pointwise", "rows", "linear", "attend", "gather"] {
            assert!(seen.contains_key(what), "no kernel is {what}");
        }
        // Rows of random graphs are too short for larger groups; `emulated_matrix` has those.
        let formats = fuseline_core::format::FORMATS.iter();
        let formats = formats.filter(|format| format.group_size() <= 32);
        let formats = formats.map(|format| &*format.name);
        for name in formats.chain(["Curve4"]) {
            assert!(seen.contains_key(name), "no weight is {name}");
        }
    }
}
