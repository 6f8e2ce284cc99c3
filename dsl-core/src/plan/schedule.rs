//! How each kernel is launched: blocks, threads, shared memory. The partition is the same on
//! every target, and so far the schedule is too.

use super::matrix::{self, MatrixLaunch, Multiply};
use super::structure::{Group, Linear, Structure, Template};
use crate::ir::{Graph, Op, Type, ValueId};
use crate::target::family_shared_bytes;

/// The launch of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks of the grid, which has one dimension.
    pub n_blocks: usize,
    /// Threads of a block.
    pub n_threads: usize,
    /// Blocks that a multiprocessor is to hold at once: a bound of the registers of a thread.
    pub resident_blocks: usize,
    /// Dynamic shared memory of a block.
    pub shared_bytes: usize,
    /// For linears: which blocks compute which group, in the order of the groups.
    pub groups: Vec<GroupBlocks>,
    /// For linears on matrix instructions: how warps divide a task.
    pub matrix: Option<MatrixLaunch>,
    /// For attention: query heads that one block takes, a divisor of those of a key head.
    pub heads_per_block: usize,
    /// Whether some tensor has more elements than a 32-bit index reaches.
    pub wide_index: bool,
}

/// The blocks that compute one group of a linear kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBlocks {
    /// The first of them.
    pub first: usize,
    /// How many.
    pub n_blocks: usize,
    /// Tiles that each of them computes, one after the other.
    pub n_tiles: usize,
}

/// Threads of a block, attention aside.
pub const THREADS: usize = 256;
/// Outputs of each segment that a block of a linear kernel computes at once: one a warp.
pub const LINEAR_TILE: usize = THREADS / 32;
/// Rows whose sums a thread of a linear kernel holds at once.
pub const LINEAR_ROWS: usize = 16;
/// Operand elements that one lane takes at once; rows in shared memory are padded to it.
pub const LINEAR_CHUNK: usize = 8;
/// Warps of an attention block.
pub const ATTEND_WARPS: usize = 4;
/// Query heads that one attention block takes at most: their sums are in registers.
const ATTEND_HEADS: usize = 8;
/// Blocks of a linear kernel at most: four for each multiprocessor of the reference machine, so
/// that a prologue, computed once a block, is computed a bounded number of times.
const LINEAR_BLOCKS: usize = 528;

/// The launch of a kernel with this structure.
pub(crate) fn launch(graph: &Graph, structure: &Structure, values: &[ValueId]) -> Launch {
    let wide_index = values.iter().any(|&id| match &graph[id].ty {
        Type::Tensor { .. } => graph[id].ty.elements() > i32::MAX as usize,
        Type::Weight { n, k, .. } => n.size * k.size > i32::MAX as usize,
        Type::Cache { .. } => graph[id].ty.bytes() / 4 > i32::MAX as usize,
        Type::Index { .. } => false,
    });
    let base = Launch {
        n_blocks: 1,
        n_threads: THREADS,
        resident_blocks: 1,
        shared_bytes: 0,
        groups: Vec::new(),
        matrix: None,
        heads_per_block: 0,
        wide_index,
    };
    match &structure.template {
        Template::Pointwise => {
            let last = structure.epilogue.last();
            let n_elements = last.map_or(0, |&id| super::structure::work_elements(graph, id));
            Launch { n_blocks: n_elements.div_ceil(THREADS).max(1), ..base }
        }
        Template::Rows(rows) => Launch { n_blocks: rows.n_rows.max(1), ..base },
        Template::Gather { anchor } => {
            let shape = graph[*anchor].ty.shape();
            Launch { n_blocks: shape.first().map_or(1, |rows| rows.size).max(1), ..base }
        }
        Template::Attend { anchor } => {
            let (n_rows, heads, head_dim, kv_heads) = attend_dims(graph, *anchor);
            let per_kv = heads / kv_heads.max(1);
            let floats = |n: usize| n * head_dim + ATTEND_WARPS * n * (head_dim + 2);
            let fits = |n: &usize| per_kv % n == 0 && 4 * floats(*n) <= family_shared_bytes();
            let heads_per_block = (1..=per_kv.min(ATTEND_HEADS)).rev().find(fits).unwrap_or(1);
            Launch {
                n_blocks: (n_rows * heads / heads_per_block).max(1),
                n_threads: ATTEND_WARPS * 32,
                shared_bytes: 4 * floats(heads_per_block),
                heads_per_block,
                ..base
            }
        }
        Template::Linear(linear) => {
            let matrix = match linear.multiply {
                Multiply::Lanes => None,
                Multiply::Matrix { n_parts } => Some(matrix::launch(graph, linear, n_parts)),
            };
            let groups =
                if matrix.is_some() { matrix::blocks(linear) } else { lane_blocks(linear) };
            let n_blocks = groups.last().map_or(1, |last| last.first + last.n_blocks);
            let shared_bytes = linear_shared_bytes(graph, linear);
            let n_threads = matrix.map_or(THREADS, |launch| 32 * launch.n_warps());
            let resident_blocks = match (linear.multiply, matrix) {
                (Multiply::Matrix { n_parts }, Some(launch)) => {
                    matrix::bounded_blocks(launch, linear, n_parts)
                }
                _ => 1,
            };
            let launch = Launch { n_blocks, n_threads, resident_blocks, shared_bytes, ..base };
            Launch { groups, matrix, ..launch }
        }
    }
}

