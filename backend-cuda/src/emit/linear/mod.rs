//! The linear template: products of one operand with weights, in one of two ways, and what both
//! share. A block computes the sums of a *tile* of outputs of each segment into shared memory; then
//! its threads run the epilogue, element by element.

mod lanes;
mod matrix;
mod pairs;
mod ring;
mod stage;
mod sums;

pub(crate) use pairs::pairs_function;

use super::index::{Index, delinearize};
use super::rows;
use super::scope::{Context, Scope, Spot};
use super::text::Body;
use fuseline_core::ir::{Op, ValueId};
use fuseline_core::plan::matrix::task_tiles;
use fuseline_core::plan::schedule::GroupBlocks;
use fuseline_core::plan::{Group, Linear, Multiply, PairOrder, Segment};
use std::collections::BTreeMap;

/// The linear template.
pub(crate) fn kernel(cx: &Context<'_>, body: &mut Body, linear: &Linear) {
    match (linear.multiply, cx.kernel.launch.matrix) {
        (Multiply::Matrix { n_parts }, Some(launch)) => {
            matrix::kernel(cx, body, linear, n_parts, launch);
        }
        _ => {
            body.line("fl_begin_kernel();");
            lanes::kernel(cx, body, linear);
        }
    }
}

/// The text of each group, in the branch of its blocks.
fn each_group(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    mut text: impl FnMut(&mut Body, &Group, GroupBlocks),
) {
    for (index, (group, blocks)) in linear.groups.iter().zip(&cx.kernel.launch.groups).enumerate() {
        let opening = if index == 0 { "" } else { "} else " };
        let last = blocks.first + blocks.n_blocks;
        if linear.groups.len() > 1 {
            if index > 0 {
                body.dedent();
            }
            body.open(format!("{opening}if (fl_block() < {last}) {{"));
        }
        text(body, group, *blocks);
    }
    if linear.groups.len() > 1 {
        body.close();
    }
}

/// The reductions of the operand's rows, computed into shared memory from float `results_at` on;
/// `partial_at` is where warps reduce. Gives the text of each result in row `row`.
fn row_results(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    (results_at, partial_at): (usize, usize),
) -> BTreeMap<ValueId, Vec<String>> {
    let mut read: BTreeMap<ValueId, Vec<String>> = BTreeMap::new();
    if linear.row_ops.is_empty() {
        return read;
    }
    let int = cx.index_type();
    let n_results = 2 * linear.row_ops.len() * linear.n_rows;
    body.line(format!(
        "FL_SHARED_FLOATS(row_results, {results_at}, {n_results}); // [2 a reduction][{}]",
        linear.n_rows
    ));
    let n_partial = 2 * cx.kernel.launch.n_threads / 32;
    body.line(format!("FL_SHARED_FLOATS(partial, {partial_at}, {n_partial});"));
    body.open(format!("for ({int} row = 0; row < n_rows; row++) {{"));
    let results = rows::reductions(cx, body, &linear.row_ops, linear.n_rows);
    body.open("if (fl_thread() == 0) {");
    for (op_index, id) in linear.row_ops.iter().enumerate() {
        for (place, name) in results.get(id).into_iter().flatten().enumerate() {
            let slot = match (2 * op_index + place) * linear.n_rows {
                0 => String::new(),
                first => format!("{first} + "),
            };
            body.line(format!("row_results[{slot}row] = {name};"));
            read.entry(*id).or_default().push(format!("row_results[{slot}row]"));
        }
    }
    body.close();
    body.close();
    body.line("fl_barrier();");
    read
}

/// The element that is the e-th in pair order; pairs are `run` elements apart, 1 for neighbours.
fn order_text(order: PairOrder, run: usize) -> String {
    match order {
        PairOrder::Natural => "e".to_string(),
        // Both halves are in one tile.
        PairOrder::Halves { rotary, .. } if rotary == 2 * run => "e".to_string(),
        PairOrder::Halves { head_dim, rotary } => {
            let (half, both) = (rotary / 2, 2 * run);
            let (second, rest) = match run {
                1 => (format!("e % {head_dim} % 2"), String::new()),
                _ => (format!("e % {both} / {run}"), format!(" + e % {run}")),
            };
            let first = match run {
                1 => format!("e % {head_dim} / 2"),
                _ => format!("e % {head_dim} / {both} * {run}"),
            };
            let pair = format!("{second} * {half} + {first}{rest}");
            if rotary == head_dim {
                format!("e / {head_dim} * {head_dim} + {pair}")
            } else {
                format!(
                    "e / {head_dim} * {head_dim} + (e % {head_dim} < {rotary} ? {pair} : e % {head_dim})"
                )
            }
        }
    }
}

