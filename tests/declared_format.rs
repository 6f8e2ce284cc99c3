//! A format that a program declares: by name in a block, and filled from its planes.

use fuseline::prelude::*;

/// One product with a weight of a format of our own.
#[decode(B in 1..=2, D = 16, F = 3)]
pub mod mine {
    /// Sixteen numbers by 4-bit codes.
    #[weight_format(
        bits = 4,
        codebook = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
        group = 8,
        scale = f32
    )]
    pub struct Table;

    pub fn project(x: Tensor<f32, B, D>, w: Weight<Table, F, D>) -> Tensor<f32, B, F> {
        x.linear(w)
    }

    /// Fuses like a block with a built-in format: the budget fails the build otherwise.
    #[budget(max_launches = 1, deny(product_buffer))]
    pub fn gated(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        gate: Weight<Table, F, D>,
        up: Weight<Table, F, D>,
    ) -> Tensor<f32, B, F> {
        let h = x.rms_norm(norm, 1e-5);
        h.linear(gate).silu() * h.linear(up)
    }
}

#[test]
fn a_declared_format_fuses_and_has_its_own_decoder() {
    for rule in ["linear_prologue", "linear_epilogue", "sibling_linear"] {
        assert!(mine::gated::EXPLAIN.contains(rule), "{rule}: {}", mine::gated::EXPLAIN);
    }
    assert!(mine::gated::CUDA.contains("FL_TABLE float fmt_Table_book[16]"));
    let decodes = mine::gated::CUDA.matches("fmt_Table_decode8(").count();
    assert!(decodes >= 3, "declared once, called for gate and up: {decodes}");
}

#[test]
fn a_declared_format_needs_no_derives() {
    let device = Device::best().unwrap();
    let codes: Vec<u32> = (0..48).map(|i| i * 7 % 16).collect();
    let scales = [1.0, 2.0, 0.5, -1.0, 4.0, 1.0];
    let w = Weight::from_planes(&device, &codes, &scales, &[]).unwrap();
    let weights = mine::project::Weights { w };
    let block = mine::project::load(&device).unwrap();
    let mut arena = block.arena().unwrap();
    // Row 0 adds each weight's numbers up, row 1 picks one: exact in every order of sums.
    let x = [vec![1.0; 16], (0..16).map(|k| if k == 11 { 2.0 } else { 0.0 }).collect()].concat();
    let x = Tensor::from_slice(&device, &x).unwrap();
    let y = block.call(&mut arena, &weights.clone(), &x).unwrap().to_vec().unwrap();
    let table =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    let element = |n: usize, k: usize| table[codes[n * 16 + k] as usize] * scales[n * 2 + k / 8];
    let sums = (0..3).map(|n| (0..16).map(|k| element(n, k)).sum());
    let expected: Vec<f32> = sums.chain((0..3).map(|n| 2.0 * element(n, 11))).collect();
    assert_eq!(y, expected);
    assert_eq!(weights.w.to_f32().unwrap().len(), 48);
}
