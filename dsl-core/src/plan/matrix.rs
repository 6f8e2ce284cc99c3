//! Linears on matrix instructions: whether a kernel can use them, and how its work is divided.
//!
//! The weight is the left operand: 16 output rows times 16 elements along K, in `bf16`, which
//! holds every number that codes of a [tiled](crate::format::Tiles) format stand for. The columns of
//! the right operand, 8 an instruction, are the rows of `x`. An `f32` is multiplied as up to three
//! `bf16` *parts* that add up to it, each a column of its own: with one or two rows these columns
//! would be empty otherwise. Group scales and offsets are applied to the sums of a group, in `f32`.
//!
//! | `x` | parts | what is multiplied |
//! |---|---|---|
//! | rounded to `bf16` by the program | 1 | `x` itself |
//! | few rows | 3 | `x` itself: three times 8 bits are all 24 |
//! | more than 48 columns so, or than fit in shared memory | 2 | `x` to 17 bits: off by at most 2⁻¹⁸ of itself |
//!
//! The outputs are divided into *tasks*, the same tile of every segment, and the tasks evenly among
//! the blocks. A *team* of warps works on a task and divides its chunks among its members, whose sums
//! meet in shared memory in a fixed order; where a block has many tasks, a team is one warp.

use super::context::Context;
use super::schedule::{self, GroupBlocks};
use super::structure::{Group, Linear, PairOrder, Segment};
use crate::dtype::DType;
use crate::format::{CHUNK_BYTES, PIECE, TILE_ROWS, Tiles, WeightFormat};
use crate::ir::{Graph, Op, Type, ValueId};
use crate::target::family_shared_bytes;

/// Columns of all parts together at most, so that their sums stay in registers, for an operand to
/// be exact.
const MAX_EXACT_COLUMNS: usize = 48;
/// Parts that an `f32` is, and the fewest that it is split into.
const EXACT_PARTS: usize = 3;
const FEWEST_PARTS: usize = 2;

/// How a linear's products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiply {
    /// One output a warp, whose lanes stride along K.
    Lanes,
    /// 16 outputs an instruction.
    Matrix {
        /// `bf16` columns that a row of `x` is split into.
        n_parts: usize,
    },
}

/// How a matrix kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixLaunch {
    /// Teams of a block.
    pub n_teams: usize,
    /// Warps of a team.
    pub team: usize,
    /// Whether a warp's sums are a task's: nothing is left to add.
    pub direct: bool,
    /// Chunks of a tile that a warp loads ahead.
    pub depth: usize,
}

impl MatrixLaunch {
    /// Warps of a block.
    pub fn n_warps(&self) -> usize {
        self.n_teams * self.team
    }
}

/// Where the arrays of a matrix kernel begin in shared memory, in floats, and how many they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShared {
    /// The parts of `x`: `[piece][column][4 lanes]` of 16 bytes.
    pub x: (usize, usize),
    /// Sums of `x` over pieces, for offsets: `[piece][row]`, and `[piece][4 lanes][row]` before.
    pub x_sums: (usize, usize),
    /// What is summed of each piece by its four lanes.
    pub x_parts: (usize, usize),
    /// Sums of each warp: `[team][segment][tile][member][column][16]`.
    pub sums: (usize, usize),
    /// The sums of a task: `[team][segment][row][outputs of a task]`.
    pub tile: (usize, usize),
    /// Results of row reductions: `[2 a reduction][row]`.
    pub row_results: (usize, usize),
    /// What warps reduce with.
    pub partial: (usize, usize),
    /// What is in flight: chunks, then scales and offsets, of each warp.
    pub ring: (usize, usize),
    /// All of them.
    pub n_floats: usize,
}

