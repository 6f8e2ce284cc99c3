//! Products with weights: every linear of a kernel in one parallel region, their operand
//! prepared once.

use super::device_error;
use super::frame::{Frame, Operand, Target};
use super::program::Builder;
use crate::dot::{self, Activations, DotError, Level, Planes};
use fuseline_core::backend::BackendError;
use fuseline_core::format::WeightFormat;
use fuseline_core::ir::{Type, ValueId};
use std::sync::Arc;

/// A weight argument.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    pub format: Arc<WeightFormat>,
    pub n: usize,
    pub k: usize,
    /// The buffer of codes; scales and offsets are the next two.
    pub handle: usize,
}

impl Weight {
    /// The weight that an operand is; none if it is something else.
    pub fn new(cx: &Builder<'_>, id: ValueId) -> Option<Weight> {
        let Type::Weight { format, n, k } = &cx.graph()[id].ty else { return None };
        let handle = cx.arg_handle(id)?;
        Some(Weight { format: format.clone(), n: n.size, k: k.size, handle })
    }

    pub fn planes<'a>(&'a self, frame: &'a Frame<'_>) -> Result<Planes<'a>, BackendError> {
        let [codes, scales, offsets] = [0, 1, 2].map(|i| frame.memory.bytes(self.handle + i));
        Planes::new(&self.format, self.n, self.k, codes, scales, offsets).map_err(dot_error)
    }
}

/// The products of one operand.
#[derive(Clone, Debug)]
pub(super) struct LinearStep {
    x: Operand,
    k: usize,
    products: Vec<(Weight, Target)>,
}

impl LinearStep {
    /// The step of linears that read the same operand.
    pub fn new(cx: &mut Builder<'_>, linears: &[ValueId]) -> Option<LinearStep> {
        let graph = cx.graph();
        let first = *linears.first()?;
        let x = cx.input(first, 0);
        let k = graph[graph[first].inputs[0]].ty.shape().last()?.size;
        let products = linears
            .iter()
            .map(|&id| Some((Weight::new(cx, graph[id].inputs[1])?, cx.target(id))))
            .collect::<Option<Vec<_>>>()?;
        Some(LinearStep { x, k, products })
    }

    pub fn run(&self, frame: &mut Frame<'_>) -> Result<(), BackendError> {
        let idle = Activations::new(Level::PORTABLE);
        let mut activations = std::mem::replace(&mut frame.state.activations, idle);
        let mut values: Vec<Vec<f32>> =
            self.products.iter().map(|(_, target)| frame.take(*target)).collect();
        let result = self.multiply(frame, &mut activations, &mut values);
        for ((_, target), values) in self.products.iter().zip(values) {
            frame.put(*target, values);
        }
        frame.state.activations = activations;
        result
    }

    fn multiply(
        &self,
        frame: &Frame<'_>,
        activations: &mut Activations,
        values: &mut [Vec<f32>],
    ) -> Result<(), BackendError> {
        let x = frame.read(self.x);
        // Without elements to sum, every product is 0.
        if self.k == 0 {
            values.iter_mut().for_each(|values| values.fill(0.0));
            return Ok(());
        }
        let formats = self.products.iter().map(|(weight, _)| &*weight.format);
        activations.fill(x, x.len() / self.k, self.k, formats).map_err(dot_error)?;
        let planes = self
            .products
            .iter()
            .map(|(weight, _)| weight.planes(frame))
            .collect::<Result<Vec<_>, _>>()?;
        let mut outputs: Vec<&mut [f32]> = values.iter_mut().map(Vec::as_mut_slice).collect();
        dot::linear(activations, &planes, &mut outputs).map_err(dot_error)
    }
}

pub(super) fn dot_error(error: DotError) -> BackendError {
    device_error(error.to_string())
}
