//! Operations on single elements, their operands broadcast from the right.

use super::frame::{Frame, Operand, Target};
use super::program::Builder;
use super::vector::{self, Loop};
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Pointwise, ValueId};
use half::{bf16, f16};

/// Elements that are computed at once: operands that are one number are spread over as many.
const BLOCK: usize = 64;

/// One pointwise operation.
///
/// The result's trailing axes along which every operand either advances with the result or stays
/// are one loop; the axes before them are walked one by one.
#[derive(Clone, Debug)]
pub(super) struct PointwiseStep {
    op: Pointwise,
    inputs: Vec<Operand>,
    /// Whether each operand advances along the inner loop.
    advances: [bool; 3],
    /// The outer axes, outermost first: which operands have them.
    outer: Vec<(Dim, [bool; 3])>,
    inner: Vec<Dim>,
    target: Target,
}

impl PointwiseStep {
    pub fn new(cx: &mut Builder<'_>, op: Pointwise, id: ValueId) -> PointwiseStep {
        let graph = cx.graph();
        let shape = graph[id].ty.shape();
        // Per axis, which operands have it; operands of fewer dims lack the outer ones.
        let axes: Vec<(Dim, [bool; 3])> = shape
            .iter()
            .enumerate()
            .map(|(axis, dim)| {
                let mut has = [false; 3];
                for (has, &input) in has.iter_mut().zip(&graph[id].inputs) {
                    let own = graph[input].ty.shape();
                    let own_dim = (axis + own.len()).checked_sub(shape.len()).map(|i| &own[i]);
                    *has = own_dim.is_some_and(|own| own == dim);
                }
                (dim.clone(), has)
            })
            .collect();
        let single = |dim: &Dim| dim.size == 1 && !dim.batch;
        let advances = axes.iter().rev().find(|(dim, _)| !single(dim)).map_or([false; 3], |a| a.1);
        let n_inner =
            axes.iter().rev().take_while(|(dim, has)| single(dim) || *has == advances).count();
        let outer = axes[..axes.len() - n_inner].to_vec();
        let inner = shape[axes.len() - n_inner..].to_vec();
        let inputs = graph[id].inputs.iter().map(|&input| cx.operand(input)).collect();
        PointwiseStep { op, inputs, advances, outer, inner, target: cx.target(id) }
    }

    pub fn run(&self, frame: &mut Frame<'_>) {
        let mut values = frame.take(self.target);
        let mut operands: [&[f32]; 3] = [&[]; 3];
        for (operand, &input) in operands.iter_mut().zip(&self.inputs) {
            *operand = frame.read(input);
        }
        let live = |dim: &Dim| if dim.batch { frame.rows } else { dim.size };
        let len: usize = self.inner.iter().map(live).product();
        if len > 0 {
            for (index, out) in values.chunks_exact_mut(len).enumerate() {
                let at = self.starts(index, len, live);
                // What stays the same along the loop is spread over a block; an operand that the
                // operation lacks is anything.
                let number = |i: usize| operands[i].get(at[i]).copied().unwrap_or(0.0);
                let spread = [0, 1, 2].map(|i| [number(i); BLOCK]);
                let lane = |i: usize| {
                    if self.advances[i] {
                        Lane { elements: &operands[i][at[i]..at[i] + len], advances: true }
                    } else {
                        Lane { elements: &spread[i], advances: false }
                    }
                };
                vector::run(Elements { op: self.op, x: [lane(0), lane(1), lane(2)], out });
            }
        }
        frame.put(self.target, values);
    }

    /// Where each operand's part of the `index`-th inner loop begins.
    fn starts(&self, index: usize, len: usize, live: impl Fn(&Dim) -> usize) -> [usize; 3] {
        let mut stride = self.advances.map(|advances| if advances { len } else { 1 });
        let (mut rest, mut at) = (index, [0; 3]);
        for (dim, has) in self.outer.iter().rev() {
            let size = live(dim);
            for i in 0..3 {
                if has[i] {
                    at[i] += rest % size * stride[i];
                    stride[i] *= size;
                }
            }
            rest /= size;
        }
        at
    }
}

/// One operand of an inner loop.
struct Lane<'a> {
    /// An element for each of the result, or a block of equal ones.
    elements: &'a [f32],
    advances: bool,
}

impl Lane<'_> {
    #[inline(always)]
    fn block(&self, at: usize, len: usize) -> &[f32] {
        &self.elements[if self.advances { at } else { 0 }..][..len]
    }
}

struct Elements<'a> {
    op: Pointwise,
    x: [Lane<'a>; 3],
    out: &'a mut [f32],
}

/// One loop for each operation, so that each is compiled, and turned into vector code, by itself.
macro_rules! loops {
    ($elements:expr; $($name:ident)*) => {
        match $elements.op {
            $(Pointwise::$name => {
                let Elements { x: [a, b, c], out, .. } = $elements;
                for (index, out) in out.chunks_mut(BLOCK).enumerate() {
                    let (at, len) = (index * BLOCK, out.len());
                    let (a, b, c) = (a.block(at, len), b.block(at, len), c.block(at, len));
                    for i in 0..len {
                        out[i] = Pointwise::$name.eval([a[i], b[i], c[i]]);
                    }
                }
            })*
        }
    };
}

impl Loop for Elements<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        loops! { self;
            Add Sub Mul Div Min Max Lt Le Gt Ge Eq Ne Neg Exp Log Silu GeluTanh GeluErf Sigmoid
            Tanh Relu Recip Round Sqrt Rsqrt Softcap Clamp Select
        }
    }
}

/// A value rounded to a type.
#[derive(Clone, Debug)]
pub(super) struct CastStep {
    x: Operand,
    dtype: DType,
    target: Target,
}

impl CastStep {
    pub fn new(cx: &mut Builder<'_>, dtype: DType, id: ValueId) -> CastStep {
        CastStep { x: cx.input(id, 0), dtype, target: cx.target(id) }
    }

    pub fn run(&self, frame: &mut Frame<'_>) {
        let mut values = frame.take(self.target);
        values.copy_from_slice(frame.read(self.x));
        round(self.dtype, &mut values);
        frame.put(self.target, values);
    }
}

/// Rounds numbers to a type; `f32` are as they are.
pub(super) fn round(dtype: DType, values: &mut [f32]) {
    match dtype {
        DType::F16 => values.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
        DType::BF16 => values.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
        // Integers are kept as their bits.
        DType::F32 | DType::I32 => {}
    }
}