/// Warps of a block at most, and at least: they compute the operand together.
const WARPS: [usize; 2] = [4, 16];
/// Blocks: one on each multiprocessor of the reference machine. Where each takes half of a
/// multiprocessor, the next kernel's blocks find room for one there too, and load their weights
/// while this kernel ends. Smaller blocks would end up several on one and none on another.
const BLOCKS: usize = 132;
/// Blocks of which a multiprocessor's registers hold this many, in warps: 64 registers a thread.
const BOUNDED_WARPS: usize = 32;
/// Bytes of shared memory of a block that are for chunks in flight, at most.
const FLIGHT_BYTES: usize = 80 * 1024;
/// Chunks that a warp has in flight, least and most.
const DEPTHS: [usize; 2] = [2, 8];

/// How to multiply: on matrix instructions if all weights and outputs allow it.
pub(crate) fn multiply(cx: &Context<'_>, linear: &Linear) -> Multiply {
    let graph = cx.graph;
    let mut segments = linear.groups.iter().flat_map(|group| &group.segments);
    let bits = linear.groups.iter().flat_map(|group| &group.segments).map(|segment| {
        let (format, _) = weight(graph, segment.linear)?;
        format.is_tiled().then_some(format.bits)
    });
    let mut bits: Vec<Option<u8>> = bits.collect();
    bits.dedup();
    let aligned = segments.all(|segment| segment.start.is_multiple_of(TILE_ROWS));
    let orders = linear.groups.iter().all(|group| task_tiles(group.order).is_some());
    if !matches!(bits[..], [Some(_)]) || !aligned || !orders {
        return Multiply::Lanes;
    }
    let source = &graph[cx.source(linear.x)];
    let rounded = matches!(source.op, Op::Cast(DType::BF16)) || source.ty.dtype() == DType::BF16;
    Multiply::Matrix { n_parts: if rounded { 1 } else { EXACT_PARTS } }
}

/// The kernel on matrix instructions, if it can be: its operand in as many parts as fit in shared
/// memory; if none do and there is nothing to compute, read where it is.
pub(crate) fn fitted(cx: &Context<'_>, linear: &Linear, computes: bool) -> Option<Linear> {
    let graph = cx.graph;
    let Multiply::Matrix { n_parts } = multiply(cx, linear) else { return None };
    let fewest = n_parts.min(FEWEST_PARTS);
    let places = [(n_parts, true), (fewest, true), (fewest, false)];
    let with = |(n_parts, staged)| Linear {
        staged,
        multiply: Multiply::Matrix { n_parts },
        ..linear.clone()
    };
    let is_wide = n_columns(linear, n_parts) > MAX_EXACT_COLUMNS;
    let places = if is_wide { &places[1..] } else { &places[..] };
    let legal = |linear: &Linear| {
        let has_source = linear.staged || !(computes || has_offsets(graph, linear));
        has_source && schedule::linear_shared_bytes(graph, linear) <= cx.shared_bytes
    };
    places.iter().copied().map(with).find(legal)
}

/// A linear's format and elements of a row.
fn weight(graph: &Graph, linear: ValueId) -> Option<(&WeightFormat, usize)> {
    match &graph[graph[linear].inputs[1]].ty {
        Type::Weight { format, k, .. } => Some((format, k.size)),
        _ => None,
    }
}

/// The tiles of one linear's weight.
pub fn tiles(graph: &Graph, linear: ValueId) -> Option<Tiles> {
    match &graph[graph[linear].inputs[1]].ty {
        Type::Weight { format, n, k } => format.tiles(n.size, k.size),
        _ => None,
    }
}

/// Tiles of a segment that a task has, so that partners of a rotation meet: none if they cannot.
pub fn task_tiles(order: PairOrder) -> Option<usize> {
    match order {
        PairOrder::Natural => Some(1),
        PairOrder::Halves { head_dim, rotary } => {
            if rotary == TILE_ROWS && head_dim.is_multiple_of(TILE_ROWS) {
                Some(1)
            } else {
                let wide = 2 * TILE_ROWS;
                (head_dim.is_multiple_of(wide) && rotary.is_multiple_of(wide)).then_some(2)
            }
        }
    }
}

/// Outputs of each segment that a task has.
pub fn task_outputs(group: &Group) -> usize {
    TILE_ROWS * task_tiles(group.order).unwrap_or(1)
}

