//! The operand of matrix instructions: a block computes its rows once, splits each element into
//! `bf16` parts and puts them into shared memory as lanes will load them.

use super::super::rows;
use super::super::scope::{Context, Scope};
use super::super::text::Body;
use super::row_results;
use fuseline_core::format::PIECE;
use fuseline_core::plan::Linear;
use fuseline_core::plan::matrix::{MatrixShared, has_offsets, n_columns, n_pieces};

/// The element along K that half `j` of a lane's 16 bytes holds, of piece `piece` and lane `t` of
/// the four: in the order in which codes of these bits come out of a word.
fn element_text(bits: u8) -> &'static str {
    match bits {
        // Codes i and i + 4 of a word are 16 bits apart.
        4 => "8 * t + j / 2 + j % 2 * 4",
        // A piece is two words, whose lanes follow each other.
        8 => "j / 4 * 16 + 4 * t + j % 4",
        _ => "8 * t + j",
    }
}

/// Stages the operand; a barrier ends it. `bits` are those of the weights' codes.
pub(super) fn stage(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    (n_parts, bits): (usize, u8),
    shared: &MatrixShared,
) {
    let graph = cx.graph();
    let shape = graph[linear.x].ty.shape();
    let (int, n_threads) = (cx.index_type(), cx.kernel.launch.n_threads);
    let (n_pieces, n_rows) = (n_pieces(graph, linear), linear.n_rows);
    let n_columns = n_columns(linear, n_parts);
    let offsets = has_offsets(graph, linear);
    let read = row_results(cx, body, linear, (shared.row_results.0, shared.partial.0));
    let lanes = 4 * n_pieces;
    body.open(format!("for ({int} i = fl_thread(); i < {}; i += {n_threads}) {{", n_rows * lanes));
    body.line(format!("const {int} row = i / {lanes};"));
    body.line(format!("const int piece = (int)(i % {lanes}) / 4;"));
    body.line("const int t = (int)i % 4;");
    body.line(format!("unsigned parts[{n_parts}][4];"));
    if offsets {
        body.line("float x_sum = 0.0f;");
    }
    body.line("FL_UNROLL");
    body.open("for (int j = 0; j < 8; j++) {");
    body.line(format!("const {int} k = {PIECE} * piece + {};", element_text(bits)));
    let mut scope = Scope::new(cx, &|_, _| None, &read);
    let x = scope.element(linear.x, &rows::row_coords(shape, n_rows));
    body.line("float x = 0.0f;");
    let mut inside = Vec::new();
    if linear.k < PIECE * n_pieces {
        inside.push(format!("k < {}", linear.k));
    }
    if shape[..shape.len() - 1].iter().any(|dim| dim.batch) {
        inside.push("row < n_rows".to_string());
    }
    if !inside.is_empty() {
        body.open(format!("if ({}) {{", inside.join(" && ")));
    }
    scope.line(format!("x = {x};"));
    body.lines(scope.into_lines());
    if !inside.is_empty() {
        body.close();
    }
    if offsets {
        body.line("x_sum = x_sum + x;");
    }
    match n_parts {
        1 => body.line("fl_put_half(parts[0], j, fl_f32_to_bf16(x));"),
        2 => body.line("fl_split2(x, j, parts[0], parts[1]);"),
        _ => body.line("fl_split3(x, j, parts[0], parts[1], parts[2]);"),
    }
    body.close();
    body.line("FL_UNROLL");
    body.open(format!("for (int part = 0; part < {n_parts}; part++) {{"));
    body.line(
        "const uint4 words = {parts[part][0], parts[part][1], parts[part][2], parts[part][3]};",
    );
    body.line(format!(
        "x_shared[(piece * {n_columns} + part * {n_rows} + (int)row) * 4 + t] = words;"
    ));
    body.close();
    if offsets {
        body.line(format!("x_parts[(4 * piece + t) * {n_rows} + row] = x_sum;"));
    }
    body.close();
    body.line("fl_barrier();");
    if offsets {
        body.open(format!(
            "for (int i = fl_thread(); i < {}; i += {n_threads}) {{",
            n_pieces * n_rows
        ));
        body.line(format!("const int at = i / {n_rows} * {} + i % {n_rows};", 4 * n_rows));
        body.line(format!(
            "x_sums[i] = x_parts[at] + x_parts[at + {n_rows}] + (x_parts[at + {}] + x_parts[at + {}]);",
            2 * n_rows,
            3 * n_rows
        ));
        body.close();
        body.line("fl_barrier();");
    }
}
