//! Attention of each row to its sequence in a cache, in parallel over rows and key heads.

use super::device_error;
use super::frame::{Frame, Operand, Target};
use super::pointwise::round;
use super::program::Builder;
use super::rows;
use super::vector::{self, Loop};
use crate::dot::{Element, Level, axpy_rows, dot_rows};
use fuseline_core::backend::BackendError;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Op, Type, ValueId};
use fuseline_core::math;
use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;
use std::cell::RefCell;

/// Positions whose keys (or values) all query heads of a key head read before the next ones: few
/// enough to stay in the nearest cache meanwhile.
const TILE: usize = 64;

/// Multiplications below which attention stays on the calling thread: about what waking another
/// costs.
const MIN_PARALLEL_PRODUCTS: usize = 1 << 18;

/// Memory for the key head that a thread is at.
#[derive(Default)]
struct Work {
    /// `[per_kv, n_keys]`: scores, then probabilities.
    scores: Vec<f32>,
    /// `[per_kv, head_dim]`: queries, if they are rounded.
    queries: Vec<f32>,
    /// `[per_kv]`: the sums of probabilities.
    sums: Vec<f32>,
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::default();
}

/// One attention.
#[derive(Clone, Debug)]
pub(super) struct AttendStep {
    q: Operand,
    sinks: Option<Operand>,
    /// The buffer of keys; values are the next one.
    cache: usize,
    /// The buffer of positions; sequences are the next one.
    index: usize,
    dtype: DType,
    kv_heads: usize,
    capacity: usize,
    shape: Heads,
    target: Target,
}

/// What one key head needs to know.
#[derive(Clone, Copy, Debug)]
struct Heads {
    /// Query heads of a key head.
    per_kv: usize,
    head_dim: usize,
    scale: f32,
    window: Option<usize>,
    softcap: Option<f32>,
    operand: DType,
}

impl AttendStep {
    /// The step of an attention; none for other operations.
    pub fn new(cx: &mut Builder<'_>, id: ValueId) -> Option<AttendStep> {
        let graph = cx.graph();
        let Op::Attend { scale, window, softcap, sinks, operand } = graph[id].op else {
            return None;
        };
        let [_, heads, head_dim] = graph[id].ty.shape() else { return None };
        let append = graph[id].inputs[1];
        let Type::Cache { dtype, kv_heads, capacity, .. } = &graph[append].ty else {
            return None;
        };
        let per_kv = heads.size.checked_div(kv_heads.size)?;
        let head_dim = head_dim.size;
        Some(AttendStep {
            q: cx.input(id, 0),
            sinks: sinks.then(|| cx.input(id, 3)),
            cache: cx.arg_handle(*graph[append].inputs.first()?)?,
            index: cx.arg_handle(graph[id].inputs[2])?,
            dtype: *dtype,
            kv_heads: kv_heads.size,
            capacity: capacity.size,
            shape: Heads { per_kv, head_dim, scale, window, softcap, operand },
            target: cx.target(id),
        })
    }

    pub fn run(&self, frame: &mut Frame<'_>) -> Result<(), BackendError> {
        let mut values = frame.take(self.target);
        let [k, v] = [0, 1].map(|i| frame.memory.bytes(self.cache + i));
        let result = match self.dtype {
            DType::F32 => {
                let [k, v] = [k, v].map(whole::<f32>);
                self.attend(frame, k, v, &mut values);
                Ok(())
            }
            DType::F16 => {
                let [k, v] = [k, v].map(|bytes| whole::<u16>(bytes).reinterpret_cast::<f16>());
                self.attend(frame, k, v, &mut values);
                Ok(())
            }
            DType::BF16 => {
                let [k, v] = [k, v].map(|bytes| whole::<u16>(bytes).reinterpret_cast::<bf16>());
                self.attend(frame, k, v, &mut values);
                Ok(())
            }
            DType::I32 => Err(device_error("a cache of i32 cannot be attended to".to_string())),
        };
        frame.put(self.target, values);
        result
    }