/// Tasks of a group.
pub(crate) fn n_tasks(group: &Group) -> usize {
    group.len.div_ceil(task_outputs(group))
}

/// The blocks of each group, in order, with the most tasks that one of them has.
pub(crate) fn blocks(linear: &Linear) -> Vec<GroupBlocks> {
    let all: usize = linear.groups.iter().map(n_tasks).sum();
    let mut first = 0;
    let of_group = |group: &Group| {
        let n_tasks = n_tasks(group).max(1);
        let n_blocks = (BLOCKS * n_tasks / all.max(1)).clamp(1, n_tasks);
        let blocks = GroupBlocks { first, n_blocks, n_tiles: n_tasks.div_ceil(n_blocks) };
        first += n_blocks;
        blocks
    };
    linear.groups.iter().map(of_group).collect()
}

/// Teams, warps, and chunks that they load ahead: fewer warps where a large operand leaves little
/// shared memory.
pub(crate) fn launch(graph: &Graph, linear: &Linear, n_parts: usize) -> MatrixLaunch {
    let of_warps = |warps| launch_of(graph, linear, n_parts, warps);
    let fits = |launch: &MatrixLaunch| {
        4 * shared(graph, linear, n_parts, *launch).n_floats <= family_shared_bytes()
    };
    let [least, most] = WARPS;
    // The sums of many columns take more registers than half of a block's threads have.
    let most = if n_columns(linear, n_parts) > 32 { most / 2 } else { most };
    let mut launches = [most, most / 2, least].map(of_warps).into_iter();
    launches.find(fits).unwrap_or_else(|| of_warps(least))
}

/// The same with up to `most` warps.
fn launch_of(graph: &Graph, linear: &Linear, n_parts: usize, most: usize) -> MatrixLaunch {
    let n_chunks = n_chunks(graph, linear).max(1);
    let tasks = blocks(linear).iter().map(|blocks| blocks.n_tiles).max().unwrap_or(1);
    // As many members as there are warps for, and chunks.
    let team = (most / tasks.clamp(1, most)).min(n_chunks);
    let team = if team.is_power_of_two() { team } else { team.next_power_of_two() / 2 };
    let n_teams = tasks.clamp(WARPS[0].div_ceil(team), most / team);
    let direct = team == 1 && n_parts == 1;
    let launch = MatrixLaunch { n_teams, team, direct, depth: 0 };
    let chunk_bytes = 4 * launch.n_warps() * chunk_floats(graph, linear);
    let other_bytes = 4 * shared(graph, linear, n_parts, launch).n_floats;
    let room_bytes = family_shared_bytes().saturating_sub(other_bytes);
    let depth = FLIGHT_BYTES.min(room_bytes) / chunk_bytes.max(1);
    // More than a warp ever loads is of no use.
    let steps = tasks.div_ceil(n_teams) * n_chunks.div_ceil(team);
    MatrixLaunch { depth: depth.min(steps).clamp(DEPTHS[0], DEPTHS[1]), ..launch }
}

/// Words of scales and of offsets that a lane has of one block of a tile: of a row and the row 8
/// further.
pub fn group_words(format: &WeightFormat, tiles: &Tiles) -> (usize, usize) {
    let words = |dtype: DType| (2 * tiles.block_groups * dtype.bytes()).div_ceil(4);
    let group = format.group;
    let scales = group.map_or(0, |group| words(group.scale));
    (scales, group.and_then(|group| group.offset).map_or(0, words))
}

/// Floats of shared memory that hold one chunk of every tile of a task, with its scales and
/// offsets, for one warp.
fn chunk_floats(graph: &Graph, linear: &Linear) -> usize {
    let of_group = |group: &Group| {
        let of = |segment: &Segment| {
            let (Some((format, _)), Some(tiles)) =
                (weight(graph, segment.linear), tiles(graph, segment.linear))
            else {
                return 0;
            };
            let (scales, offsets) = group_words(format, &tiles);
            TILE_ROWS * CHUNK_BYTES / 4 + 32 * (scales + offsets)
        };
        group.segments.iter().map(of).sum::<usize>() * (task_outputs(group) / TILE_ROWS)
    };
    linear.groups.iter().map(of_group).max().unwrap_or(0)
}

