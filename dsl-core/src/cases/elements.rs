//! Pointwise operations, norms, rounding and range.

use super::{Case, dense, filled, tensor};
use crate::format;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            "two norms of a row keep their own eps",
            "block b
             arg %0 x input f32[1, 8]
             arg %1 w weight f32[8]
             %2 = rms_norm %0 %1 eps=0.00001 : f32[1, 8]
             %3 = rms_norm %0 %1 eps=0.01 : f32[1, 8]
             return %2 %3",
            vec![filled(8, 0.001), filled(8, 1.0)],
            &[&[0.301_511_344_577_763_6; 8], &[0.009_999_500_037_496_875; 8]],
        )
        .tolerance(1e-6),
        Case::new(
            "operands that broadcast along different axes",
            "block b
             arg %0 a input f32[3, 1]
             arg %1 b weight f32[3]
             %2 = add %0 %1 : f32[3, 3]
             return %2",
            vec![tensor(&[1.0, 2.0, 3.0]), tensor(&[10.0, 20.0, 30.0])],
            &[&[11.0, 21.0, 31.0, 12.0, 22.0, 32.0, 13.0, 23.0, 33.0]],
        )
        .rows(3),
        Case::new(
            "a product and a sum are rounded one after the other",
            "block b
             arg %0 a input f32[1, 3]
             arg %1 b input f32[1, 3]
             arg %2 c input f32[1, 3]
             %3 = mul %0 %1 : f32[1, 3]
             %4 = add %3 %2 : f32[1, 3]
             return %4",
            vec![
                filled(3, 1.0 + 2f64.powi(-12)),
                filled(3, 1.0 + 2f64.powi(-12)),
                filled(3, -(1.0 + 2f64.powi(-11))),
            ],
            &[&[0.0; 3]],
        ),
        Case::new(
            "one is added to a bf16 norm weight in f32",
            "block b
             arg %0 x input f32[1, 2]
             arg %1 w weight bf16[2]
             %2 = const value=1.0 : f32[]
             %3 = add %2 %1 : f32[2]
             %4 = rms_norm %0 %3 eps=0.0 : f32[1, 2]
             return %4",
            vec![tensor(&[1.0, 1.0]), tensor(&[0.003_906_25, 15.8125])],
            &[&[1.003_906_25, 16.8125]],
        ),
        Case::new(
            "gelu_tanh of large numbers",
            "block b
             arg %0 x input f32[1, 5]
             %1 = gelu_tanh %0 : f32[1, 5]
             return %1",
            vec![tensor(&[11.0, 12.0, 40.0, -40.0, -2.0])],
            &[&[11.0, 12.0, 40.0, 0.0, -0.045_402_305_912_224_966]],
        )
        .tolerance(1e-6),
        Case::new(
            "a nan stays in softmax, maxima, clamps and relu",
            "block b
             arg %0 x input f32[1, 3]
             %1 = softmax %0 : f32[1, 3]
             %2 = row_max %0 : f32[1, 1]
             %3 = const value=-1.0 : f32[]
             %4 = const value=1.5 : f32[]
             %5 = clamp %0 %3 %4 : f32[1, 3]
             %6 = relu %0 : f32[1, 3]
             %7 = max %0 %4 : f32[1, 3]
             %8 = min %4 %0 : f32[1, 3]
             %9 = argmax %0 : i32[1]
             return %1 %2 %5 %6 %7 %8 %9",
            vec![tensor(&[1.0, f64::NAN, 2.0])],
            &[
                &[f64::NAN; 3],
                &[f64::NAN],
                &[1.0, f64::NAN, 1.5],
                &[1.0, f64::NAN, 2.0],
                &[1.5, f64::NAN, 2.0],
                &[1.0, f64::NAN, 1.5],
                &[1.0],
            ],
        ),
        Case::new(
            "argmax is the first of equals",
            "block b
             arg %0 x input f32[2, 5]
             %1 = argmax %0 : i32[2]
             return %1",
            vec![tensor(&[0.5, 3.0, -1.0, 3.0, 3.0, -2.0, -7.0, -1.0, -1.0, -4.0])],
            &[&[1.0, 2.0]],
        )
        .rows(2),
    ];
    for element in [300.0, 20_000.0] {
        cases.push(Case::new(
            format!("the mean square of f16 elements of {element} does not overflow"),
            "block b
                 arg %0 x input f16[1, 4096]
                 arg %1 w weight f16[4096]
                 %2 = rms_norm %0 %1 eps=0.000001 : f32[1, 4096]
                 %3 = to %2 dtype=f16 : f16[1, 4096]
                 return %3",
            vec![filled(4096, element), filled(4096, 1.0)],
            &[&[1.0; 4096]],
        ));
    }
    for width in [2880, 5120, 7168, 16_384, 32_768] {
        cases.push(
            Case::new(
                format!("the norm of a sum of rows of {width}"),
                &format!(
                    "block b
                     arg %0 x input f32[1, {width}]
                     arg %1 r input f32[1, {width}]
                     arg %2 w weight f32[{width}]
                     %3 = add %0 %1 : f32[1, {width}]
                     %4 = rms_norm %3 %2 eps=0.000001 : f32[1, {width}]
                     return %4"
                ),
                vec![filled(width, 1.0), filled(width, 1.0), filled(width, 1.0)],
                &[&vec![1.0; width]],
            )
            .tolerance(1e-6),
        );
    }
    cases.extend(written_casts());
    cases
}

/// A product of 1 + 2^-9 is rounded to bf16 where a cast is written, and nowhere else.
fn written_casts() -> [Case; 2] {
    let args = vec![tensor(&[1.0, 2f64.powi(-9)]), dense(&format::BF16, 1, 2, |_, _| 1.0)];
    [
        Case::new(
            "a written cast rounds a product",
            "block b
             arg %0 x input bf16[1, 2]
             arg %1 w weight bf16{1, 2}
             %2 = linear %0 %1 : f32[1, 1]
             %3 = to %2 dtype=bf16 : bf16[1, 1]
             %4 = to %3 dtype=f32 : f32[1, 1]
             %5 = const value=1.0 : f32[]
             %6 = sub %4 %5 : f32[1, 1]
             return %6",
            args.clone(),
            &[&[0.0]],
        ),
        Case::new(
            "a product without a cast is not rounded to its operands' type",
            "block b
             arg %0 x input bf16[1, 2]
             arg %1 w weight bf16{1, 2}
             %2 = linear %0 %1 : f32[1, 1]
             %3 = const value=1.0 : f32[]
             %4 = sub %2 %3 : f32[1, 1]
             return %4",
            args,
            &[&[0.001_953_125]],
        ),
    ]
}
