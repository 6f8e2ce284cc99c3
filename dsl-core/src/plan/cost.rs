//! What a kernel costs on a target: bytes moved, instructions issued, one launch.

use super::context::Context;
use super::matrix::{self, Multiply};
use super::schedule;
use super::structure::{Structure, Template, work_elements};
use crate::format::WeightFormat;
use crate::ir::{Graph, Op, Pointwise, Type, ValueId};
use crate::target::Target;

/// The cost of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bytes read from memory, each value once. A cache counts with its capacity.
    pub read_bytes: usize,
    /// Bytes written to memory.
    pub write_bytes: usize,
    /// Thread instructions, work that several blocks repeat counted each time.
    pub instructions: usize,
    /// Time: the longer of moving the bytes and issuing the instructions, and the launch.
    pub ns: f64,
}

/// Instructions that take one element of a linear's operand to where it is multiplied.
const OPERAND_INSTRUCTIONS: usize = 3;
/// Instructions of a load inside an expression: index, address, load, widening. Measured with an
/// expression of one product, whose inline place takes 52 issue slots an element.
const LOAD_INSTRUCTIONS: usize = 9;

/// Instructions of a load in a run of eight.
const RUN_INSTRUCTIONS: usize = 2;
/// Tenths of an instruction that multiply one weight by eight columns on matrix instructions.
const MATRIX_WIDE_TENTHS: usize = 2;

/// Tenths of an instruction that take one weight to a matrix instruction, in instructions as they
/// are counted here: about half of what is compiled (`backend-cuda/tests/compiled/kernels.txt`),
/// since loops of this template are issued better than those that the target's rate was fitted to.
/// Chosen so that large products cost their bytes; not fitted to times of its own yet.
fn matrix_tenths(format: &WeightFormat) -> usize {
    let decode = match format.bits {
        4 => 10,
        8 => 14,
        _ => 4,
    };
    match format.group {
        None => decode,
        Some(group) => decode + if group.offset.is_some() { 160 } else { 80 } / group.size,
    }
}

/// What a kernel with these members (ascending) reads from memory and what it writes, each once,
/// ascending.
pub(crate) fn traffic(cx: &Context<'_>, members: &[ValueId]) -> (Vec<ValueId>, Vec<ValueId>) {
    let graph = cx.graph;
    let mut loads = Vec::new();
    for &id in members {
        for (place, &input) in graph[id].inputs.iter().enumerate() {
            let source = cx.source(input);
            let written = graph[id].op == Op::Append && place == 0;
            let number = matches!(graph[source].op, Op::Const(_));
            if !written && !number && members.binary_search(&source).is_err() {
                loads.push(source);
            }
        }
    }
    loads.sort_unstable();
    loads.dedup();
    let stores = members.iter().copied().filter(|&id| cx.escapes(id, members)).collect();
    (loads, stores)
}

/// The cost of a kernel with this structure and [`traffic`] on `target`.
pub(crate) fn cost(
    cx: &Context<'_>,
    members: &[ValueId],
    structure: &Structure,
    (loads, stores): (&[ValueId], &[ValueId]),
    target: &Target,
) -> Cost {
    let graph = cx.graph;
    let read_bytes = loads.iter().map(|&id| load_bytes(cx, members, id)).sum();
    let write_bytes = stores.iter().map(|&id| store_bytes(graph, id)).sum();
    let launch = schedule::launch(graph, structure, loads);
    let each = |ids: &[ValueId], n: usize| -> usize {
        ids.iter().map(|&id| instructions(graph, id)).sum::<usize>() * n
    };
    let once = |ids: &[ValueId]| -> usize {
        ids.iter().map(|&id| instructions(graph, id) * work_elements(graph, id)).sum()
    };
    let prologue = |n_elements: usize| {
        structure
            .prologue
            .iter()
            .map(|&id| {
                // Reductions pass over the row twice: once to reduce, once to use.
                let passes = 1 + usize::from(graph[id].op.is_row());
                instructions(graph, id) * passes
            })
            .sum::<usize>()
            * n_elements
    };
    let instructions = match &structure.template {
        Template::Pointwise => {
            let n_elements = stores.iter().map(|&id| work_elements(graph, id)).max().unwrap_or(0);
            let fixed = 4 + 4 * loads.len(); // index, store, branch; address, load, widening
            fixed * n_elements + each(members, n_elements)
        }
        Template::Rows(rows) => {
            // Each reduction passes over the row; so does what is stored along it.
            let is_wide = |&id: &ValueId| work_elements(graph, id) > rows.n_rows;
            let passes = rows.row_ops.len() + usize::from(stores.iter().any(is_wide));
            each(members, rows.n_rows * rows.width) * passes
        }
        Template::Linear(linear) => {
            let n_parts = match linear.multiply {
                Multiply::Lanes => 1,
                Multiply::Matrix { n_parts } => n_parts,
            };
            let on_matrix = linear.multiply != Multiply::Lanes;
            let products: usize = linear
                .groups
                .iter()
                .flat_map(|group| group.segments.iter().map(|segment| (segment, group.len)))
                .map(|(segment, len)| match &graph[graph[segment.linear].inputs[1]].ty {
                    Type::Weight { format, .. } if on_matrix => {
                        let n_wide = matrix::n_columns(linear, n_parts).div_ceil(8);
                        let tenths = matrix_tenths(format) + MATRIX_WIDE_TENTHS * n_wide;
                        len * linear.k * tenths / 10
                    }
                    Type::Weight { format, .. } => {
                        len * linear.k * (weight_instructions(format) + 2 * linear.n_rows)
                    }
                    _ => 0,
                })
                .sum();
            // In shared memory each block computes the operand once; inline, each output does. Of
            // those on matrix instructions 16 do together, and only load it.
            let n_elements = linear.n_rows * linear.k;
            let times = match linear.staged {
                true => launch.n_blocks,
                false if on_matrix => 0,
                false => linear.groups.iter().map(|group| group.len * group.segments.len()).sum(),
            };
            let n_loads = expression_size(cx, &structure.prologue).1;
            let per_load = if on_matrix { RUN_INSTRUCTIONS } else { LOAD_INSTRUCTIONS };
            let each = OPERAND_INSTRUCTIONS + per_load * n_loads;
            let operand = times * (each * n_elements + prologue(n_elements));
            products + operand + once(&structure.epilogue)
        }
        Template::Attend { anchor } => {
            let (n_rows, heads, head_dim, kv_heads) = schedule::attend_dims(graph, *anchor);
            let capacity = match &graph[graph[*anchor].inputs[1]].ty {
                Type::Cache { capacity, .. } => capacity.size,
                _ => 0,
            };
            let keys = n_rows * capacity * (heads * (4 * head_dim + 40) + kv_heads * head_dim);
            keys + prologue(n_rows * heads * head_dim) + once(&structure.epilogue)
        }
        Template::Gather { anchor } => {
            let n_elements = graph[*anchor].ty.elements();
            8 * n_elements + once(&structure.epilogue)
        }
    };
    let move_ns = (read_bytes + write_bytes) as f64 / target.dram_bytes_per_ns;
    let issue_ns = instructions as f64 / target.instructions_per_ns;
    Cost { read_bytes, write_bytes, instructions, ns: move_ns.max(issue_ns) + target.launch_ns }
}