/// The blocks of each group of a linear on lanes.
fn lane_blocks(linear: &Linear) -> Vec<GroupBlocks> {
    let n_tiles = |group: &Group| group.len.div_ceil(LINEAR_TILE);
    let all_tiles: usize = linear.groups.iter().map(n_tiles).sum();
    let tiles_per_block = all_tiles.div_ceil(LINEAR_BLOCKS).max(1);
    let mut first = 0;
    let of_group = |group: &Group| {
        let n_blocks = n_tiles(group).div_ceil(tiles_per_block);
        let blocks = GroupBlocks { first, n_blocks, n_tiles: tiles_per_block };
        first += n_blocks;
        blocks
    };
    linear.groups.iter().map(of_group).collect()
}

/// Elements from one staged row of the operand to the next.
pub fn staged_width(k: usize) -> usize {
    k.next_multiple_of(LINEAR_CHUNK)
}

/// Rows whose sums a block of a linear kernel computes at once.
pub fn linear_rows(n_rows: usize) -> usize {
    n_rows.clamp(1, LINEAR_ROWS)
}

/// Shared memory of a linear kernel: the operand's rows, the tiles of sums, the numbers that row
/// reductions leave (two each at most), and those that warps reduce with.
pub(crate) fn linear_shared_bytes(graph: &Graph, linear: &Linear) -> usize {
    if let Multiply::Matrix { n_parts } = linear.multiply {
        let launch = matrix::launch(graph, linear, n_parts);
        return 4 * matrix::shared(graph, linear, n_parts, launch).n_floats;
    }
    let n_segments = linear.groups.iter().map(|group| group.segments.len()).max().unwrap_or(0);
    let operand = if linear.staged { linear.n_rows * staged_width(linear.k) } else { 0 };
    let sums = n_segments * linear_rows(linear.n_rows) * LINEAR_TILE;
    let partial = if linear.row_ops.is_empty() { 0 } else { 2 * THREADS / 32 };
    4 * (operand + sums + 2 * linear.row_ops.len() * linear.n_rows + partial)
}

/// Rows, query heads, head size and key heads of an attention.
pub fn attend_dims(graph: &Graph, anchor: ValueId) -> (usize, usize, usize, usize) {
    let shape = graph[anchor].ty.shape();
    let cache = &graph[graph[anchor].inputs[1]];
    debug_assert!(matches!(cache.op, Op::Append | Op::Arg));
    let kv_heads = match &cache.ty {
        Type::Cache { kv_heads, .. } => kv_heads.size,
        _ => 1,
    };
    match shape {
        [rows, heads, head_dim] => (rows.size, heads.size, head_dim.size, kv_heads),
        _ => (0, 1, 1, 1),
    }
}
