//! The operand of matrix instructions: a block computes its rows once, splits each element into
//! `bf16` parts and puts them into shared memory as lanes will load them.

use super::super::rows;
use super::super::runs::Runs;
use super::super::scope::{Context, Scope, Spot};
use super::super::text::Body;
use super::row_results;
use fuseline_core::dtype::DType;
use fuseline_core::format::PIECE;
use fuseline_core::ir::ValueId;
use fuseline_core::plan::Linear;
use fuseline_core::plan::matrix::{MatrixShared, has_offsets, n_columns, n_pieces};
use std::collections::BTreeMap;

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

/// Where along K the runs begin that a lane loads at once.
fn run_starts(bits: u8) -> &'static [&'static str] {
    match bits {
        8 => &["4 * t", "16 + 4 * t"],
        _ => &["8 * t"],
    }
}

/// The eight elements of row `row` that lane `t` of four multiplies of a piece.
struct Eight<'a> {
    cx: &'a Context<'a>,
    linear: &'a Linear,
    bits: u8,
    /// Elements that follow each other along K, and are loaded at once.
    run: usize,
    runs: Runs,
    /// What elements that there are meet: `k` in the row, and the row in the call.
    guard: Option<String>,
}

impl<'a> Eight<'a> {
    fn new(cx: &'a Context<'a>, linear: &'a Linear, bits: u8) -> Eight<'a> {
        let shape = cx.graph()[linear.x].ty.shape();
        let is_batch = shape[..shape.len() - 1].iter().any(|dim| dim.batch);
        let is_padded = linear.k < PIECE * n_pieces(cx.graph(), linear);
        let in_row = is_padded.then(|| format!("k < {}", linear.k));
        let in_call = is_batch.then(|| "row < n_rows".to_string());
        let both: Vec<String> = in_row.into_iter().chain(in_call).collect();
        let guard = (!both.is_empty()).then(|| both.join(" && "));
        let run = if bits == 8 { 4 } else { 8 };
        Eight { cx, linear, bits, run, runs: Runs::of(cx, linear.x, run), guard }
    }

    /// Loads what can be loaded in runs.
    fn load(&self, body: &mut Body, piece: &str) {
        let int = self.cx.index_type();
        self.runs.declare(body, 8);
        for (first, at) in run_starts(self.bits).iter().zip([0, 4]) {
            body.open("{");
            body.line(format!("const {int} k = {PIECE} * {piece} + {first};"));
            self.guarded(body, |body| self.runs.load(body, self.run, "k", at));
            body.close();
        }
    }

    /// Opens the loop over them, with the j-th in the variable `name`: zero if there is none.
    fn open_each(
        &self,
        body: &mut Body,
        piece: &str,
        name: &str,
        read: &BTreeMap<ValueId, Vec<String>>,
    ) {
        let (cx, linear, int) = (self.cx, self.linear, self.cx.index_type());
        body.line("FL_UNROLL");
        body.open("for (int j = 0; j < 8; j++) {");
        body.line(format!("const {int} k = {PIECE} * {piece} + {};", element_text(self.bits)));
        let slot = if self.bits == 4 { "j / 2 + j % 2 * 4" } else { "j" };
        let leaf = |id: ValueId, _: Spot| self.runs.leaf(id, slot);
        let mut scope = Scope::new(cx, &leaf, read);
        let shape = cx.graph()[linear.x].ty.shape();
        let x = scope.element(linear.x, &rows::row_coords(shape, linear.n_rows));
        scope.line(format!("{name} = {x};"));
        body.line(format!("float {name} = 0.0f;"));
        self.guarded(body, |body| body.lines(scope.into_lines()));
    }

    fn guarded(&self, body: &mut Body, text: impl FnOnce(&mut Body)) {
        if let Some(guard) = &self.guard {
            body.open(format!("if ({guard}) {{"));
        }
        text(body);
        if self.guard.is_some() {
            body.close();
        }
    }
}

/// Turns of a thread whose loads are all asked for before it computes with the first.
const TURNS_AHEAD: usize = 6;

/// Stages the operand; a barrier ends it. `bits` are those of the weights' codes.
pub(super) fn stage(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    (n_parts, bits): (usize, u8),
    shared: &MatrixShared,
) {
    let graph = cx.graph();
    let (int, n_threads) = (cx.index_type(), cx.kernel.launch.n_threads);
    let (n_pieces, n_rows) = (n_pieces(graph, linear), linear.n_rows);
    let n_columns = n_columns(linear, n_parts);
    let offsets = has_offsets(graph, linear);
    let read = row_results(cx, body, linear, (shared.row_results.0, shared.partial.0));
    let lanes = 4 * n_pieces;
    let turns = (n_rows * lanes).div_ceil(n_threads);
    body.line(format!("FL_UNROLL_BY({})", if turns <= TURNS_AHEAD { turns } else { 4 }));
    body.open(format!("for (int turn = 0; turn < {turns}; turn++) {{"));
    body.line(format!("const {int} i = ({int})turn * {n_threads} + fl_thread();"));
    if !(n_rows * lanes).is_multiple_of(n_threads) {
        body.line(format!("if (i >= {}) continue;", n_rows * lanes));
    }
    body.line(format!("const {int} row = i / {lanes};"));
    body.line(format!("const int piece = (int)(i % {lanes}) / 4;"));
    body.line("const int t = (int)i % 4;");
    let eight = Eight::new(cx, linear, bits);
    eight.load(body, "piece");
    body.line(format!("unsigned parts[{n_parts}][4];"));
    if offsets {
        body.line("float x_sum = 0.0f;");
    }
    eight.open_each(body, "piece", "x", &read);
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

/// The four words of a lane, of an operand that is read where it is: column `column` of piece
/// `piece`. Gives the text of them. An element is split anew by each lane that multiplies it.
pub(super) fn column(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    (n_parts, bits): (usize, u8),
    piece: &str,
) -> String {
    let (int, n_rows) = (cx.index_type(), linear.n_rows);
    let eight = Eight::new(cx, linear, bits);
    let run = eight.run;
    if n_parts == 1 && is_plain(cx, linear, run) {
        // The words are the operand's own.
        body.line(format!("const {int} row = column % {n_rows};"));
        body.line(format!("const {int} k = {PIECE} * {piece} + {} * lane_t;", run));
        body.line("uint4 own = {0u, 0u, 0u, 0u};");
        let load = format!(
            "own = fl_load_pairs{bits}((const unsigned char*){}, 2 * ((long long)row * {} + k));",
            cx.name(linear.x),
            linear.k
        );
        body.line(eight.guard.map_or(load.clone(), |guard| format!("if ({guard}) {load}")));
        return "own".to_string();
    }
    body.line(format!("const {int} row = column % {n_rows};"));
    body.line("const int t = lane_t;");
    eight.load(body, piece);
    body.line("unsigned words[4];");
    eight.open_each(body, piece, "element", &BTreeMap::new());
    if n_parts == 1 {
        body.line("fl_put_half(words, j, fl_f32_to_bf16(element));");
    } else {
        body.line(format!(
            "fl_put_half(words, j, fl_part(element, column / {n_rows}, {n_parts}));"
        ));
    }
    body.close();
    "uint4{words[0], words[1], words[2], words[3]}".to_string()
}

/// Whether the operand is a `bf16` tensor in memory whose rows divide into runs of `run` elements,
/// both halves of a lane's where there are two.
fn is_plain(cx: &Context<'_>, linear: &Linear, run: usize) -> bool {
    let is_loaded = cx.kernel.loads.contains(&linear.x);
    let whole = linear.k.is_multiple_of(if run == 4 { PIECE } else { run });
    is_loaded && whole && cx.graph()[linear.x].ty.dtype() == DType::BF16
}
