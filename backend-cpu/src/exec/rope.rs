//! Rotary position embedding.

use super::frame::{Frame, Operand, Target};
use super::program::Builder;
use super::vector::{self, Loop};
use fuseline_core::ir::{Op, Pairing, ValueId};
use fuseline_core::math;

/// The rotation of `[rows, heads, head_dim]`.
#[derive(Clone, Debug)]
pub(super) struct RopeStep {
    x: Operand,
    positions: usize,
    pairing: Pairing,
    rotary: usize,
    head_dim: usize,
    n_heads: usize,
    /// How far each pair turns at each position.
    frequencies: Vec<u64>,
    target: Target,
}

impl RopeStep {
    /// The step of a rotation; none for other operations.
    pub fn new(cx: &mut Builder<'_>, id: ValueId) -> Option<RopeStep> {
        let graph = cx.graph();
        let Op::Rope { pairing, base, rotary } = graph[id].op else { return None };
        let [_, heads, head_dim] = graph[id].ty.shape() else { return None };
        Some(RopeStep {
            x: cx.input(id, 0),
            positions: cx.arg_handle(graph[id].inputs[1])?,
            pairing,
            rotary,
            head_dim: head_dim.size,
            n_heads: heads.size,
            frequencies: (0..rotary / 2).map(|pair| math::turns(base, rotary, pair)).collect(),
            target: cx.target(id),
        })
    }

    pub fn run(&self, frame: &mut Frame<'_>) {
        let mut values = frame.take(self.target);
        let mut angles = std::mem::take(&mut frame.state.angles);
        angles.resize(self.frequencies.len(), (0.0, 0.0));
        values.copy_from_slice(frame.read(self.x));
        let row_len = self.n_heads * self.head_dim;
        if row_len > 0 {
            let rows = values.chunks_exact_mut(row_len);
            for (row, &position) in rows.zip(frame.integers(self.positions)) {
                let (frequencies, angles) = (&self.frequencies[..], &mut angles[..]);
                vector::run(Angles { position, frequencies, angles });
                let (pairing, rotary, head_dim) = (self.pairing, self.rotary, self.head_dim);
                vector::run(Heads { row, angles, pairing, rotary, head_dim });
            }
        }
        frame.state.angles = angles;
        frame.put(self.target, values);
    }
}

/// Sine and cosine of every pair at one position.
struct Angles<'a> {
    position: i32,
    frequencies: &'a [u64],
    angles: &'a mut [(f32, f32)],
}

impl Loop for Angles<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (angle, &frequency) in self.angles.iter_mut().zip(self.frequencies) {
            *angle = math::sin_cos_turns(math::rope_turn(self.position, frequency));
        }
    }
}

/// The rotation of every head of one row.
struct Heads<'a> {
    row: &'a mut [f32],
    angles: &'a [(f32, f32)],
    pairing: Pairing,
    rotary: usize,
    head_dim: usize,
}

impl Loop for Heads<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let head = &mut head[..self.rotary];
            match self.pairing {
                Pairing::Interleaved => {
                    for (pair, &angle) in head.chunks_exact_mut(2).zip(self.angles) {
                        (pair[0], pair[1]) = rotate((pair[0], pair[1]), angle);
                    }
                }
                Pairing::HalfSplit => {
                    let (first, second) = head.split_at_mut(self.rotary / 2);
                    for ((a, b), &angle) in first.iter_mut().zip(second).zip(self.angles) {
                        (*a, *b) = rotate((*a, *b), angle);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn rotate((a, b): (f32, f32), (sin, cos): (f32, f32)) -> (f32, f32) {
    (a * cos - b * sin, a * sin + b * cos)
}
