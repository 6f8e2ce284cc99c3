//! A whole block, checked on random arguments.

use super::call;
use super::compiler::{Emulator, Options};
use super::error::{Error, Result};
use crate::emit;
use fuseline_core::ir::{Graph, Op, Type};
use fuseline_core::oracle::Datum;
use fuseline_core::plan::{self, Plan};
use fuseline_core::random::random_args;

/// What is checked, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Rows of the calls; empty for every bucket of the block, full and with a row less.
    pub rows: Vec<usize>,
    /// What random arguments depend on.
    pub seed: u64,
    /// Whether every operation is a kernel of its own.
    pub unfused: bool,
    /// A source that is run in place of the generated one: with the same kernels and parameters.
    pub source: Option<String>,
    /// How sources are compiled and run.
    pub options: Options,
}

/// What was checked, and how close it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Rows of each call that was run.
    pub rows: Vec<usize>,
    /// Kernels that were launched, alone and in chains.
    pub n_launches: usize,
    /// The largest error of an element, relative to the largest of its value.
    pub worst_error: f64,
}

/// Runs a block on random arguments, and compares every kernel with the oracle. `ir` is the
/// block's text: the constant `IR` beside a `#[decode]` function, or a `.ir` file.
///
/// # Errors
/// [`Error::Fault`] and [`Error::Mismatch`] for a kernel's mistakes, and all that keeps the block
/// from being planned, compiled or run.
pub fn check(ir: &str, check: &Check) -> Result<Report> {
    let graph = Graph::parse(ir).map_err(Error::Parse)?;
    let emulator = Emulator::new(check.options)?;
    check_graph(&emulator, &graph, check, &mut |_, _| {})
}

/// Checks a graph with an emulator that is there already, whose options count. `progress` is told
/// how many calls are done, of how many.
///
/// # Errors
/// Those of [`check`].
pub fn check_graph(
    emulator: &Emulator,
    graph: &Graph,
    check: &Check,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    let plans = plans(graph, check)?;
    let calls = calls(graph, &plans, &check.rows)?;
    progress(0, calls.len());
    let source = check.source.clone().unwrap_or_else(|| emit::source(&plans));
    let library = emulator.compile(&[&source])?;
    let mut process = emulator.start()?;
    let number = process.open(&library)?;
    let mut report = Report { rows: Vec::new(), n_launches: 0, worst_error: 0.0 };
    let n_calls = calls.len();
    for (index, (plan, rows)) in calls.into_iter().enumerate() {
        let mut args = random_args(plan.graph(), rows, check.seed);
        blank_unread(plan.graph(), &mut args);
        let outcome = call::run(&mut process, number, plan, rows, &args)?;
        report.rows.push(rows);
        report.n_launches += outcome.n_launches;
        report.worst_error = report.worst_error.max(outcome.worst_error);
        progress(index + 1, n_calls);
    }
    Ok(report)
}

/// A plan for each bucket that is asked for.
fn plans(graph: &Graph, check: &Check) -> Result<Vec<Plan>> {
    let options = plan::Options { fusion: !check.unfused };
    let Some(batch) = &graph.batch else { return Ok(vec![plan::compile(graph, &options)?]) };
    let buckets = batch.buckets();
    let needed = |bucket: &usize| {
        let of_bucket = |&rows: &usize| buckets.iter().find(|&&b| b >= rows) == Some(bucket);
        check.rows.is_empty() || check.rows.iter().any(of_bucket)
    };
    let plan = |bucket: usize| plan::compile(&graph.with_rows(bucket), &options);
    Ok(buckets.iter().copied().filter(needed).map(plan).collect::<std::result::Result<_, _>>()?)
}

/// The calls of a check: a plan and rows each.
fn calls<'a>(graph: &Graph, plans: &'a [Plan], rows: &[usize]) -> Result<Vec<(&'a Plan, usize)>> {
    if rows.is_empty() || graph.batch.is_none() {
        let of_plan = |plan: &'a Plan| {
            let full = plan.rows();
            let less = (graph.batch.is_some() && full > 1).then(|| full - 1);
            std::iter::once(full).chain(less).map(move |rows| (plan, rows))
        };
        return Ok(plans.iter().flat_map(of_plan).collect());
    }
    let call = |&rows: &usize| {
        let plan = plans.iter().find(|plan| plan.rows() >= rows);
        let most = graph.batch.as_ref().map_or(1, |batch| batch.max);
        plan.map(|plan| (plan, rows))
            .ok_or_else(|| Error::Rows { expected: format!("at most {most}"), found: rows })
    };
    rows.iter().map(call).collect()
}

/// Puts NaN at every place of the caches that the call must not read.
pub fn blank_unread(graph: &Graph, args: &mut [Datum]) {
    for value in graph.values.iter().filter(|value| value.op == Op::Append) {
        let place = |id| graph.args.iter().position(|arg| arg.value == id);
        let (Some(cache), Some(index)) = (place(value.inputs[0]), place(value.inputs[3])) else {
            continue;
        };
        let Type::Cache { kv_heads, head_dim, capacity, .. } = &value.ty else { continue };
        let Datum::Index { positions, sequences } = args[index].clone() else { continue };
        let Datum::Cache { keys, values } = &mut args[cache] else { continue };
        let rows = || sequences.iter().zip(&positions);
        for (at, (key, value)) in keys.iter_mut().zip(values).enumerate() {
            let position = at / head_dim.size % capacity.size;
            let sequence = at / (head_dim.size * capacity.size * kv_heads.size);
            let read = rows().any(|(&s, &p)| s as usize == sequence && position < p as usize);
            if !read {
                (*key, *value) = (f64::NAN, f64::NAN);
            }
        }
    }
}
