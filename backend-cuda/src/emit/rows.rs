//! Reductions of rows. [`kernel`] is the row template: one block a row. Linears compute the
//! reductions of their prologue with the same text, [`reductions`].

use super::index::{Index, delinearize};
use super::runs::Runs;
use super::scope::{Context, Leaf, Scope};
use super::text::Body;
use fuseline_core::ir::{Dim, Op, Reduction, ValueId};
use fuseline_core::plan::Rows;
use fuseline_core::plan::schedule::THREADS;
use std::collections::BTreeMap;

/// What each reduction of a row leaves: names of variables.
pub(crate) type RowResults = BTreeMap<ValueId, Vec<String>>;

/// Computes the reductions of one row, whose number is the variable `row`; every thread of the
/// block gets the results. `partial` is shared, with room for two numbers a warp.
pub(crate) fn reductions(
    cx: &Context<'_>,
    body: &mut Body,
    row_ops: &[ValueId],
    n_rows: usize,
) -> RowResults {
    let graph = cx.graph();
    let mut results = RowResults::new();
    for &id in row_ops {
        let x = graph[id].inputs[0];
        let shape = graph[x].ty.shape();
        let width = shape.last().map_or(1, |dim| dim.size);
        let name = cx.name(id);
        // One pass over the row: `step` adds the element `x` to `start`.
        let pass = |body: &mut Body,
                    results: &RowResults,
                    var: &str,
                    start: &str,
                    step: &dyn Fn(&str) -> String| {
            body.line(format!("float {var} = {start};"));
            each_element(cx, body, x, |body, leaf| {
                let mut scope = Scope::new(cx, leaf, results);
                let element = scope.element(x, &row_coords(shape, n_rows));
                scope.line(format!("{var} = {};", step(&element)));
                body.lines(scope.into_lines());
            });
        };
        let n_warps = cx.kernel.launch.n_threads / 32;
        let sum = |var: &str| format!("{var} = fl_block_sum({var}, partial, {n_warps});");
        let max = |var: &str| format!("{var} = fl_block_max({var}, partial, {n_warps});");
        let names = match &graph[id].op {
            Op::Reduce(Reduction::Sum | Reduction::Mean) => {
                let var = format!("{name}_sum");
                pass(body, &results, &var, "0.0f", &|x| format!("{var} + {x}"));
                body.line(sum(&var));
                if graph[id].op == Op::Reduce(Reduction::Mean) {
                    body.line(format!("{var} = fl_div({var}, {width}.0f);"));
                }
                vec![var]
            }
            Op::Reduce(Reduction::Max) => {
                let var = format!("{name}_max");
                pass(body, &results, &var, "FL_NEGATIVE_INFINITY", &|x| {
                    format!("fl_max({var}, {x})")
                });
                body.line(max(&var));
                vec![var]
            }
            Op::Softmax => {
                let (top, total) = (format!("{name}_max"), format!("{name}_sum"));
                pass(body, &results, &top, "FL_NEGATIVE_INFINITY", &|x| {
                    format!("fl_max({top}, {x})")
                });
                body.line(max(&top));
                pass(body, &results, &total, "0.0f", &|x| format!("{total} + fl_exp({x} - {top})"));
                body.line(sum(&total));
                vec![top, total]
            }
            Op::RmsNorm { eps } => {
                let var = format!("{name}_scale");
                pass(body, &results, &var, "0.0f", &|x| format!("fl_fma({x}, {x}, {var})"));
                body.line(sum(&var));
                body.line(format!(
                    "{var} = fl_rsqrt(fl_div({var}, {width}.0f) + {});",
                    super::pointwise_text::float_text(*eps)
                ));
                vec![var]
            }
            Op::LayerNorm { eps } => {
                let (mean, scale) = (format!("{name}_mean"), format!("{name}_scale"));
                pass(body, &results, &mean, "0.0f", &|x| format!("{mean} + {x}"));
                body.line(sum(&mean));
                body.line(format!("{mean} = fl_div({mean}, {width}.0f);"));
                pass(body, &results, &scale, "0.0f", &|x| {
                    format!("fl_fma({x} - {mean}, {x} - {mean}, {scale})")
                });
                body.line(sum(&scale));
                body.line(format!(
                    "{scale} = fl_rsqrt(fl_div({scale}, {width}.0f) + {});",
                    super::pointwise_text::float_text(*eps)
                ));
                vec![mean, scale]
            }
            Op::Argmax => {
                let (best, index) = (format!("{name}_best"), format!("{name}_index"));
                body.line(format!("float {best} = FL_NEGATIVE_INFINITY;"));
                body.line(format!("int {index} = {width};"));
                body.open(strided(cx, width));
                let mut scope = Scope::new(cx, &|_, _| None, &results);
                let element = scope.element(x, &row_coords(shape, n_rows));
                scope.line(format!("if (fl_beats({element}, (int)k, {best}, {index})) {{"));
                scope.line(format!("    {best} = {element};"));
                scope.line(format!("    {index} = (int)k;"));
                scope.line("}");
                body.lines(scope.into_lines());
                body.close();
                body.line(format!(
                    "{index} = fl_block_argmax({best}, {index}, partial, {n_warps});"
                ));
                vec![index]
            }
            _ => continue, // only reductions are row operations
        };
        results.insert(id, names);
    }
    results
}