/// The row of a segment's tile among all tiles.
fn tile_row(segment: usize, n_sums: usize, r: &str) -> String {
    match segment * n_sums {
        0 => r.to_string(),
        first => format!("({first} + {r})"),
    }
}

/// The sums that an epilogue reads: `tile[segment][row][output]` in shared memory.
struct Tile {
    /// Rows.
    n_rows: usize,
    /// Outputs.
    width: usize,
    /// The operand's row that is row `r` of the tile.
    row: String,
    /// Whose tiles there are.
    teams: Teams,
}

/// Who runs an epilogue on which tiles.
enum Teams {
    /// The whole block, on the one tile from output `e0` on.
    One,
    /// The whole block, on the tiles of all its teams, tasks `round` and following.
    All { n_teams: usize, n_segments: usize },
    /// Each warp, on its own tile, of task `task`.
    Own { n_segments: usize },
}

impl Tile {
    /// How many outputs further the partner of a rotation is.
    fn partner(&self, order: PairOrder, multiply: Multiply) -> usize {
        match (multiply, order) {
            (Multiply::Matrix { .. }, PairOrder::Halves { rotary, .. }) => {
                match task_tiles(order) {
                    Some(2) => self.width / 2,
                    _ => rotary / 2,
                }
            }
            _ => 1,
        }
    }
}

/// What is computed from the sums of a tile, and stored.
fn epilogue(cx: &Context<'_>, body: &mut Body, linear: &Linear, group: &Group, tile: &Tile) {
    let (graph, int) = (cx.graph(), cx.index_type());
    let (n_sums, width) = (tile.n_rows, tile.width);
    let partner = tile.partner(group.order, linear.multiply);
    let per_task = n_sums * width;
    let n_threads = cx.kernel.launch.n_threads;
    let (first, n, step) = match tile.teams {
        Teams::One => ("fl_thread()", per_task, n_threads),
        Teams::All { n_teams, .. } => ("fl_thread()", n_teams * per_task, n_threads),
        Teams::Own { .. } => ("lane", per_task, 32),
    };
    body.open(format!("for (int i = {first}; i < {n}; i += {step}) {{"));
    let base = match tile.teams {
        Teams::One => String::new(),
        Teams::All { n_segments, .. } => {
            body.line(format!("const int own = i / {per_task};"));
            body.line("if (round + own >= last_task) break;");
            body.line(format!("const {int} e0 = ({int})(round + own) * {width};"));
            format!("own * {} + ", n_segments * per_task)
        }
        Teams::Own { n_segments } => {
            body.line(format!("const {int} e0 = ({int})task * {width};"));
            format!("team * {} + ", n_segments * per_task)
        }
    };
    body.line(format!("const int r = i % {per_task} / {width};"));
    body.line(format!("const int l = i % {width};"));
    body.line(format!("const {int} row = {};", tile.row));
    body.line("if (row >= n_rows) continue;");
    body.line(format!("const {int} e = e0 + l;"));
    body.line(format!("if (e >= {}) continue;", group.len));
    body.line(format!("const {int} f = {};", order_text(group.order, partner)));
    let leaf = |id: ValueId, spot: Spot| {
        if graph[id].op != Op::Linear {
            return None;
        }
        let wanted = Segment { linear: id, start: spot.start };
        let index = group.segments.iter().position(|segment| *segment == wanted)?;
        let l = if spot.partner { format!("(l ^ {partner})") } else { "l".to_string() };
        Some(format!("tile[{base}{} * {width} + {l}]", tile_row(index, n_sums, "r")))
    };
    let none = BTreeMap::new();
    let mut scope = Scope::new(cx, &leaf, &none);
    let (row, f) = (Index::var("row", linear.n_rows), Index::var("f", group.len));
    for &id in &group.stores {
        let shape = match graph[id].op {
            Op::Append => graph[graph[id].inputs[1]].ty.shape(),
            _ => graph[id].ty.shape(),
        };
        let place = row.times(group.len).plus(&f);
        scope.store(id, &delinearize(&place, shape));
    }
    body.lines(scope.into_lines());
    body.close();
}
