//! Linears for any format: a block puts the operand's rows into shared memory, computing the
//! prologue on the way; then each warp takes one output of each segment at a time, its lanes
//! stride along K, and the block's threads run the epilogue on the tile of sums.

use super::super::format::{load_function, prefix};
use super::super::rows;
use super::super::scope::{Context, Scope};
use super::super::text::Body;
use super::{Teams, Tile, order_text, row_results, tile_row};
use fuseline_core::format::WeightFormat;
use fuseline_core::ir::Type;
use fuseline_core::plan::schedule::{
    GroupBlocks, LINEAR_CHUNK, LINEAR_TILE, THREADS, linear_rows, staged_width,
};
use fuseline_core::plan::{Group, Linear, Segment};
use std::collections::BTreeMap;

/// The whole kernel.
pub(super) fn kernel(cx: &Context<'_>, body: &mut Body, linear: &Linear) {
    let graph = cx.graph();
    let shape = graph[linear.x].ty.shape();
    let lead = &shape[..shape.len() - 1];
    let int = cx.index_type();
    let padded = staged_width(linear.k);
    let staged = if linear.staged { linear.n_rows * padded } else { 0 };
    let n_segments = linear.groups.iter().map(|g| g.segments.len()).max().unwrap_or(0);
    let n_sums = linear_rows(linear.n_rows);
    let tiles = n_segments * n_sums * LINEAR_TILE;

    if linear.staged {
        body.line(format!(
            "FL_SHARED_FLOATS(x_shared, 0, {staged}); // [{}][{padded}]",
            linear.n_rows
        ));
    }
    body.line(format!(
        "FL_SHARED_FLOATS(tile, {staged}, {tiles}); // [{n_segments}][{n_sums}][{LINEAR_TILE}]"
    ));
    body.line(format!("const int n_rows = {};", cx.n_rows(lead)));
    body.line("const int lane = fl_thread() % 32;");
    body.line("const int warp = fl_thread() / 32;");
    if linear.staged {
        stage(cx, body, linear, staged + tiles);
    }
    super::each_group(cx, body, linear, |body, group, blocks| {
        group_tiles(cx, body, linear, group, blocks, int);
    });
}

/// The operand's rows, computed into shared memory; the padding is zero.
fn stage(cx: &Context<'_>, body: &mut Body, linear: &Linear, results_at: usize) {
    let graph = cx.graph();
    let shape = graph[linear.x].ty.shape();
    let (int, padded) = (cx.index_type(), staged_width(linear.k));
    let n_results = 2 * linear.row_ops.len() * linear.n_rows;
    let read = row_results(cx, body, linear, (results_at, results_at + n_results));
    body.open(format!("for ({int} i = fl_thread(); i < n_rows * {padded}; i += {THREADS}) {{"));
    body.line(format!("const {int} row = i / {padded};"));
    body.line(format!("const {int} k = i % {padded};"));
    let mut scope = Scope::new(cx, &|_, _| None, &read);
    let x = scope.element(linear.x, &rows::row_coords(shape, linear.n_rows));
    scope.line(format!("x_shared[i] = {x};"));
    if padded == linear.k {
        body.lines(scope.into_lines());
    } else {
        body.open(format!("if (k < {}) {{", linear.k));
        body.lines(scope.into_lines());
        body.dedent();
        body.open("} else {");
        body.line("x_shared[i] = 0.0f;");
        body.close();
    }
    body.close();
    body.line("fl_barrier();");
}

/// The tiles of one group.
fn group_tiles(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    group: &Group,
    blocks: GroupBlocks,
    int: &str,
) {
    let len = group.len;
    body.open(format!("for (int t = 0; t < {}; t++) {{", blocks.n_tiles));
    let first = match blocks.first {
        0 => "fl_block()".to_string(),
        first => format!("(fl_block() - {first})"),
    };
    body.line(format!(
        "const {int} e0 = (({int}){first} * {} + t) * {LINEAR_TILE};",
        blocks.n_tiles
    ));
    body.line(format!("if (e0 >= {len}) break;"));
    let n_sums = linear_rows(linear.n_rows);
    let in_parts = linear.n_rows > n_sums;
    if in_parts {
        body.open(format!("for (int r0 = 0; r0 < n_rows; r0 += {n_sums}) {{"));
    }
    body.open(format!("if (e0 + warp < {len}) {{"));
    body.line(format!("const {int} e = e0 + warp;"));
    body.line(format!("const {int} f = {};", order_text(group.order, 1)));
    for (index, segment) in group.segments.iter().enumerate() {
        dot(cx, body, linear, *segment, index, int);
    }
    body.close();
    body.line("fl_barrier();");
    let row = row_text(linear, "r");
    super::epilogue(
        cx,
        body,
        linear,
        group,
        &Tile { n_rows: n_sums, width: LINEAR_TILE, row, teams: Teams::One },
    );
    body.line("fl_barrier();");
    if in_parts {
        body.close();
    }
    body.close();
}