/// Elements that a thread loads at once.
const RUN: usize = 4;
/// Runs that a thread asks for before it computes with the first.
const RUNS_AHEAD: usize = 4;

/// Loops in which each thread takes elements `k` of row `row` of `x`, in runs where it can.
fn each_element(
    cx: &Context<'_>,
    body: &mut Body,
    x: ValueId,
    mut text: impl FnMut(&mut Body, &Leaf<'_>),
) {
    let width = cx.graph()[x].ty.shape().last().map_or(1, |dim| dim.size);
    let n_threads = cx.kernel.launch.n_threads;
    if !width.is_multiple_of(RUN) {
        body.open(strided(cx, width));
        text(body, &|_, _| None);
        body.close();
        return;
    }
    let int = cx.index_type();
    let runs = Runs::of(cx, x, RUN);
    let turns = width.div_ceil(RUN * n_threads);
    body.line(format!("FL_UNROLL_BY({})", turns.clamp(1, RUNS_AHEAD)));
    body.open(format!(
        "for ({int} k0 = {RUN} * fl_thread(); k0 < {width}; k0 += {}) {{",
        RUN * n_threads
    ));
    runs.declare(body, RUN);
    runs.load(body, RUN, "k0", 0);
    body.line("FL_UNROLL");
    body.open(format!("for (int j = 0; j < {RUN}; j++) {{"));
    body.line(format!("const {int} k = k0 + j;"));
    text(body, &|id, _| runs.leaf(id, "j"));
    body.close();
    body.close();
}

/// The loop in which each thread takes every so many elements `k` of a row.
pub(crate) fn strided(cx: &Context<'_>, width: usize) -> String {
    let int = cx.index_type();
    format!("for ({int} k = fl_thread(); k < {width}; k += {}) {{", cx.kernel.launch.n_threads)
}

/// The coordinates of element `k` of row `row`.
pub(crate) fn row_coords(shape: &[Dim], n_rows: usize) -> Vec<Index> {
    let Some((last, lead)) = shape.split_last() else { return Vec::new() };
    let mut coords = delinearize(&Index::var("row", n_rows), lead);
    coords.push(Index::var("k", last.size));
    coords
}

/// The row template.
pub(crate) fn kernel(cx: &Context<'_>, body: &mut Body, rows: &Rows) {
    let graph = cx.graph();
    let operand = graph[graph[rows.row_ops[0]].inputs[0]].ty.shape();
    let lead = &operand[..operand.len() - 1];
    let int = cx.index_type();
    body.line(format!("FL_STATIC_SHARED_FLOATS(partial, {});", 2 * THREADS / 32));
    body.line(format!("const {int} row = fl_block();"));
    body.line(format!("if (row >= {}) return;", cx.n_rows(lead)));
    let results = reductions(cx, body, &rows.row_ops, rows.n_rows);
    // Values with a number a row, then values with whole rows.
    let (single, whole): (Vec<ValueId>, Vec<ValueId>) =
        cx.kernel.stores.iter().partition(|&&id| match graph[id].op {
            Op::Append => false,
            Op::Argmax => true,
            _ => graph[id].ty.elements() != rows.n_rows * rows.width,
        });
    if !single.is_empty() {
        body.open("if (fl_thread() == 0) {");
        let mut scope = Scope::new(cx, &|_, _| None, &results);
        for &id in &single {
            if graph[id].op == Op::Argmax {
                let (name, index) = (cx.name(id), &results[&id][0]);
                scope.line(format!("fl_store_i32({name}_out, row, {index});"));
            } else {
                let mut coords = delinearize(&Index::var("row", rows.n_rows), lead);
                coords.push(Index::constant(0));
                scope.store(id, &coords);
            }
        }
        body.lines(scope.into_lines());
        body.close();
    }
    if !whole.is_empty() {
        body.open(strided(cx, rows.width));
        let mut scope = Scope::new(cx, &|_, _| None, &results);
        for &id in &whole {
            scope.store(id, &row_coords(operand, rows.n_rows));
        }
        body.lines(scope.into_lines());
        body.close();
    }
}
