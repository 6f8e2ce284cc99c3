//! Every golden plan of the core and every reported case, executed without a GPU: each kernel
//! alone on the oracle's operands, then all of a plan in a chain.

mod emulator;
mod sources;

use emulator::{in_parallel, required};
use fuseline_core::cases::cases;
use fuseline_core::ir::Graph;
use fuseline_core::oracle::Datum;
use fuseline_core::plan::Plan;
use fuseline_core::random::random_args;
use fuseline_cuda::emulate::{self, Emulator, Options, Process, blank_unread};

/// A block, and calls of its plans.
struct Job {
    name: String,
    plans: Vec<Plan>,
    calls: Vec<(usize, usize, Vec<Datum>)>,
}

/// A graph's plans for one row and for its largest bucket, with calls of the bucket full and of a
/// row less.
fn job(name: &str, graph: &Graph, fusion: bool, seed: u64) -> Job {
    let plans = sources::plans(graph, fusion);
    let mut calls = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        let less = (plan.graph().batch.is_some() && plan.rows() > 1).then(|| plan.rows() - 1);
        for rows in [Some(plan.rows()), less].into_iter().flatten() {
            let mut args = random_args(plan.graph(), rows, seed);
            blank_unread(plan.graph(), &mut args);
            calls.push((index, rows, args));
        }
    }
    let name = format!("{name}{}", if fusion { "" } else { ", unfused" });
    Job { name, plans, calls }
}

/// Compiles a job's source, and loads it.
fn open(emulator: &Emulator, process: &mut Process, job: &Job) -> emulate::Result<usize> {
    process.open(&emulator.compile(&[&fuseline_cuda::emit::source(&job.plans)])?)
}

fn run(emulator: &Emulator, job: &Job) -> emulate::Result<usize> {
    let mut process = emulator.start()?;
    let number = open(emulator, &mut process, job)?;
    let mut n_launches = 0;
    for (plan, rows, args) in &job.calls {
        let plan = &job.plans[*plan];
        n_launches += emulate::run(&mut process, number, plan, *rows, args)?.n_launches;
    }
    Ok(n_launches)
}

#[test]
fn every_golden_kernel_is_right() {
    let Some(emulator) = required(Options { optimize: true, ..Options::default() }) else { return };
    let mut jobs = Vec::new();
    for (name, graph) in sources::graphs() {
        jobs.extend([true, false].map(|fusion| job(&name, &graph, fusion, 1)));
    }
    let found = in_parallel(&jobs, |job| {
        let start = std::time::Instant::now();
        let result = run(&emulator, job).map_err(|error| format!("{}: {error}", job.name));
        println!("{:>6.2} s  {}", start.elapsed().as_secs_f64(), job.name);
        result
    });
    let faults: Vec<&String> = found.iter().filter_map(|result| result.as_ref().err()).collect();
    let n_launches: usize = found.iter().flatten().sum();
    println!("{} blocks, {n_launches} launches", jobs.len());
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(n_launches > 500, "{n_launches} launches");
}

#[test]
fn every_reported_case_is_right() {
    let Some(emulator) = required(Options::default()) else { return };
    let cases: Vec<_> = cases().into_iter().filter(|case| case.rows > 0).collect();
    let found = in_parallel(&cases, |case| {
        let mut process = emulator.start().map_err(|error| error.to_string())?;
        for fusion in [true, false] {
            let options = fuseline_core::plan::Options { fusion };
            let plan = fuseline_core::plan::compile(&case.graph, &options).unwrap();
            let job = Job { name: case.name.clone(), plans: vec![plan], calls: Vec::new() };
            let outcome = open(&emulator, &mut process, &job).and_then(|number| {
                emulate::run(&mut process, number, &job.plans[0], case.rows, &case.args)
            });
            let outcome = outcome.map_err(|error| format!("{}: {error}", case.name))?;
            case.check(&outcome.results)?;
        }
        Ok(())
    });
    let faults: Vec<&String> = found.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
