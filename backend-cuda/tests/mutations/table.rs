//! The faults.

use Caught::{Fault, Mismatch};
use fuseline_cuda::emulate::FaultKind;

/// What a fault shows itself as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    Fault(FaultKind),
    Mismatch,
}

/// A mistake in a template: `from` stands where `to` should not.
pub struct Mutant {
    pub what: &'static str,
    /// The block in whose source it is made.
    pub block: &'static str,
    pub from: &'static str,
    pub to: &'static str,
    pub caught: &'static [Caught],
}

const fn mutant(
    what: &'static str,
    block: &'static str,
    from: &'static str,
    to: &'static str,
    caught: &'static [Caught],
) -> Mutant {
    Mutant { what, block, from, to, caught }
}

const SHARED_RACE: &[Caught] = &[Fault(FaultKind::SharedRace)];
/// Whoever reads too early reads what is not there yet, or races.
const EARLY: &[Caught] = &[Fault(FaultKind::SharedRace), Fault(FaultKind::SharedUninitialized)];
const RACE: &[Caught] = &[Fault(FaultKind::Race)];
const BOUNDS: &[Caught] = &[Fault(FaultKind::OutOfBounds)];
const SHARED_BOUNDS: &[Caught] = &[Fault(FaultKind::SharedOutOfBounds)];
const UNWRITTEN: &[Caught] = &[Fault(FaultKind::Unwritten)];
const UNINITIALIZED: &[Caught] = &[Fault(FaultKind::Uninitialized)];
const BARRIER: &[Caught] = &[Fault(FaultKind::DivergentBarrier)];
const LANE: &[Caught] = &[Fault(FaultKind::InactiveLane)];
const LOCAL: &[Caught] = &[Fault(FaultKind::Sanitizer)];
const WRONG: &[Caught] = &[Mismatch];