/// Blocks whose registers a multiprocessor is to have room for.
pub(crate) fn bounded_blocks(launch: MatrixLaunch, linear: &Linear, n_parts: usize) -> usize {
    // More columns have more sums, and an operand that is read where it is comes through registers.
    let n_columns = n_columns(linear, n_parts);
    let n_tiles = |group: &Group| group.segments.len() * task_outputs(group) / TILE_ROWS;
    let n_tiles = linear.groups.iter().map(n_tiles).max().unwrap_or(1);
    let warps = match n_columns.div_ceil(8) * n_tiles {
        // Four sums of a tile and eight columns, and as many of a group.
        5.. => BOUNDED_WARPS / 4,
        _ if n_columns >= 8 || n_tiles > 1 || !linear.staged => BOUNDED_WARPS / 2,
        _ => BOUNDED_WARPS,
    };
    (warps / launch.n_warps()).max(1)
}

/// Chunks of a row: the same for all weights of a kernel.
pub fn n_chunks(graph: &Graph, linear: &Linear) -> usize {
    let first = linear.groups.first().and_then(|group| group.segments.first());
    first.and_then(|segment| tiles(graph, segment.linear)).map_or(0, |tiles| tiles.n_chunks)
}

/// Pieces of a row.
pub fn n_pieces(graph: &Graph, linear: &Linear) -> usize {
    let first = linear.groups.first().and_then(|group| group.segments.first());
    let tiles = first.and_then(|segment| tiles(graph, segment.linear));
    tiles.map_or(linear.k.div_ceil(PIECE), |tiles| tiles.n_chunks * tiles.chunk_pieces())
}

/// Columns of the right operand.
pub fn n_columns(linear: &Linear, n_parts: usize) -> usize {
    linear.n_rows * n_parts
}

/// Whether some weight of a kernel has offsets.
pub fn has_offsets(graph: &Graph, linear: &Linear) -> bool {
    let mut segments = linear.groups.iter().flat_map(|group| &group.segments);
    segments.any(|segment| {
        weight(graph, segment.linear)
            .and_then(|(format, _)| format.group)
            .is_some_and(|group| group.offset.is_some())
    })
}

/// The shared memory of a matrix kernel.
pub fn shared(
    graph: &Graph,
    linear: &Linear,
    n_parts: usize,
    launch: MatrixLaunch,
) -> MatrixShared {
    let n_warps = launch.n_warps();
    let mut at = 0;
    let mut array = |n: usize| {
        let here = at;
        at += n.next_multiple_of(4);
        (here, n)
    };
    let (n_rows, n_pieces) = (linear.n_rows, n_pieces(graph, linear));
    let n_columns = n_columns(linear, n_parts);
    let offsets = usize::from(has_offsets(graph, linear));
    let n_tiles = |group: &Group| group.segments.len() * task_outputs(group) / TILE_ROWS;
    let n_tiles = linear.groups.iter().map(n_tiles).max().unwrap_or(0);
    let n_reductions = linear.row_ops.len();
    MatrixShared {
        x: array(if linear.staged { 16 * n_pieces * n_columns } else { 0 }),
        x_sums: array(offsets * n_pieces * n_rows),
        x_parts: array(offsets * 4 * n_pieces * n_rows),
        sums: array(if launch.direct { 0 } else { n_tiles * n_warps * n_columns * TILE_ROWS }),
        tile: array(launch.n_teams * n_tiles * n_rows * TILE_ROWS),
        row_results: array(2 * n_reductions * n_rows),
        partial: array(if n_reductions == 0 { 0 } else { 2 * n_warps }),
        ring: array(n_warps * launch.depth * chunk_floats(graph, linear)),
        n_floats: at,
    }
}