/// The row of the operand that is row `r` of a tile.
fn row_text(linear: &Linear, r: &str) -> String {
    match linear.n_rows > linear_rows(linear.n_rows) {
        true => format!("r0 + {r}"),
        false => r.to_string(),
    }
}

/// One output of a segment for the tile's rows: the warp's lanes stride along K.
fn dot(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    segment: Segment,
    index: usize,
    int: &str,
) {
    let graph = cx.graph();
    let weight = graph[segment.linear].inputs[1];
    let Type::Weight { format, .. } = &graph[weight].ty else { return };
    let (name, k) = (cx.name(weight), linear.k);
    let n_sums = linear_rows(linear.n_rows);
    let row = row_text(linear, "r");
    let padded = staged_width(k);
    body.open(format!("{{ // {}", graph.line(segment.linear)));
    let n = if segment.start == 0 { "f".to_string() } else { format!("{} + f", segment.start) };
    body.line(format!("const long long n = {n};"));
    body.line(format!("float sum[{n_sums}];"));
    body.line("FL_UNROLL");
    body.line(format!("for (int r = 0; r < {n_sums}; r++) sum[r] = 0.0f;"));
    body.open(format!(
        "for ({int} k0 = {LINEAR_CHUNK} * lane; k0 < {k}; k0 += {}) {{",
        32 * LINEAR_CHUNK
    ));
    body.line(format!("float w[{LINEAR_CHUNK}];"));
    body.line(format!("{}_decode8({name}_codes, n, (int)k0, {k}, w);", prefix(format)));
    group_numbers(body, format, &name, k);
    body.line("FL_UNROLL");
    body.open(format!("for (int r = 0; r < {n_sums}; r++) {{"));
    body.line(format!("if ({row} >= n_rows) break;"));
    body.line("float part = 0.0f;");
    let has_offset = format.group.is_some_and(|group| group.offset.is_some());
    if has_offset {
        body.line("float x_sum = 0.0f;");
    }
    body.line("FL_UNROLL");
    body.open(format!("for (int i = 0; i < {LINEAR_CHUNK}; i++) {{"));
    if linear.staged {
        body.line(format!("const float x = x_shared[({row}) * {padded} + k0 + i];"));
    } else {
        unstaged(cx, body, linear, int);
    }
    body.line("part = fl_fma(w[i], x, part);");
    if has_offset {
        body.line("x_sum = x_sum + x;");
    }
    body.close();
    match format.group {
        None => body.line("sum[r] = sum[r] + part;"),
        Some(_) => body.line("sum[r] = fl_fma(scale, part, sum[r]);"),
    }
    if has_offset {
        body.line("sum[r] = fl_fma(offset, x_sum, sum[r]);");
    }
    body.close();
    body.close();
    body.line("FL_UNROLL");
    body.open(format!("for (int r = 0; r < {n_sums}; r++) {{"));
    body.line(format!("if ({row} >= n_rows) break;"));
    body.line("const float total = fl_warp_sum(sum[r]);");
    let place = tile_row(index, n_sums, "r");
    body.line(format!("if (lane == 0) tile[{place} * {LINEAR_TILE} + warp] = total;"));
    body.close();
    body.close();
}

/// The scale and offset of the chunk's group.
fn group_numbers(body: &mut Body, format: &WeightFormat, name: &str, k: usize) {
    let Some(group) = format.group else { return };
    let at = format!("{}_group(n, (int)k0, {k})", prefix(format));
    body.line(format!("const float scale = {}({name}_scales, {at});", load_function(group.scale)));
    if let Some(offset) = group.offset {
        body.line(format!("const float offset = {}({name}_offsets, {at});", load_function(offset)));
    }
}

/// The operand's element, read from memory.
fn unstaged(cx: &Context<'_>, body: &mut Body, linear: &Linear, int: &str) {
    let shape = cx.graph()[linear.x].ty.shape();
    body.line(format!("const {int} row = {};", row_text(linear, "r")));
    body.line(format!("const {int} k = k0 + i;"));
    if !linear.k.is_multiple_of(LINEAR_CHUNK) {
        body.line(format!("if (k >= {}) break;", linear.k));
    }
    let none = BTreeMap::new();
    let mut scope = Scope::new(cx, &|_, _| None, &none);
    let x = scope.element(linear.x, &rows::row_coords(shape, linear.n_rows));
    scope.line(format!("const float x = {x};"));
    body.lines(scope.into_lines());
}
