//! Linears on matrix instructions. A block's first weights are on their way before the kernel waits
//! for those before it; then it stages the operand. A team of warps works on one task, the same tile
//! of every segment, and each member multiplies its own range of chunks; the task's sums meet in
//! shared memory. A warp that is a team of its own never waits for others.

use super::super::format::prefix;
use super::super::scope::Context;
use super::super::text::Body;
use super::ring::{Ring, ring_text};
use super::{Teams, Tile, stage};
use fuseline_core::dtype::DType;
use fuseline_core::format::{TILE_ROWS, Tiles, WeightFormat};
use fuseline_core::ir::{Type, ValueId};
use fuseline_core::plan::matrix::{
    MatrixLaunch, MatrixShared, group_words, n_chunks, n_columns, shared, task_outputs, tiles,
};
use fuseline_core::plan::schedule::GroupBlocks;
use fuseline_core::plan::{Group, Linear, Segment};

/// One tile of a segment: what a warp loads 64 bytes of each row of.
pub(super) struct Part<'a> {
    /// The tile's place among the segment's.
    pub tile: usize,
    pub linear: ValueId,
    /// The segment's first tile in the weight.
    pub first_tile: usize,
    pub name: String,
    pub format: &'a WeightFormat,
    pub tiles: Tiles,
}

impl Part<'_> {
    /// Groups end after this many pieces.
    fn group_pieces(&self) -> usize {
        (self.tiles.chunk_pieces() / self.tiles.block_groups).max(1)
    }
}

/// What the text of one kernel is made with.
pub(super) struct Matrix<'a> {
    pub cx: &'a Context<'a>,
    pub linear: &'a Linear,
    pub n_parts: usize,
    pub launch: MatrixLaunch,
    pub shared: MatrixShared,
    pub n_columns: usize,
    /// Instructions side by side that the columns take.
    pub n_wide: usize,
    pub n_chunks: usize,
}

/// The whole kernel.
pub(super) fn kernel(
    cx: &Context<'_>,
    body: &mut Body,
    linear: &Linear,
    n_parts: usize,
    launch: MatrixLaunch,
) {
    let graph = cx.graph();
    let shared = shared(graph, linear, n_parts, launch);
    let n_columns = n_columns(linear, n_parts);
    let shape = graph[linear.x].ty.shape();
    let kernel = Matrix {
        cx,
        linear,
        n_parts,
        launch,
        shared,
        n_columns,
        n_wide: n_columns.div_ceil(8),
        n_chunks: n_chunks(graph, linear),
    };
    body.line(format!(
        "FL_SHARED_WORDS4(x_shared, {}, {}); // [{}][{n_columns}][4]",
        shared.x.0,
        shared.x.1 / 4,
        shared.x.1 / (16 * n_columns),
    ));
    if shared.x_sums.1 > 0 {
        for (name, (at, n)) in [("x_sums", shared.x_sums), ("x_parts", shared.x_parts)] {
            body.line(format!("FL_SHARED_FLOATS({name}, {at}, {n});"));
        }
    }
    if !launch.direct {
        let (at, n) = shared.sums;
        let dims = format!("[{}][segment and tile][{}]", launch.n_teams, launch.team);
        body.line(format!(
            "FL_SHARED_FLOATS(sums, {at}, {n}); // {dims}[{n_columns}][{TILE_ROWS}]"
        ));
    }
    body.line(format!(
        "FL_SHARED_FLOATS(tile, {}, {}); // [{}][segment][{}][outputs]",
        shared.tile.0, shared.tile.1, launch.n_teams, linear.n_rows
    ));
    body.line(format!("const int n_rows = {};", cx.n_rows(&shape[..shape.len() - 1])));
    body.line("const int lane = fl_thread() % 32;");
    body.line("const int warp = fl_thread() / 32;");
    body.line("const int lane_row = lane / 4;");
    body.line("const int lane_t = lane % 4;");
    if n_columns < 8 {
        let last = n_columns - 1;
        body.line(format!("const int lane_column = lane_row < {last} ? lane_row : {last};"));
    }
    body.line(format!("const int team = warp / {};", launch.team));
    body.line(format!("const int member = warp % {};", launch.team));
    let (team, n_chunks) = (launch.team, kernel.n_chunks);
    body.line(format!("const int c_begin = member * {n_chunks} / {team};"));
    body.line(format!("const int c_end = (member + 1) * {n_chunks} / {team};"));
    super::each_group(cx, body, linear, |body, group, blocks| kernel.group(body, group, blocks));
}

