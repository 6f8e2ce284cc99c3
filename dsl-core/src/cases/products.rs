//! Products with weights, and weight formats.

use super::{Case, dense, filled, grouped, tensor};
use crate::dtype::DType;
use crate::format::{self, CodeMap, Group, Packed, WeightFormat};
use crate::oracle::Datum;
use std::borrow::Cow;

/// Unsigned nibbles less 8, as a user declares them.
const Q4_0: WeightFormat = WeightFormat {
    name: Cow::Borrowed("Q4_0"),
    bits: 4,
    code: CodeMap::Unsigned { bias: 8 },
    group: Some(Group { size: 32, scale: DType::F16, offset: None }),
    gguf: None,
};

const Q4_0_LINE: &str = "format Q4_0 bits=4 code=unsigned(8) group=32 scale=f16";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            "a scalar multiplies a product and its bias",
            "block b
             arg %0 x input f32[1, 2]
             arg %1 w weight f32{2, 2}
             arg %2 bias weight f32[2]
             %3 = linear %0 %1 : f32[1, 2]
             %4 = add %3 %2 : f32[1, 2]
             %5 = const value=0.5 : f32[]
             %6 = mul %4 %5 : f32[1, 2]
             return %6",
            vec![
                tensor(&[1.0, 1.0]),
                dense(&format::F32, 2, 2, |n, _| n as f32 + 1.0),
                tensor(&[10.0, 20.0]),
            ],
            &[&[6.0, 12.0]],
        ),
        Case::new(
            "a product that is returned and used",
            "block b
             arg %0 x input f32[1, 2]
             arg %1 w weight f32{2, 2}
             %2 = linear %0 %1 : f32[1, 2]
             %3 = const value=0.25 : f32[]
             %4 = mul %3 %2 : f32[1, 2]
             return %2 %4",
            vec![tensor(&[1.0, 2.0]), dense(&format::F32, 2, 2, identity)],
            &[&[1.0, 2.0], &[0.25, 0.5]],
        ),
        Case::new(
            "a group whose elements are its offset",
            "block b
             arg %0 x input f32[1, 32]
             arg %1 w weight Q4_1{1, 32}
             %2 = linear %0 %1 : f32[1, 1]
             return %2",
            vec![
                filled(32, 3000.0),
                grouped(&format::Q4_1, [1, 32], |_, k| k as u32 % 16, |_| 0.0, |_| 1.0),
            ],
            &[&[96_000.0]],
        ),
        Case::new(
            "a row of one group",
            &format!(
                "block b
                 {Q4_0_LINE}
                 arg %0 x input f32[1, 32]
                 arg %1 w weight Q4_0{{1, 32}}
                 %2 = linear %0 %1 : f32[1, 1]
                 return %2"
            ),
            vec![
                Datum::Tensor((1..=32).map(f64::from).collect()),
                grouped(&Q4_0, [1, 32], |_, _| 9, |_| 1.0, |_| 0.0),
            ],
            &[&[528.0]],
        ),
        Case::new(
            "elements of a group by unit vectors",
            &format!(
                "block b
                 {Q4_0_LINE}
                 arg %0 x input f32[3, 32]
                 arg %1 w weight Q4_0{{1, 32}}
                 %2 = linear %0 %1 : f32[3, 1]
                 return %2"
            ),
            vec![
                Datum::Tensor(
                    [1, 16, 31]
                        .iter()
                        .flat_map(|&unit| (0..32).map(move |k| if k == unit { 1.0 } else { 0.0 }))
                        .collect(),
                ),
                // Codes 0 to 15, then 15 to 0.
                grouped(&Q4_0, [1, 32], |_, k| k.min(31 - k) as u32, |_| 1.0, |_| 0.0),
            ],
            &[&[-7.0, 7.0, -8.0]],
        )
        .rows(3),
        Case::new(
            "groups after groups of zeros",
            "block b
             arg %0 x input f32[1, 512]
             arg %1 w weight Q4_1{1, 512}
             %2 = linear %0 %1 : f32[1, 1]
             return %2",
            vec![
                filled(512, 1.0),
                grouped(
                    &format::Q4_1,
                    [1, 512],
                    |_, k| k as u32 % 16,
                    |group| 0.25 * (group as f32 - 7.0).max(0.0),
                    |group| -0.5 * (group as f32 - 7.0).max(0.0),
                ),
            ],
            // Codes of a group add up to 240, so group 7 + i to i · (0.25 · 240 - 0.5 · 32).
            &[&[36.0 * 44.0]],
        ),
        Case::new(
            "scales are f16, subnormal ones too",
            "block b
             arg %0 tokens input i32[2]
             arg %1 w weight Q8_0{2, 32}
             %2 = embed %0 %1 : f32[2, 32]
             return %2",
            vec![Datum::Tokens(vec![1, 0]), Datum::Weight(scales_of_blocks(&[0x3C00, 0x0001]))],
            &[&[vec![2f64.powi(-24); 32], vec![1.0; 32]].concat()],
        )
        .rows(2),
        Case::new(
            "a row of 342 groups",
            "block b
             arg %0 x input f32[1, 10944]
             arg %1 w weight Q4_1{3, 10944}
             %2 = linear %0 %1 : f32[1, 3]
             return %2",
            vec![
                filled(10_944, 1.0),
                grouped(&format::Q4_1, [3, 10_944], |n, _| n as u32 + 1, |_| 0.5, |_| -0.25),
            ],
            &[&[10_944.0 * 0.25, 10_944.0 * 0.75, 10_944.0 * 1.25]],
        ),
    ];
    cases.extend([1, 2, 5].map(residual_through_a_view));
    for n in [1, 32, 63, 65, 96, 257] {
        let x = Datum::Tensor((0..1024).map(f64::from).collect());
        let y: Vec<f64> = (0..n).map(|n| n as f64).collect();
        let unit = |n: usize, k: usize| u32::from(n == k);
        let weights = [
            dense(&format::F32, n, 1024, identity),
            dense(&format::F16, n, 1024, identity),
            dense(&format::BF16, n, 1024, identity),
            grouped(&format::Q8_0, [n, 1024], unit, |_| 1.0, |_| 0.0),
            grouped(&format::Q4_1, [n, 1024], unit, |_| 1.0, |_| 0.0),
        ];
        for (format, weight) in format::FORMATS.iter().zip(weights) {
            let format = &format.name;
            cases.push(Case::new(
                format!("{n} rows of a {format} weight"),
                &format!(
                    "block b
                     arg %0 x input f32[1, 1024]
                     arg %1 w weight {format}{{{n}, 1024}}
                     %2 = linear %0 %1 : f32[1, {n}]
                     return %2"
                ),
                vec![x.clone(), weight],
                &[&y],
            ));
        }
    }
    cases.extend(narrow_layers());
    cases
}

