//! What steps work on while a program runs: values by where they are, and sizes by the rows that
//! a call has.

use super::bind::Memory;
use crate::dot::{Activations, Level};
use fuseline_core::backend::Count;
use std::ops::Range;

/// Where a value is while a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In a slot of the state.
    Slot(usize),
    /// In a buffer, from byte `at` on: elements of 4 bytes.
    Memory {
        /// The buffer.
        handle: usize,
        /// The first byte.
        at: usize,
    },
    /// One of the state's numbers.
    Number(usize),
}

/// A value that a step reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub source: Source,
    pub count: Count,
}

/// A slot that a step writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub slot: usize,
    pub count: Count,
}

/// What a run needs besides the call's buffers. Kept between runs, so that nothing is allocated
/// once everything has grown.
#[derive(Debug)]
pub(super) struct State {
    /// Values inside a kernel. Integers are kept as their bits.
    pub slots: Vec<Vec<f32>>,
    /// Scalar arguments by their place, then the graph's constants.
    pub numbers: Vec<f32>,
    /// The operand of the linear that runs.
    pub activations: Activations,
    /// Sine and cosine of each pair of the rotation that runs.
    pub angles: Vec<(f32, f32)>,
}

/// One run.
pub(super) struct Frame<'a> {
    pub rows: usize,
    pub level: Level,
    pub memory: Memory<'a>,
    pub state: State,
}

impl Frame<'_> {
    /// The elements of a value.
    pub fn read(&self, operand: Operand) -> &[f32] {
        read(&self.memory, &self.state, operand, self.rows)
    }

    /// The buffer of a slot, to be filled and [put](Frame::put) back. Its elements are stale.
    pub fn take(&mut self, target: Target) -> Vec<f32> {
        let mut values = std::mem::take(&mut self.state.slots[target.slot]);
        values.resize(target.count.at(self.rows), 0.0);
        values
    }

    /// Gives a slot its elements.
    pub fn put(&mut self, target: Target, values: Vec<f32>) {
        self.state.slots[target.slot] = values;
    }

    /// The elements of an `i32` buffer.
    pub fn integers(&self, handle: usize) -> &[i32] {
        integers(self.memory.bytes(handle))
    }
}

/// The elements of a value, with `state` and `memory` borrowed apart.
pub(super) fn read<'a>(
    memory: &'a Memory<'_>,
    state: &'a State,
    operand: Operand,
    rows: usize,
) -> &'a [f32] {
    let len = operand.count.at(rows);
    match operand.source {
        Source::Slot(slot) => &state.slots[slot][..len],
        Source::Memory { handle, at } => {
            bytemuck::cast_slice(&memory.bytes(handle)[byte_range(at, len, 4)])
        }
        Source::Number(place) => &state.numbers[place..place + 1],
    }
}

/// The bytes of `len` elements from byte `at` on.
pub(super) fn byte_range(at: usize, len: usize, element_bytes: usize) -> Range<usize> {
    at..at + len * element_bytes
}

/// Whole `i32` elements of a buffer, which may be longer.
pub(super) fn integers(bytes: &[u8]) -> &[i32] {
    bytemuck::cast_slice(&bytes[..bytes.len() / 4 * 4])
}