impl<'a> Matrix<'a> {
    fn parts(&self, group: &Group) -> Vec<Part<'a>> {
        let graph = self.cx.graph();
        let n_tiles = task_outputs(group) / TILE_ROWS;
        let of_segment = |part: &Segment| {
            let weight = graph[part.linear].inputs[1];
            let Type::Weight { format, .. } = &graph[weight].ty else { return Vec::new() };
            let Some(tiles) = tiles(graph, part.linear) else { return Vec::new() };
            let (linear, first_tile) = (part.linear, part.start / TILE_ROWS);
            let name = self.cx.name(weight);
            (0..n_tiles)
                .map(|tile| {
                    let name = name.clone();
                    Part { tile, linear, first_tile, name, format, tiles }
                })
                .collect()
        };
        group.segments.iter().flat_map(of_segment).collect()
    }

    /// The tasks of one group.
    fn group(&self, body: &mut Body, group: &Group, blocks: GroupBlocks) {
        let parts = self.parts(group);
        let n_wide = self.n_wide;
        let outputs = task_outputs(group);
        let n_tasks = group.len.div_ceil(outputs);
        let block = match blocks.first {
            0 => "fl_block()".to_string(),
            first => format!("(fl_block() - {first})"),
        };
        // Tasks are divided evenly, whatever their number.
        let (n_blocks, n_teams) = (blocks.n_blocks, self.launch.n_teams);
        body.line(format!(
            "const int first_task = (int)((long long){block} * {n_tasks} / {n_blocks});"
        ));
        body.line(format!(
            "const int last_task = (int)((long long)({block} + 1) * {n_tasks} / {n_blocks});"
        ));
        let ring = Ring { launch: self.launch, shared: &self.shared };
        ring.declare(body, &parts);
        let depth = self.launch.depth;
        body.line("// What the warp asks for next; it asks for the first chunks before it waits.");
        body.line("int next_task = c_begin < c_end ? first_task + team : last_task;");
        body.line("int next_c = c_begin;");
        body.open(format!("for (int slot = 0; slot < {depth}; slot++) {{"));
        ring.ask(body, group, &parts);
        body.close();
        body.line("fl_begin_kernel();");
        let bits = parts.first().map_or(4, |part| part.format.bits);
        if self.linear.staged {
            stage::stage(self.cx, body, self.linear, (self.n_parts, bits), &self.shared);
        }

        body.line("int slot = 0;");
        // Warps on their own go on on their own.
        let is_alone = self.launch.team == 1;
        if is_alone {
            body.open(format!(
                "for (int task = first_task + team; task < last_task; task += {n_teams}) {{"
            ));
        } else {
            body.open(format!(
                "for (int round = first_task; round < last_task; round += {n_teams}) {{"
            ));
            body.line("const int task = round + team;");
            body.open("if (task < last_task) {");
        }
        body.line(format!("float sum[{}][{n_wide}][4] = {{}};", parts.len()));
        body.open("for (int c = c_begin; c < c_end; c++) {");
        body.line(format!("fl_copy_wait<{}>();", depth - 1));
        if self.is_ahead() {
            self.read_ahead(body, &parts);
        }
        self.multiply(body, &parts);
        ring.ask(body, group, &parts);
        body.line(format!("slot = slot + 1 < {depth} ? slot + 1 : 0;"));
        body.close();
        if self.launch.direct {
            self.store_tile(body, &parts, outputs);
        } else {
            self.store_sums(body, &parts);
        }
        if !is_alone {
            body.close();
        }
        let barrier = if is_alone { "fl_warp_barrier();" } else { "fl_barrier();" };
        body.line(barrier);
        if !self.launch.direct {
            self.reduce(body, &parts, outputs, is_alone);
            body.line(barrier);
        }
        let n_segments = group.segments.len();
        let tile = Tile {
            n_rows: self.linear.n_rows,
            width: outputs,
            row: "r".to_string(),
            teams: match is_alone {
                true => Teams::Own { n_segments },
                false => Teams::All { n_teams, n_segments },
            },
        };
        super::epilogue(self.cx, body, self.linear, group, &tile);
        if self.launch.direct {
            // The next task's sums go to the same place.
            body.line(barrier);
        }
        body.close();
    }

    /// The column of the operand that a lane multiplies, of the m-th eight. Columns beyond the last
    /// repeat it; their sums are not stored.
    fn column(&self) -> String {
        match self.n_columns.is_multiple_of(8) {
            true => "8 * m + lane_row".to_string(),
            false if self.n_wide == 1 => "lane_column".to_string(),
            false => format!("fl_lesser_i32(8 * m + lane_row, {})", self.n_columns - 1),
        }
    }

    /// Whether a chunk's elements of the operand are all read before the first is multiplied.
    fn is_ahead(&self) -> bool {
        !self.linear.staged && self.n_wide <= 2
    }

    /// Reads the elements that chunk `c` is multiplied by.
    fn read_ahead(&self, body: &mut Body, parts: &[Part<'_>]) {
        let Some(first) = parts.first() else { return };
        let (pieces, n_wide, bits) = (first.tiles.chunk_pieces(), self.n_wide, first.format.bits);
        body.line(format!("uint4 x_chunk[{pieces}][{n_wide}];"));
        body.line("FL_UNROLL");
        body.open(format!("for (int p = 0; p < {pieces}; p++) {{"));
        body.line("FL_UNROLL");
        body.open(format!("for (int m = 0; m < {n_wide}; m++) {{"));
        body.line(format!("const int column = {};", self.column()));
        let piece = format!("(c * {pieces} + p)");
        let words = stage::column(self.cx, body, self.linear, (self.n_parts, bits), &piece);
        body.line(format!("x_chunk[p][m] = {words};"));
        body.close();
        body.close();
    }

    /// Multiplies what place `slot` holds of chunk `c`.
    fn multiply(&self, body: &mut Body, parts: &[Part<'_>]) {
        let (n_wide, n_columns) = (self.n_wide, self.n_columns);
        let Some(first) = parts.first() else { return };
        let pieces = first.tiles.chunk_pieces();
        body.line(format!("const int at_slot = (warp * {} + slot) * 32;", self.launch.depth));
        for (index, part) in parts.iter().enumerate() {
            for (half, name) in ["low", "high"].into_iter().enumerate() {
                body.line(format!(
                    "const uint4 {name}{index} = ring[{} + lane];",
                    ring_text(parts.len(), index, half)
                ));
            }
            if part.format.group.is_some() {
                body.line(format!("float part{index}[{n_wide}][4] = {{}};"));
            }
            if self.has_two_chains(part) {
                body.line(format!("float other{index}[4] = {{}};"));
            }
            if group_words(part.format, &part.tiles).1 > 0 {
                body.line(format!("float x_sum{index}[{n_wide}][2] = {{}};"));
            }
        }
        let column = self.column();
        let piece = format!("(c * {pieces} + p)");
        let (bits, n_parts) = (first.format.bits, self.n_parts);
        body.line("FL_UNROLL");
        body.open(format!("for (int p = 0; p < {pieces}; p++) {{"));
        body.line(format!("uint4 x[{n_wide}];"));
        body.line("FL_UNROLL");
        body.open(format!("for (int m = 0; m < {n_wide}; m++) {{"));
        if self.linear.staged {
            body.line(format!("x[m] = x_shared[({piece} * {n_columns} + {column}) * 4 + lane_t];"));
        } else if self.is_ahead() {
            body.line("x[m] = x_chunk[p][m];");
        } else {
            body.line(format!("const int column = {column};"));
            let words = stage::column(self.cx, body, self.linear, (n_parts, bits), &piece);
            body.line(format!("x[m] = {words};"));
        }
        body.close();
        for (index, part) in parts.iter().enumerate() {
            self.multiply_part(body, index, part);
        }
        body.close();
        for (index, part) in parts.iter().enumerate() {
            if part.format.group.is_none() && self.has_two_chains(part) {
                body.line("FL_UNROLL");
                body.line(format!(
                    "for (int i = 0; i < 4; i++) sum[{index}][0][i] = sum[{index}][0][i] + other{index}[i];"
                ));
            }
        }
    }

    /// One piece of one tile.
    fn multiply_part(&self, body: &mut Body, index: usize, part: &Part<'_>) {
        let (n_wide, n_rows) = (self.n_wide, self.linear.n_rows);
        let prefix = prefix(part.format);
        let pieces = part.tiles.chunk_pieces();
        body.open(format!("{{ // {}", self.cx.graph().line(part.linear)));
        body.line("unsigned a[4], b[4]; // pairs of row lane_row, and of the row 8 further");
        body.line(format!("{prefix}_pairs(low{index}, p, a);"));
        body.line(format!("{prefix}_pairs(high{index}, p, b);"));
        let target = match part.format.group {
            None => format!("sum[{index}][m]"),
            Some(_) => format!("part{index}[m]"),
        };
        if self.has_two_chains(part) {
            let first = target.replace("[m]", "[0]");
            body.line(format!(
                "fl_multiply_bf16({first}, a[0], b[0], a[1], b[1], x[0].x, x[0].y);"
            ));
            body.line(format!(
                "fl_multiply_bf16(other{index}, a[2], b[2], a[3], b[3], x[0].z, x[0].w);"
            ));
        } else {
            body.line("FL_UNROLL");
            body.open(format!("for (int m = 0; m < {n_wide}; m++) {{"));
            body.line(format!(
                "fl_multiply_bf16({target}, a[0], b[0], a[1], b[1], x[m].x, x[m].y);"
            ));
            body.line(format!(
                "fl_multiply_bf16({target}, a[2], b[2], a[3], b[3], x[m].z, x[m].w);"
            ));
            body.close();
        }
        let Some(group) = part.format.group else {
            body.close();
            return;
        };
        if group.offset.is_some() {
            body.line("FL_UNROLL");
            body.open(format!("for (int m = 0; m < {n_wide}; m++) {{"));
            for half in 0..2 {
                let column = format!("8 * m + 2 * lane_t + {half}");
                body.line(format!(
                    "if ({column} < {n_rows}) x_sum{index}[m][{half}] = x_sum{index}[m][{half}] + x_sums[(c * {pieces} + p) * {n_rows} + {column}];"
                ));
            }
            body.close();
        }
        let ends = part.group_pieces();
        let is_each = ends == 1;
        if !is_each {
            body.open(format!("if ((p + 1) % {ends} == 0) {{"));
        }
        let at = if is_each { "p".to_string() } else { format!("p / {ends}") };
        let mut numbers = |what: &str, dtype: DType| {
            for (name, row) in [("low", 0), ("high", 1)] {
                let n_words = 2 * part.tiles.block_groups * dtype.bytes() / 4;
                let words = format!("{what}{index}[(at_slot + lane) * {n_words} + ");
                let number = number_text(dtype, &words, &at, row);
                body.line(format!("const float {what}_{name} = {number};"));
            }
        };
        numbers("scales", group.scale);
        if let Some(dtype) = group.offset {
            numbers("offsets", dtype);
        }
        body.line("FL_UNROLL");
        body.open(format!("for (int m = 0; m < {n_wide}; m++) {{"));
        for place in 0..4 {
            let row = ["low", "high"][place / 2];
            let sum = format!("sum[{index}][m][{place}]");
            let mut own = format!("part{index}[m][{place}]");
            if self.has_two_chains(part) {
                own = format!("{own} + other{index}[{place}]");
            }
            body.line(format!("{sum} = fl_fma(scales_{row}, {own}, {sum});"));
            if group.offset.is_some() {
                body.line(format!(
                    "{sum} = fl_fma(offsets_{row}, x_sum{index}[m][{}], {sum});",
                    place % 2
                ));
            }
            body.line(format!("part{index}[m][{place}] = 0.0f;"));
            if self.has_two_chains(part) {
                body.line(format!("other{index}[{place}] = 0.0f;"));
            }
        }
        if group.offset.is_some() {
            body.line(format!("x_sum{index}[m][0] = x_sum{index}[m][1] = 0.0f;"));
        }
        body.close();
        if !is_each {
            body.close();
        }
        body.close();
    }

    /// Whether every other instruction adds to sums of its own: one waits for another that adds to
    /// the same sums, and where there are few columns, there is little else to do meanwhile. Groups
    /// of one piece are two instructions long, which is not worth the addition.
    fn has_two_chains(&self, part: &Part<'_>) -> bool {
        self.n_wide == 1 && (part.format.group.is_none() || part.group_pieces() > 1)
    }
}

/// The number of group `at` for a row (0) or the row 8 further (1), of words that hold both;
/// `words` is text up to the place of the group's first word.
fn number_text(dtype: DType, words: &str, at: &str, row: usize) -> String {
    match (dtype, row) {
        (DType::F16, 0) => format!("fl_f16_to_f32((unsigned short){words}{at}])"),
        (DType::F16, _) => format!("fl_f16_to_f32((unsigned short)({words}{at}] >> 16))"),
        (DType::BF16, 0) => format!("fl_from_bits({words}{at}] << 16)"),
        (DType::BF16, _) => format!("fl_from_bits({words}{at}] & 0xffff0000u)"),
        (DType::F32 | DType::I32, row) => format!("fl_from_bits({words}2 * ({at}) + {row}])"),
    }
}
