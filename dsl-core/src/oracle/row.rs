//! Operations on rows over the last axis, and products with weights, in `f64`.

use super::OracleError;
use super::pointwise::greater;
use crate::format::{Packed, WeightFormat};
use crate::ir::Reduction;

/// `f` of each row of `x`, joined.
pub(super) fn each(x: &[f64], shape: &[usize], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let width = shape.last().copied().unwrap_or(1);
    let n_rows: usize = shape.iter().rev().skip(1).product();
    (0..n_rows).flat_map(|row| f(&x[row * width..(row + 1) * width])).collect()
}

pub(super) fn reduce(reduction: Reduction, row: &[f64]) -> f64 {
    match reduction {
        Reduction::Sum => row.iter().sum(),
        Reduction::Mean => mean(row),
        Reduction::Max => largest(row),
    }
}

/// The largest element; NaN if there is one; -∞ of no elements.
pub(super) fn largest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, greater)
}

fn mean(row: &[f64]) -> f64 {
    row.iter().sum::<f64>() / row.len() as f64
}

pub(super) fn softmax(row: &[f64]) -> Vec<f64> {
    let max = largest(row);
    let exps: Vec<f64> = row.iter().map(|x| libm::exp(x - max)).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|exp| exp / sum).collect()
}

/// The first index of the largest element, or of the first NaN.
pub(super) fn argmax(row: &[f64]) -> usize {
    let mut best = 0;
    for (index, &x) in row.iter().enumerate() {
        if row[best].is_nan() {
            break;
        }
        if x > row[best] || x.is_nan() {
            best = index;
        }
    }
    best
}

pub(super) fn rms_norm(row: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let squares: Vec<f64> = row.iter().map(|x| x * x).collect();
    let root = libm::sqrt(mean(&squares) + eps);
    row.iter().zip(weight).map(|(x, w)| x / root * w).collect()
}

pub(super) fn layer_norm(row: &[f64], weight: &[f64], bias: &[f64], eps: f64) -> Vec<f64> {
    let centre = mean(row);
    let squares: Vec<f64> = row.iter().map(|x| (x - centre) * (x - centre)).collect();
    let root = libm::sqrt(mean(&squares) + eps);
    let scaled = row.iter().zip(weight).map(|(x, w)| (x - centre) / root * w);
    scaled.zip(bias).map(|(x, b)| x + b).collect()
}

/// Each row of `x`, `[.., k]`, times each row of the weight: `[.., n]`.
pub(super) fn linear(
    x: &[f64],
    shape: &[usize],
    format: &WeightFormat,
    weight: &Packed,
) -> Vec<f64> {
    let rows: Vec<Vec<f64>> = (0..weight.n).map(|n| decode_row(format, weight, n)).collect();
    let dot = |x: &[f64], w: &Vec<f64>| x.iter().zip(w).map(|(x, w)| x * w).sum();
    each(x, shape, |x| rows.iter().map(|w| dot(x, w)).collect())
}

/// Row `tokens[i]` of the weight for each i: `[tokens, k]`.
pub(super) fn embed(
    tokens: &[f64],
    format: &WeightFormat,
    weight: &Packed,
) -> Result<Vec<f64>, OracleError> {
    let mut y = Vec::new();
    for &token in tokens {
        let row = usize::try_from(token as i64).ok().filter(|&row| row < weight.n);
        let row = row.ok_or(OracleError::Token { id: token as i64, n_rows: weight.n })?;
        y.extend(decode_row(format, weight, row));
    }
    Ok(y)
}

fn decode_row(format: &WeightFormat, weight: &Packed, n: usize) -> Vec<f64> {
    (0..weight.k).map(|k| format.decode(weight, n, k)).collect()
}
