//! Pointwise operations in `f64`, with the C library's functions where there is no closed form.

use crate::ir::Pointwise;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// `op` on operands that are broadcast to `shape`, each given with its own shape.
pub(super) fn broadcast(
    op: Pointwise,
    operands: &[(&[f64], Vec<usize>)],
    shape: &[usize],
) -> Vec<f64> {
    (0..shape.iter().product())
        .map(|element| {
            let mut x = [0.0; 3];
            for (slot, (elements, operand_shape)) in x.iter_mut().zip(operands) {
                *slot = elements[place(element, shape, operand_shape)];
            }
            eval(op, x)
        })
        .collect()
}

/// Where an operand has the element that is broadcast to place `element` of `shape`.
fn place(element: usize, shape: &[usize], operand_shape: &[usize]) -> usize {
    let (mut rest, mut place, mut stride) = (element, 0, 1);
    for (&size, &operand_size) in shape.iter().rev().zip(operand_shape.iter().rev()) {
        let along = rest % size;
        rest /= size;
        place += if operand_size == 1 { 0 } else { along * stride };
        stride *= operand_size;
    }
    place
}

/// One element.
fn eval(op: Pointwise, [a, b, c]: [f64; 3]) -> f64 {
    let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
    match op {
        Pointwise::Add => a + b,
        Pointwise::Sub => a - b,
        Pointwise::Mul => a * b,
        Pointwise::Div => a / b,
        Pointwise::Min => lesser(a, b),
        Pointwise::Max => greater(a, b),
        Pointwise::Lt => truth(a < b),
        Pointwise::Le => truth(a <= b),
        Pointwise::Gt => truth(a > b),
        Pointwise::Ge => truth(a >= b),
        Pointwise::Eq => truth(a == b),
        Pointwise::Ne => truth(a != b),
        Pointwise::Neg => -a,
        Pointwise::Exp => libm::exp(a),
        Pointwise::Log => libm::log(a),
        Pointwise::Silu => gate(a, sigmoid(a)),
        // (1 + tanh(u)) / 2 = sigmoid(2u), which does not cancel where u is negative.
        Pointwise::GeluTanh => {
            gate(a, sigmoid(2.0 * libm::sqrt(FRAC_2_PI) * (a + 0.044715 * a * a * a)))
        }
        // Φ(a) = erfc(-a / √2) / 2.
        Pointwise::GeluErf => gate(a, 0.5 * libm::erfc(-a * FRAC_1_SQRT_2)),
        Pointwise::Sigmoid => sigmoid(a),
        Pointwise::Tanh => libm::tanh(a),
        Pointwise::Round => a.round_ties_even(),
        Pointwise::Relu => greater(a, 0.0),
        Pointwise::Recip => 1.0 / a,
        Pointwise::Sqrt => libm::sqrt(a),
        Pointwise::Rsqrt => 1.0 / libm::sqrt(a),
        Pointwise::Softcap => softcap(a, b),
        Pointwise::Clamp => lesser(greater(a, b), c),
        Pointwise::Select => {
            if a != 0.0 {
                b
            } else {
                c
            }
        }
    }
}

/// `cap · tanh(a / cap)`.
pub(super) fn softcap(a: f64, cap: f64) -> f64 {
    cap * libm::tanh(a / cap)
}

/// The larger; NaN if either is.
pub(super) fn greater(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b {
        a
    } else {
        b
    }
}

fn lesser(a: f64, b: f64) -> f64 {
    -greater(-a, -b)
}

fn sigmoid(a: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-a))
}

/// `a · weight` for a weight that vanishes faster than a grows: zero at -∞.
fn gate(a: f64, weight: f64) -> f64 {
    if a == f64::NEG_INFINITY { -0.0 } else { a * weight }
}
