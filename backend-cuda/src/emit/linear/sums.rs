//! From the registers of matrix instructions to the sums that an epilogue reads.

use super::super::text::Body;
use super::matrix::{Matrix, Part};
use fuseline_core::format::TILE_ROWS;

impl Matrix<'_> {
    /// Puts the sums of a warp that works alone where the epilogue reads them.
    pub(super) fn store_tile(&self, body: &mut Body, parts: &[Part<'_>], outputs: usize) {
        let n_rows = self.linear.n_rows;
        let n_segments = parts.len() * TILE_ROWS / outputs;
        for (index, part) in parts.iter().enumerate() {
            let segment = index * TILE_ROWS / outputs;
            body.line("FL_UNROLL");
            body.open(format!("for (int i = 0; i < {}; i++) {{", 4 * self.n_wide));
            body.line("const int column = i / 4 * 8 + 2 * lane_t + i % 2;");
            let guard = match n_rows.is_multiple_of(8) {
                true => String::new(),
                false => format!("if (column < {n_rows}) "),
            };
            body.line(format!(
                "{guard}tile[((team * {n_segments} + {segment}) * {n_rows} + column) * {outputs} + {} + lane_row + i % 4 / 2 * 8] = sum[{index}][i / 4][i % 4];",
                part.tile * TILE_ROWS
            ));
            body.close();
        }
    }

    /// Puts a warp's sums into shared memory.
    pub(super) fn store_sums(&self, body: &mut Body, parts: &[Part<'_>]) {
        let (team, n_columns) = (self.launch.team, self.n_columns);
        let n_parts = parts.len();
        body.line("FL_UNROLL");
        body.open(format!("for (int s = 0; s < {n_parts}; s++) {{"));
        body.line("FL_UNROLL");
        body.open(format!("for (int m = 0; m < {}; m++) {{", self.n_wide));
        body.line("FL_UNROLL");
        body.open("for (int i = 0; i < 4; i++) {");
        body.line("const int column = 8 * m + 2 * lane_t + i % 2;");
        body.line(format!(
            "const int at = (((team * {n_parts} + s) * {team} + member) * {n_columns} + column) * {TILE_ROWS} + lane_row + i / 2 * 8;"
        ));
        let guard = match n_columns.is_multiple_of(8) {
            true => String::new(),
            false => format!("if (column < {n_columns}) "),
        };
        body.line(format!("{guard}sums[at] = sum[s][m][i];"));
        body.close();
        body.close();
        body.close();
    }

    /// Adds the sums of all members and of all parts of `x`: of a warp's own task, or of those of
    /// all teams.
    pub(super) fn reduce(
        &self,
        body: &mut Body,
        parts: &[Part<'_>],
        outputs: usize,
        is_alone: bool,
    ) {
        let (team, n_columns, n_rows) = (self.launch.team, self.n_columns, self.linear.n_rows);
        let (n_parts, per_part) = (parts.len(), self.linear.n_rows * TILE_ROWS);
        let per_task = n_parts * per_part;
        if is_alone {
            body.open(format!("for (int i = lane; i < {per_task}; i += 32) {{"));
            body.line("const int own = team;");
        } else {
            body.open(format!(
                "for (int i = fl_thread(); i < {}; i += {}) {{",
                self.launch.n_teams * per_task,
                32 * self.launch.n_warps()
            ));
            body.line(format!("const int own = i / {per_task};"));
            body.line("if (round + own >= last_task) break;");
        }
        body.line(format!("const int s = i % {per_task} / {per_part};"));
        body.line(format!("const int r = i % {per_part} / {TILE_ROWS};"));
        body.line(format!("const int l = i % {TILE_ROWS};"));
        body.line("float total = 0.0f;");
        body.line("FL_UNROLL");
        body.open(format!("for (int w = 0; w < {team}; w++) {{"));
        body.line("FL_UNROLL");
        body.open(format!("for (int part = 0; part < {}; part++) {{", self.n_parts));
        body.line(format!(
            "total = total + sums[(((own * {n_parts} + s) * {team} + w) * {n_columns} + part * {n_rows} + r) * {TILE_ROWS} + l];"
        ));
        body.close();
        body.close();
        let n_tiles = outputs / TILE_ROWS;
        let n_segments = n_parts / n_tiles;
        let (segment, column) = match n_tiles {
            1 => ("s".to_string(), "l".to_string()),
            n => (format!("s / {n}"), format!("s % {n} * {TILE_ROWS} + l")),
        };
        body.line(format!(
            "tile[((own * {n_segments} + {segment}) * {n_rows} + r) * {outputs} + {column}] = total;"
        ));
        body.close();
    }
}