pub const MUTANTS: &[Mutant] = &[
    // ---- barriers
    mutant(
        "no barrier before the operand's rows are read",
        "mlp",
        "        x_shared[i] = h_6;\n    }\n    fl_barrier();\n",
        "        x_shared[i] = h_6;\n    }\n",
        EARLY,
    ),
    mutant(
        "no barrier before the results of rows are read",
        "mlp",
        "        }\n    }\n    fl_barrier();\n    for (int i = fl_thread(); i < n_rows * 320;",
        "        }\n    }\n    for (int i = fl_thread(); i < n_rows * 320;",
        EARLY,
    ),
    mutant(
        "no barrier before the tile is read",
        "mlp",
        "        fl_barrier();\n        for (int i = fl_thread(); i < 24; i += 256) {",
        "        for (int i = fl_thread(); i < 24; i += 256) {",
        EARLY,
    ),
    mutant(
        "no barrier before the next rows overwrite the tile",
        "dense",
        "                }\n                fl_barrier();\n            }\n        }\n    } else",
        "                }\n            }\n        }\n    } else",
        SHARED_RACE,
    ),
    mutant(
        "no barrier before a reduction's numbers are read",
        "rows",
        "    fl_barrier();\n    float sum = 0.0f;",
        "    float sum = 0.0f;",
        EARLY,
    ),
    mutant(
        "no barrier before the next reduction overwrites the last one's numbers",
        "rows",
        "    x = fl_warp_sum(x);\n    fl_barrier();",
        "    x = fl_warp_sum(x);",
        SHARED_RACE,
    ),
    mutant(
        "no barrier between the query's rows and the scores",
        "attention",
        "        q_shared[i] = fl_round_f32(q_9_i);\n    }\n    fl_barrier();",
        "        q_shared[i] = fl_round_f32(q_9_i);\n    }",
        EARLY,
    ),
    mutant(
        "no barrier before the warps' sums are put together",
        "attention",
        "            totals[warp * 2 + h] = total[h];\n        }\n    }\n    fl_barrier();",
        "            totals[warp * 2 + h] = total[h];\n        }\n    }",
        EARLY,
    ),
    mutant(
        "a barrier that only threads with an element reach",
        "mlp",
        "        x_shared[i] = h_6;\n    }\n    fl_barrier();\n",
        "        x_shared[i] = h_6;\n        fl_barrier();\n    }\n",
        // The others go on, and read before they wait.
        &[Fault(FaultKind::SharedUninitialized), Fault(FaultKind::DivergentBarrier)],
    ),
    mutant(
        "a barrier that only some warps reach",
        "dense",
        "                if (e0 + warp < 12) {",
        "                if (e0 + warp < 12) {\n                    fl_barrier();",
        BARRIER,
    ),
    mutant(
        "threads without an element return before a barrier",
        "mlp",
        "            if (row >= n_rows) continue;\n            const int e = e0 + l;\n            if (e >= 44) continue;",
        "            if (row >= n_rows) return;\n            const int e = e0 + l;\n            if (e >= 44) return;",
        BARRIER,
    ),
    // ---- exchanges
    mutant(
        "a sum of a warp that only lanes with elements join",
        "mlp",
        "                    const float total = fl_warp_sum(sum[r]);",
        "                    if (8 * lane >= 64) break;\n                    const float total = fl_warp_sum(sum[r]);",
        LANE,
    ),
    mutant(
        "the last step of a warp's sum is missing",
        "mlp",
        "for (int mask = 16; mask > 0; mask /= 2) x += ",
        "for (int mask = 16; mask > 1; mask /= 2) x += ",
        WRONG,
    ),
    mutant(
        "the first step of a warp's sum is missing",
        "attention",
        "for (int mask = 16; mask > 0; mask /= 2) x += ",
        "for (int mask = 8; mask > 0; mask /= 2) x += ",
        WRONG,
    ),
    mutant(
        "an exchange with the wrong lane",
        "rows",
        "        int other_index = fl_shuffle_xor_i32(index, mask);",
        "        int other_index = fl_shuffle_xor_i32(index, mask / 2);",
        WRONG,
    ),
    mutant(
        "a block's sum forgets its first warp",
        "rows",
        "for (int warp = 0; warp < n_warps; warp++) sum += partial[warp];",
        "for (int warp = 1; warp < n_warps; warp++) sum += partial[warp];",
        WRONG,
    ),
    mutant(
        "every lane writes the warp's number",
        "mlp",
        "                    if (lane == 0) tile[r * 8 + warp] = total;",
        "                    tile[r * 8 + warp] = total;",
        SHARED_RACE,
    ),
    mutant(
        "a lane other than the first writes before the sum is whole",
        "attention",
        "        if (lane == 0) {\n            maxima[warp * 2 + h] = max[h];",
        "        if (lane == 0 && warp > 0) {\n            maxima[warp * 2 + h] = max[h];",
        &[Fault(FaultKind::SharedUninitialized)],
    ),
    // ---- bounds and tails
    mutant("no guard for the last row", "point", "    if (i >= rows * 301) return;", "", BOUNDS),
    mutant(
        "a guard for the bucket's rows instead of the call's",
        "point",
        "    if (i >= rows * 301) return;",
        "    if (i >= 3 * 301) return;",
        BOUNDS,
    ),
    mutant(
        "a guard that is one too strict",
        "point",
        "    if (i >= rows * 301) return;",
        "    if (i >= rows * 301 - 1) return;",
        UNWRITTEN,
    ),
    mutant(
        "no guard for the last output of a tile",
        "mlp",
        "            if (e >= 44) continue;",
        "",
        &[Fault(FaultKind::SharedUninitialized), Fault(FaultKind::OutOfBounds)],
    ),
    mutant(
        "warps beyond the last output read the weight",
        "mlp",
        "        if (e0 + warp < 44) {",
        "        if (e0 + warp < 48) {",
        BOUNDS,
    ),
    mutant(
        "the rest of a row is not written",
        "dense",
        "            x_shared[i] = 0.0f;",
        "",
        &[Fault(FaultKind::SharedUninitialized)],
    ),
    mutant(
        "no guard for the head's last elements",
        "attention",
        "            key[j] = d < 40 ? fl_load_f16(kv_2_keys, base + (long long)t * 40 + d) : 0.0f;",
        "            key[j] = fl_load_f16(kv_2_keys, base + (long long)t * 40 + d);",
        &[Fault(FaultKind::Uninitialized), Fault(FaultKind::OutOfBounds)],
    ),
    mutant(
        "no guard for the head's last elements in shared memory",
        "attention",
        "            if (d < 40) sums[(warp * 2 + h) * 40 + d] = sum[h][j];",
        "            sums[(warp * 2 + h) * 40 + d] = sum[h][j];",
        &[Fault(FaultKind::SharedRace), Fault(FaultKind::SharedOutOfBounds)],
    ),
    mutant(
        "a shared array that is a row short",
        "mlp",
        "FL_SHARED_FLOATS(x_shared, 0, 960);",
        "FL_SHARED_FLOATS(x_shared, 0, 640);",
        SHARED_BOUNDS,
    ),
    mutant(
        "two shared arrays at one place",
        "mlp",
        "FL_SHARED_FLOATS(tile, 960, 48);",
        "FL_SHARED_FLOATS(tile, 940, 48);",
        SHARED_RACE,
    ),
    mutant(
        "shared memory beyond what the launch asks for",
        "mlp",
        "FL_SHARED_FLOATS(partial, 1014, 16);",
        "FL_SHARED_FLOATS(partial, 1024, 16);",
        SHARED_BOUNDS,
    ),
    mutant(
        "a local array that is one short",
        "mlp",
        "                    float w[8];\n                    fmt_Bytes",
        "                    float w[7];\n                    fmt_Bytes",
        LOCAL,
    ),
    mutant(
        "a table read beyond its end",
        "attention",
        "rope_turns_0[d9 / 2]",
        "rope_turns_0[d9]",
        &[Fault(FaultKind::Undefined)],
    ),
    mutant(
        "vectors of codes at odd addresses",
        "embed",
        "fl_load_words2(codes, row + k);",
        "fl_load_words2(codes, row + k + 4);",
        &[Fault(FaultKind::Misaligned)],
    ),
    // ---- indices
    mutant(
        "a row's stride is off by one",
        "mlp",
        "fl_store_f32(g_10_out, f + 44 * row, g_10);",
        "fl_store_f32(g_10_out, f + 43 * row, g_10);",
        RACE,
    ),
    mutant(
        "rows of the operand swapped for rows of the bucket",
        "mlp",
        "fl_load_f32(x_0, k + 320 * row);",
        "fl_load_f32(x_0, k + 320 * (row == 0 ? n_rows - 1 : row - 1));",
        WRONG,
    ),
    mutant(
        "the second weight's row is the first's",
        "attention",
        "const long long n = 240 + f;",
        "const long long n = 160 + f;",
        WRONG,
    ),
    mutant(
        "the second part of the tile is the first",
        "mlp",
        "tile[(3 + r) * 8 + l];",
        "tile[r * 8 + l];",
        WRONG,
    ),
    mutant(
        "every block takes the first tile",
        "mlp",
        "const int e0 = ((int)fl_block() * 1 + t) * 8;",
        "const int e0 = ((int)(fl_block() / 2) * 1 + t) * 8;",
        RACE,
    ),
    mutant(
        "broadcast along the wrong dim",
        "point",
        "fl_load_f32(y_1, (i % 301))",
        "fl_load_f32(y_1, (i / 301))",
        WRONG,
    ),
    mutant(
        "the partner of a rotation is the element itself",
        "attention",
        "fl_rotate(tile[r * 8 + l], tile[r * 8 + (l ^ 1)], d9",
        "fl_rotate(tile[r * 8 + l], tile[r * 8 + l], d9",
        WRONG,
    ),
    mutant(
        "half-split pairs where the tail is rotated too",
        "attention",
        "d11 >= 32 ? tile[r * 8 + l] : fl_rotate",
        "d11 >= 33 ? tile[r * 8 + l] : fl_rotate",
        WRONG,
    ),
    mutant(
        "positions of the row before",
        "attention",
        "fl_load_i32(pos_3_positions, row), rope_turns_0",
        "fl_load_i32(pos_3_positions, row > 0 ? row - 1 : 0), rope_turns_0",
        WRONG,
    ),
    // ---- formats
    mutant(
        "two nibbles swapped",
        "mlp",
        "w[2] = fl_from_i32((int)((word >> 8) & 15u));",
        "w[2] = fl_from_i32((int)((word >> 12) & 15u));",
        WRONG,
    ),
    mutant(
        "a nibble with its neighbour's bit",
        "mlp",
        "w[7] = fl_from_i32((int)((word >> 28) & 15u));",
        "w[7] = fl_from_i32((int)((word >> 27) & 15u));",
        WRONG,
    ),
    mutant(
        "a signed code read as unsigned",
        "embed",
        "w[5] = fl_from_i32((int)(((words.y >> 8) & 255u) << 24) >> 24);",
        "w[5] = fl_from_i32((int)((words.y >> 8) & 255u));",
        WRONG,
    ),
    mutant(
        "a neighbouring group's scale",
        "mlp",
        "fl_load_f16(gate_2_scales, fmt_Nibbles_group(n, (int)k0, 320));",
        "fl_load_f16(gate_2_scales, fmt_Nibbles_group(n, (int)k0, 320) ^ 1);",
        WRONG,
    ),
    mutant(
        "groups of half the size",
        "mlp",
        "    return n * (k_row / 40) + k / 40;",
        "    return n * (k_row / 40) + k / 20;",
        &[Mismatch, Fault(FaultKind::OutOfBounds)],
    ),
    mutant(
        "the offset of a group without the operand's sum",
        "mlp",
        "sum[r] = fl_fma(offset, x_sum, sum[r]);",
        "sum[r] = sum[r] + offset;",
        WRONG,
    ),
    mutant(
        "a row of codes without its padding",
        "dense",
        "    return n * ((k_row * 4 + 15) / 16 * 16);",
        "    return n * (k_row * 4);",
        &[Fault(FaultKind::Misaligned)],
    ),
    mutant(
        "rounding towards zero",
        "embed",
        "const float x_3 = fl_round_bf16(v2);",
        "const float x_3 = fl_from_bits(fl_bits(v2) & 0xffff0000u);",
        WRONG,
    ),
    mutant(
        "keys appended with their lower bits cut off",
        "attention",
        "    fl_store_u16(p, i, fl_f32_to_f16(x));",
        "    fl_store_u16(p, i, fl_f32_to_f16(fl_from_bits(fl_bits(x) & 0xffffe000u)));",
        WRONG,
    ),
    // ---- matrix instructions
    mutant(
        "no wait for the weights",
        "matrix",
        "                fl_copy_wait<1>();\n",
        "",
        &[Fault(FaultKind::SharedUninitialized)],
    ),
    mutant(
        "a wait that leaves one chunk too many in flight",
        "matrix",
        "fl_copy_wait<1>();",
        "fl_copy_wait<2>();",
        &[Fault(FaultKind::SharedUninitialized)],
    ),
    mutant(
        "the next chunk is asked for into a place that is still read",
        "matrix",
        "                slot = slot + 1 < 2 ? slot + 1 : 0;\n",
        "",
        &[Fault(FaultKind::SharedUninitialized), Mismatch],
    ),
    mutant(
        "two lanes copy to one place",
        "matrix",
        "fl_copy_words4(ring, at_slot * 4 + lane, gate_2_codes, at);",
        "fl_copy_words4(ring, at_slot * 4 + lane / 2, gate_2_codes, at);",
        EARLY,
    ),
    mutant(
        "a chunk beyond the last",
        "matrix",
        "    const int c_end = (member + 1) * 3 / 2;",
        "    const int c_end = (member + 1) * 4 / 2;",
        &[Fault(FaultKind::OutOfBounds), Fault(FaultKind::SharedOutOfBounds), Mismatch],
    ),
    mutant(
        "a chunk that no member takes",
        "matrix",
        "    const int c_begin = member * 3 / 2;",
        "    const int c_begin = member * 4 / 2;",
        WRONG,
    ),
    mutant(
        "rows r and r + 8 swapped",
        "matrix",
        "fl_multiply_bf16(part0[m], a[0], b[0], a[1], b[1], x[m].x, x[m].y);",
        "fl_multiply_bf16(part0[m], b[0], a[0], b[1], a[1], x[m].x, x[m].y);",
        WRONG,
    ),
    mutant(
        "runs of the operand in another order than the codes",
        "matrix",
        "x_0_run[j / 2 + j % 2 * 4] * row_results[row]",
        "x_0_run[j] * row_results[row]",
        WRONG,
    ),
    mutant(
        "the last part of the operand is left out",
        "matrix",
        "                for (int part = 0; part < 3; part++) {\n                    total",
        "                for (int part = 0; part < 2; part++) {\n                    total",
        &[Mismatch],
    ),
    mutant(
        "the scale of the row 8 further",
        "matrix",
        "const float scales_low = fl_f16_to_f32((unsigned short)scales0[(at_slot + lane) * 4 + p]);",
        "const float scales_low = fl_f16_to_f32((unsigned short)(scales0[(at_slot + lane) * 4 + p] >> 16));",
        WRONG,
    ),
    mutant(
        "a group's sums are not begun anew",
        "matrix",
        "                            part0[m][2] = 0.0f;\n",
        "",
        WRONG,
    ),
    mutant(
        "sums of the operand of the piece before",
        "matrix",
        "x_sums[(c * 4 + p) * 3 + 8 * m + 2 * lane_t + 0];",
        "x_sums[(c * 4 + (p > 0 ? p - 1 : 0)) * 3 + 8 * m + 2 * lane_t + 0];",
        WRONG,
    ),
    mutant(
        "codes that are not flipped from two's complement",
        "matrix",
        "fl_component(codes, 2 * p + i / 2) ^ 0x80808080u;",
        "fl_component(codes, 2 * p + i / 2);",
        WRONG,
    ),
    mutant("a nibble's bias that is one too small", "matrix", "0xc300c300u", "0xc3008000u", WRONG),
    mutant(
        "no barrier before the sums of other warps are read",
        "matrix",
        "        fl_barrier();\n        for (int i = fl_thread(); i < 192; i += 128) {\n            const int own = i / 96;\n            if (round + own >= last_task) break;\n            const int s = i % 96 / 48;",
        "        for (int i = fl_thread(); i < 192; i += 128) {\n            const int own = i / 96;\n            if (round + own >= last_task) break;\n            const int s = i % 96 / 48;",
        EARLY,
    ),
    mutant(
        "a team without a task adds up what nobody stored",
        "matrix",
        "            if (round + own >= last_task) break;\n            const int s = i % 96 / 48;",
        "            const int s = i % 96 / 48;",
        &[Fault(FaultKind::SharedUninitialized)],
    ),
    mutant(
        "the partner of a rotation in its own tile",
        "matrix",
        "tile[own * 96 + r * 32 + (l ^ 16)]",
        "tile[own * 96 + r * 32 + (l ^ 8)]",
        WRONG,
    ),
    mutant(
        "the second tile of a pair follows the first",
        "matrix",
        "((next_task * 2 + 1) / 4 * 4 + (next_task * 2 + 1) % 4 % 2 * 2 + (next_task * 2 + 1) % 4 / 2)",
        "(next_task * 2 + 1)",
        WRONG,
    ),
    // ---- attention
    mutant(
        "a window that is one too wide",
        "attention",
        "end > 12 ? end - 12 : 0",
        "end > 12 ? end - 13 : 0",
        WRONG,
    ),
    mutant(
        "the current token is not attended to",
        "attention",
        "fl_load_i32(pos_3_positions, row) + 1;",
        "fl_load_i32(pos_3_positions, row);",
        WRONG,
    ),
    mutant(
        "a position beyond the current token",
        "attention",
        "fl_load_i32(pos_3_positions, row) + 1;",
        "fl_load_i32(pos_3_positions, row) + 2;",
        UNINITIALIZED,
    ),
    mutant(
        "another sequence's cache",
        "attention",
        "((long long)fl_load_i32(pos_3_sequences, row) * 2 + head0 / 2) * 5120",
        "((long long)((fl_load_i32(pos_3_sequences, row) + 1) % 3) * 2 + head0 / 2) * 5120",
        &[Mismatch, Fault(FaultKind::Uninitialized)],
    ),
    mutant(
        "the wrong key head",
        "attention",
        "* 2 + head0 / 2) * 5120",
        "* 2 + (head0 / 2 ^ 1)) * 5120",
        WRONG,
    ),
    mutant(
        "the sum of weights is not rescaled",
        "attention",
        "total[h] = fl_fma(total[h], keep, p);",
        "total[h] = total[h] + p;",
        WRONG,
    ),
    mutant(
        "appended one position too late",
        "attention",
        "* 128 + fl_load_i32(pos_3_positions, row)) * 40",
        "* 128 + fl_load_i32(pos_3_positions, row) + 1) * 40",
        &[Mismatch, Fault(FaultKind::OutOfBounds)],
    ),
    // ---- reductions
    mutant(
        "the mean of one element less",
        "rows",
        "n_3_mean = fl_div(n_3_mean, 300.0f);",
        "n_3_mean = fl_div(n_3_mean, 299.0f);",
        WRONG,
    ),
    mutant(
        "a maximum that begins at zero",
        "attention",
        "float top = FL_NEGATIVE_INFINITY;",
        "float top = 100.0f;",
        WRONG,
    ),
    mutant(
        "of equal candidates the later wins",
        "rows",
        "    return a_index < b_index;",
        "    return a_index > b_index;",
        WRONG,
    ),
    mutant(
        "rows strided by fewer threads than there are",
        "rows",
        "for (int k0 = 4 * fl_thread(); k0 < 300; k0 += 1024) {",
        "for (int k0 = 4 * fl_thread(); k0 < 300; k0 += 256) {",
        WRONG,
    ),
    mutant(
        "a loop that does not advance",
        "rows",
        "for (int k = fl_thread(); k < 300; k += 256) {",
        "for (int k = fl_thread(); k < 300; k += 0) {",
        &[Fault(FaultKind::Timeout)],
    ),
    // ---- pointers
    mutant(
        "memory read past the helper functions",
        "point",
        "const float y_1_i = fl_load_f32(y_1, (i % 301));",
        "const float y_1_i = y_1[i % 301];",
        &[Fault(FaultKind::Undefined)],
    ),
    mutant(
        "a result read before it is written",
        "point",
        "const float y_1_i = fl_load_f32(y_1, (i % 301));",
        "const float y_1_i = fl_load_f32(z_3_out, i);",
        UNINITIALIZED,
    ),
    mutant(
        "a block reads what another writes",
        "mlp",
        "            fl_store_f32(g_10_out, f + 44 * row, g_10);",
        "            fl_store_f32(g_10_out, f + 44 * row, g_10);\n            if (e0 > 0) fl_load_f32(g_10_out, f - 8 + 44 * row);",
        RACE,
    ),
    mutant(
        "an atomic sum beside a store of another block",
        "point",
        "    fl_store_f32(z_3_out, i, z_3);",
        "    fl_store_f32(z_3_out, i, z_3);\n    if (fl_block() == 1 && fl_thread() == 0) fl_atomic_add_f32(z_3_out, 0, 0.0f);",
        RACE,
    ),
];
