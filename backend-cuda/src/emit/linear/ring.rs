//! What is in flight: chunks of weights on their way to shared memory. Each lane asks for the bytes
//! that it alone will read, so that it waits for nobody else.

use super::super::text::Body;
use super::matrix::Part;
use super::order_text;
use fuseline_core::dtype::DType;
use fuseline_core::format::{CHUNK_BYTES, TILE_ROWS};
use fuseline_core::plan::matrix::{MatrixLaunch, MatrixShared, group_words, task_outputs};
use fuseline_core::plan::{Group, PairOrder};

/// The places of one kernel's chunks.
pub(super) struct Ring<'a> {
    pub launch: MatrixLaunch,
    pub shared: &'a MatrixShared,
}

impl Ring<'_> {
    /// The arrays.
    pub fn declare(&self, body: &mut Body, parts: &[Part<'_>]) {
        let n_slots = self.launch.n_warps() * self.launch.depth;
        let (mut at, _) = self.shared.ring;
        let n_words = n_slots * parts.len() * 64;
        body.line(format!(
            "FL_SHARED_WORDS4(ring, {at}, {n_words}); // [{}][{}][tile][2][32]",
            self.launch.n_warps(),
            self.launch.depth
        ));
        at += 4 * n_words;
        for (index, part) in parts.iter().enumerate() {
            let (scales, offsets) = group_words(part.format, &part.tiles);
            for (what, n_words) in [("scales", scales), ("offsets", offsets)] {
                if n_words > 0 {
                    let n = 32 * n_slots * n_words;
                    body.line(format!("FL_SHARED_WORDS({what}{index}, {at}, {n});"));
                    at += n;
                }
            }
        }
    }

    /// Asks for the next chunk of all tiles, if there is one, into place `slot`.
    pub fn ask(&self, body: &mut Body, group: &Group, parts: &[Part<'_>]) {
        body.open("if (next_task < last_task) {");
        body.line(format!("const int at_slot = (warp * {} + slot) * 32;", self.launch.depth));
        for index in 0..parts.len() {
            ask_part(body, group, parts, index);
        }
        body.line("next_c = next_c + 1;");
        body.open("if (next_c == c_end) {");
        body.line("next_c = c_begin;");
        body.line(format!("next_task = next_task + {};", self.launch.n_teams));
        body.close();
        body.close();
        body.line("fl_copy_commit();");
    }
}

/// Asks for chunk `next_c` of one tile of task `next_task`.
fn ask_part(body: &mut Body, group: &Group, parts: &[Part<'_>], index: usize) {
    let part = &parts[index];
    let n_tiles = task_outputs(group) / TILE_ROWS;
    let tile = match (n_tiles, group.order) {
        (1, _) | (_, PairOrder::Natural) => "next_task".to_string(),
        // The first element of the tile, in the order of pairs.
        (_, order) => {
            let e = match part.tile {
                0 => format!("(next_task * {n_tiles})"),
                tile => format!("(next_task * {n_tiles} + {tile})"),
            };
            order_tiles(order, &e)
        }
    };
    let tile = match part.first_tile {
        0 => tile,
        first => format!("{first} + {tile}"),
    };
    body.open("{");
    // Narrow places take fewer registers.
    let int = if part.tiles.code_bytes() <= i32::MAX as usize { "int" } else { "long long" };
    body.line(format!("const {int} tile = {tile};"));
    let run = TILE_ROWS * CHUNK_BYTES;
    body.line(format!(
        "const {int} at = (tile * {} + next_c) * {run} + 16 * lane;",
        part.tiles.n_chunks
    ));
    let name = &part.name;
    for half in 0..2 {
        let further = if half == 0 { String::new() } else { format!(" + {}", run / 2) };
        body.line(format!(
            "fl_copy_words4(ring, {} + lane, {name}_codes, at{further});",
            ring_text(parts.len(), index, half)
        ));
    }
    if let Some(format_group) = part.format.group {
        let block = match part.tiles.block_chunks {
            1 => "next_c".to_string(),
            n => format!("next_c / {n}"),
        };
        body.line(format!(
            "const {int} block = (tile * {} + {block}) * 8 + lane_row;",
            part.tiles.n_blocks()
        ));
        let mut plane = |what: &str, dtype: DType| {
            let n_words = 2 * part.tiles.block_groups * dtype.bytes() / 4;
            for (at, n) in runs(n_words) {
                body.line(format!(
                    "fl_copy_words<{n}>({what}{index}, (at_slot + lane) * {n_words} + {at}, {name}_{what}, block * {} + {});",
                    4 * n_words,
                    4 * at,
                ));
            }
        };
        plane("scales", format_group.scale);
        if let Some(dtype) = format_group.offset {
            plane("offsets", dtype);
        }
    }
    body.close();
}

/// The tile of a weight that is the e-th in the order of pairs, where a pair is of two tiles.
fn order_tiles(order: PairOrder, e: &str) -> String {
    match order {
        PairOrder::Natural => e.to_string(),
        PairOrder::Halves { head_dim, rotary } => {
            let order =
                PairOrder::Halves { head_dim: head_dim / TILE_ROWS, rotary: rotary / TILE_ROWS };
            format!("({})", order_text(order, 1).replace('e', e))
        }
    }
}

/// Loads of 4, 2 or 1 words that make up `n_words`: where each begins, and its words.
fn runs(n_words: usize) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut runs = Vec::new();
    while at < n_words {
        let n = [4, 2, 1].into_iter().find(|n| at + n <= n_words).unwrap_or(1);
        runs.push((at, n));
        at += n;
    }
    runs
}

/// Where a half of a tile's chunk is in the ring, less the lane.
pub(super) fn ring_text(n_parts: usize, part: usize, half: usize) -> String {
    let times = 2 * n_parts;
    match 2 * part + half {
        0 => format!("at_slot * {times}"),
        at => format!("at_slot * {times} + {}", 32 * at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_loaded_in_the_widest_runs() {
        assert_eq!(runs(1), [(0, 1)]);
        assert_eq!(runs(4), [(0, 4)]);
        assert_eq!(runs(8), [(0, 4), (4, 4)]);
        assert_eq!(runs(3), [(0, 2), (2, 1)]);
    }

    #[test]
    fn tiles_of_pairs_are_half_a_rotation_apart() {
        let order = PairOrder::Halves { head_dim: 64, rotary: 64 };
        assert_eq!(order_tiles(order, "(7)"), "((7) / 4 * 4 + (7) % 4 % 2 * 2 + (7) % 4 / 2)");
    }
}