fn identity(n: usize, k: usize) -> f32 {
    if n == k { 1.0 } else { 0.0 }
}

/// A weight of one GGUF block a row, with these bits as scales, and elements of one scale each.
fn scales_of_blocks(scales: &[u16]) -> Packed {
    let block = |bits: &u16| [bits.to_le_bytes().to_vec(), vec![1; 32]].concat();
    let bytes: Vec<u8> = scales.iter().flat_map(block).collect();
    match format::Q8_0.pack_gguf(&bytes, scales.len(), 32) {
        Ok(packed) => packed,
        Err(error) => panic!("{error}"),
    }
}

/// A product, seen under another shape, plus a residual.
fn residual_through_a_view(n_tokens: usize) -> Case {
    let x: Vec<f64> = (1..=2 * n_tokens).map(|x| x as f64).collect();
    let r: Vec<f64> = x.iter().map(|x| 10.0 * x).collect();
    let y: Vec<f64> = x.iter().map(|x| 11.0 * x).collect();
    Case::new(
        format!("a residual after a view of {n_tokens} tokens"),
        &format!(
            "block b
             arg %0 x input f32[1, {n_tokens}, 2]
             arg %1 w weight f32{{2, 2}}
             arg %2 r input f32[{n_tokens}, 2]
             %3 = linear %0 %1 : f32[1, {n_tokens}, 2]
             %4 = reshape %3 shape=[{n_tokens}, 2] : f32[{n_tokens}, 2]
             %5 = add %4 %2 : f32[{n_tokens}, 2]
             return %5"
        ),
        vec![tensor(&x), dense(&format::F32, 2, 2, identity), tensor(&r)],
        &[&y],
    )
}

/// Layers 36 → 64 → 9 → 1 with tanh: five rows at once, and each row alone, are the same.
fn narrow_layers() -> Vec<Case> {
    const WIDTHS: [usize; 4] = [36, 64, 9, 1];
    // Multiples of 1/64 that no simple mistake leaves in place.
    let number = |i: usize, salt: usize| ((i * 37 + salt * 11) % 61) as f64 / 64.0 - 0.46875;
    let w = |layer: usize, n: usize, k: usize| number(n * WIDTHS[layer] + k, layer) / 4.0;
    let bias = |layer: usize, n: usize| number(n, layer + 5);
    let x: Vec<f64> = (0..5 * 36).map(|i| number(i * i + i, 9)).collect();
    let answer = |row: &[f64]| {
        (0..3).fold(row.to_vec(), |x, layer| {
            let sum = |n| x.iter().enumerate().map(|(k, x)| x * w(layer, n, k)).sum::<f64>();
            (0..WIDTHS[layer + 1]).map(|n| (sum(n) + bias(layer, n)).tanh()).collect()
        })
    };
    let y: Vec<f64> = x.chunks(36).flat_map(answer).collect();
    let text = "block b
                batch B 1..=5
                arg %0 x input f32[B<=5, 36]
                arg %1 w0 weight f32{64, 36}
                arg %2 b0 weight f32[64]
                arg %3 w1 weight f32{9, 64}
                arg %4 b1 weight f32[9]
                arg %5 w2 weight f32{1, 9}
                arg %6 b2 weight f32[1]
                %7 = linear %0 %1 : f32[B<=5, 64]
                %8 = add %7 %2 : f32[B<=5, 64]
                %9 = tanh %8 : f32[B<=5, 64]
                %10 = linear %9 %3 : f32[B<=5, 9]
                %11 = add %10 %4 : f32[B<=5, 9]
                %12 = tanh %11 : f32[B<=5, 9]
                %13 = linear %12 %5 : f32[B<=5, 1]
                %14 = add %13 %6 : f32[B<=5, 1]
                %15 = tanh %14 : f32[B<=5, 1]
                return %15";
    let args = |x: &[f64]| {
        let mut args = vec![tensor(x)];
        for layer in 0..3 {
            let (n, k) = (WIDTHS[layer + 1], WIDTHS[layer]);
            args.push(dense(&format::F32, n, k, |n, k| w(layer, n, k) as f32));
            args.push(Datum::Tensor((0..n).map(|n| bias(layer, n)).collect()));
        }
        args
    };
    let alone = x.chunks(36).zip(y.chunks(1)).enumerate().map(|(row, (x, y))| {
        Case::new(format!("row {row} of narrow layers alone"), text, args(x), &[y]).tolerance(1e-5)
    });
    let together = Case::new("five rows of narrow layers", text, args(&x), &[&y]);
    std::iter::once(together.rows(5).tolerance(1e-5)).chain(alone).collect()
}