fn load_bytes(cx: &Context<'_>, members: &[ValueId], id: ValueId) -> usize {
    let graph = cx.graph;
    match &graph[id].ty {
        // A gather reads only the rows that are asked for.
        Type::Weight { format, k, .. } => {
            let whole = cx
                .member_users(id)
                .iter()
                .filter(|user| members.binary_search(user).is_ok())
                .any(|&user| matches!(graph[user].op, Op::Linear | Op::Dequantize));
            let rows = members
                .iter()
                .filter(|&&m| graph[m].op == Op::Embed)
                .map(|&m| graph[graph[m].inputs[0]].ty.elements());
            if whole {
                graph[id].ty.bytes()
            } else {
                rows.sum::<usize>() * format.packed_bytes(1, k.size)
            }
        }
        // One sequence a row.
        Type::Cache { dtype, kv_heads, head_dim, capacity, .. } => {
            let n_rows = members
                .iter()
                .filter(|&&m| matches!(graph[m].op, Op::Attend { .. }))
                .map(|&m| schedule::attend_dims(graph, m).0)
                .sum::<usize>();
            2 * n_rows * kv_heads.size * head_dim.size * capacity.size * dtype.bytes()
        }
        Type::Tensor { .. } | Type::Index { .. } => graph[id].ty.bytes(),
    }
}

fn store_bytes(graph: &Graph, id: ValueId) -> usize {
    match graph[id].op {
        Op::Append => 2 * work_elements(graph, id) * graph[id].ty.dtype().bytes(),
        _ => graph[id].ty.bytes(),
    }
}

/// Instructions of one element of an operation that is not a template.
fn instructions(graph: &Graph, id: ValueId) -> usize {
    match &graph[id].op {
        Op::Pointwise(op) => op.instructions(),
        Op::Cast(_) => 2,
        Op::Reduce(_) | Op::Argmax => 3,
        Op::Softmax => 16,
        Op::RmsNorm { .. } => 4,
        Op::LayerNorm { .. } => 6,
        Op::Rope { .. } => 40,
        Op::Append => 6,
        Op::Slice { .. } | Op::Reshape { .. } => 2,
        Op::Arg | Op::Const(_) | Op::Linear | Op::Attend { .. } | Op::Embed => 0,
        Op::Dequantize => match &graph[graph[id].inputs[0]].ty {
            Type::Weight { format, .. } => weight_instructions(format),
            _ => 0,
        },
    }
}

fn weight_instructions(format: &WeightFormat) -> usize {
    format.decode_ops()
}

/// Operations and distinct reads of an expression, by the rule that compilers of the field count
/// with: every distinct load, number, cast and arithmetic operation is one operation.
pub(crate) fn expression_size(cx: &Context<'_>, members: &[ValueId]) -> (usize, usize) {
    let (loads, _) = traffic(cx, members);
    let numbers = members
        .iter()
        .flat_map(|&id| &cx.graph[id].inputs)
        .filter(|&&input| matches!(cx.graph[input].op, Op::Const(_)))
        .count();
    let ops: usize = members
        .iter()
        .map(|&id| match &cx.graph[id].op {
            Op::RmsNorm { .. } => 7, // square, mean, eps, add, rsqrt, two products
            Op::LayerNorm { .. } => 9,
            Op::Softmax => 5,
            Op::Rope { .. } => 8,
            Op::Pointwise(Pointwise::Silu | Pointwise::Sigmoid) => 4,
            Op::Pointwise(Pointwise::GeluTanh | Pointwise::GeluErf) => 10,
            _ => 1,
        })
        .sum();
    (loads.len() + numbers + ops, loads.len())
}