    fn attend<T: Element>(&self, frame: &Frame<'_>, keys: &[T], values: &[T], y: &mut [f32]) {
        let Heads { per_kv, head_dim, .. } = self.shape;
        let q = frame.read(self.q);
        let sinks = self.sinks.map(|sinks| frame.read(sinks));
        let positions = frame.integers(self.index);
        let sequences = frame.integers(self.index + 1);
        let (kv_heads, level) = (self.kv_heads, frame.level);
        let group_len = per_kv * head_dim;
        if group_len == 0 {
            return;
        }
        let head = |(index, y): (usize, &mut [f32])| {
            let (row, kv_head) = (index / kv_heads, index % kv_heads);
            // Both were checked to be in range before the run began.
            let (sequence, end) = (sequences[row] as usize, positions[row] as usize + 1);
            let start = self.shape.window.map_or(0, |window| end.saturating_sub(window));
            let first = (sequence * kv_heads + kv_head) * self.capacity;
            let range = (first + start) * head_dim..(first + end) * head_dim;
            let group = Group {
                shape: self.shape,
                level,
                q: &q[index * group_len..][..group_len],
                keys: &keys[range.clone()],
                values: &values[range],
                n_keys: end - start,
                sinks: sinks.map(|sinks| &sinks[kv_head * per_kv..][..per_kv]),
            };
            WORK.with_borrow_mut(|work| group.run(work, y));
        };
        let n_keys: usize = positions
            .iter()
            .take(y.len() / (group_len * kv_heads).max(1))
            .map(|&position| self.shape.window.unwrap_or(usize::MAX).min(position as usize + 1))
            .sum();
        let n_products = 2 * n_keys * kv_heads * group_len;
        if n_products >= MIN_PARALLEL_PRODUCTS && rayon::current_num_threads() > 1 {
            y.par_chunks_exact_mut(group_len).with_max_len(1).enumerate().for_each(head);
        } else {
            y.chunks_exact_mut(group_len).enumerate().for_each(head);
        }
    }
}

/// The whole elements of a buffer.
fn whole<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> &[T] {
    let element = size_of::<T>();
    bytemuck::cast_slice(&bytes[..bytes.len() / element * element])
}

/// One row's query heads of one key head.
struct Group<'a, T> {
    shape: Heads,
    level: Level,
    /// `[per_kv, head_dim]`.
    q: &'a [f32],
    /// `[n_keys, head_dim]`, as are the values.
    keys: &'a [T],
    values: &'a [T],
    n_keys: usize,
    sinks: Option<&'a [f32]>,
}

impl<T: Element> Group<'_, T> {
    fn run(&self, work: &mut Work, y: &mut [f32]) {
        let Heads { per_kv, head_dim, scale, softcap, operand, .. } = self.shape;
        let (level, n_keys) = (self.level, self.n_keys);
        let Work { scores, queries, sums } = work;
        y.fill(0.0);
        if n_keys == 0 {
            return;
        }
        let q = if operand == DType::F32 {
            self.q
        } else {
            queries.clear();
            queries.extend_from_slice(self.q);
            round(operand, queries);
            queries
        };
        scores.resize(per_kv * n_keys, 0.0);
        for start in (0..n_keys).step_by(TILE) {
            let end = n_keys.min(start + TILE);
            let keys = &self.keys[start * head_dim..end * head_dim];
            let heads = q.chunks_exact(head_dim).zip(scores.chunks_exact_mut(n_keys));
            heads.for_each(|(q, s)| dot_rows(level, q, keys, head_dim, &mut s[start..end]));
        }
        sums.clear();
        for (head, scores) in scores.chunks_exact_mut(n_keys).enumerate() {
            let sink = self.sinks.map(|sinks| sinks[head]);
            sums.push(vector::run(Probabilities { scores, scale, softcap, sink }));
            // The sum is of probabilities before they are rounded.
            round(operand, scores);
        }
        for start in (0..n_keys).step_by(TILE) {
            let end = n_keys.min(start + TILE);
            let values = &self.values[start * head_dim..end * head_dim];
            let heads = y.chunks_exact_mut(head_dim).zip(scores.chunks_exact(n_keys));
            heads.for_each(|(y, p)| axpy_rows(level, &p[start..end], values, head_dim, y));
        }
        for (y, sum) in y.chunks_exact_mut(head_dim).zip(sums) {
            y.iter_mut().for_each(|y| *y /= *sum);
        }
    }
}

/// Turns one query head's products into `exp(score - max)`, and gives their sum, the sink's
/// included.
struct Probabilities<'a> {
    scores: &'a mut [f32],
    scale: f32,
    softcap: Option<f32>,
    sink: Option<f32>,
}

impl Loop for Probabilities<'_> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        let Probabilities { scores, scale, softcap, sink } = self;
        scores.iter_mut().for_each(|score| *score *= scale);
        if let Some(cap) = softcap {
            scores.iter_mut().for_each(|score| *score = math::softcap(*score, cap));
        }
        let max = sink.map_or(rows::max(scores), |sink| math::max(rows::max(scores), sink));
        scores.iter_mut().for_each(|score| *score = math::exp(*score - max));
        rows::sum(scores) + sink.map_or(0.0, |sink| math::exp(sink - max))
    }
}
