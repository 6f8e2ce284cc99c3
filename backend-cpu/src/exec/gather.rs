//! Rows of a table.

use super::frame::{Frame, Operand, Target};
use super::linear::{Weight, dot_error};
use super::program::Builder;
use crate::dot;
use fuseline_core::backend::BackendError;
use fuseline_core::ir::ValueId;

/// One row of a table for each token.
#[derive(Clone, Debug)]
pub(super) struct GatherStep {
    tokens: Operand,
    table: Weight,
    target: Target,
}

impl GatherStep {
    pub fn new(cx: &mut Builder<'_>, id: ValueId) -> Option<GatherStep> {
        let table = Weight::new(cx, cx.graph()[id].inputs[1])?;
        Some(GatherStep { tokens: cx.input(id, 0), table, target: cx.target(id) })
    }

    pub fn run(&self, frame: &mut Frame<'_>) -> Result<(), BackendError> {
        let mut values = frame.take(self.target);
        let result = self.gather(frame, &mut values);
        frame.put(self.target, values);
        result
    }

    fn gather(&self, frame: &Frame<'_>, values: &mut [f32]) -> Result<(), BackendError> {
        let planes = self.table.planes(frame)?;
        for (index, token) in frame.read(self.tokens).iter().enumerate() {
            let row = token_row(token.to_bits() as i32, self.table.n)?;
            let out = &mut values[index * self.table.k..][..self.table.k];
            dot::embed_row(&planes, row, out).map_err(dot_error)?;
        }
        Ok(())
    }
}

/// Every row of a weight.
#[derive(Clone, Debug)]
pub(super) struct DequantizeStep {
    weight: Weight,
    target: Target,
}

impl DequantizeStep {
    pub fn new(cx: &mut Builder<'_>, id: ValueId) -> Option<DequantizeStep> {
        let weight = Weight::new(cx, cx.graph()[id].inputs[0])?;
        Some(DequantizeStep { weight, target: cx.target(id) })
    }

    pub fn run(&self, frame: &mut Frame<'_>) -> Result<(), BackendError> {
        let mut values = frame.take(self.target);
        let decoded = self.weight.planes(frame).and_then(|planes| {
            let mut rows = values.chunks_exact_mut(self.weight.k.max(1)).enumerate();
            rows.try_for_each(|(row, out)| dot::embed_row(&planes, row, out).map_err(dot_error))
        });
        frame.put(self.target, values);
        decoded
    }
}

/// The row of a table of `n_rows` rows that a token names.
pub(super) fn token_row(id: i32, n_rows: usize) -> Result<usize, BackendError> {
    let row = usize::try_from(id).ok().filter(|&row| row < n_rows);
    row.ok_or(BackendError::Token { id, n_rows })
}
