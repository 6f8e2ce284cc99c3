//! Rotary embedding, splits, caches and attention.

use super::{Case, dense, filled, tensor};
use crate::format;
use crate::oracle::Datum;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        rope(
            "HalfSplit",
            4,
            4,
            1,
            &[
                -1.984_110_648_555_549_5,
                1.959_900_667_496_664,
                2.462_377_902_412_315_6,
                4.019_799_668_334_994,
            ],
        ),
        rope(
            "Interleaved",
            4,
            4,
            1,
            &[
                -1.142_639_663_747_653_2,
                1.922_075_596_544_176,
                2.959_850_667_913_329_4,
                4.029_799_501_669_161,
            ],
        ),
        rope(
            "HalfSplit",
            8,
            4,
            3,
            &[
                -1.413_352_520_780_047,
                1.879_118_066_687_992_5,
                -2.828_857_481_741_469,
                4.058_191_135_400_942,
                5.0,
                6.0,
                7.0,
                8.0,
            ],
        ),
        Case::new(
            "a fused row splits by head counts",
            "block b
             arg %0 x input f32[1, 12]
             %1 = slice %0 start=0 len=8 : f32[1, 8]
             %2 = slice %0 start=8 len=2 : f32[1, 2]
             %3 = slice %0 start=10 len=2 : f32[1, 2]
             %4 = reshape %1 shape=[1, 4, 2] : f32[1, 4, 2]
             %5 = row_sum %4 : f32[1, 4, 1]
             return %1 %2 %3 %5",
            vec![Datum::Tensor((0..12).map(f64::from).collect())],
            &[
                &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
                &[8.0, 9.0],
                &[10.0, 11.0],
                &[1.0, 5.0, 9.0, 13.0],
            ],
        ),
        Case::new(
            "a window of 4 has the row itself and three before it",
            &attend_text(1, 1, 10, 10, " window=4"),
            // Position 9 of the cache is written by the call.
            attend_args(&[0.0; 10], (&[0.0; 10], &unit(10, 9)), unit_cache(10), 9),
            &[&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25]],
        )
        .tolerance(1e-6),
        Case::new(
            "a row with no key gives zeros",
            &attend_text(1, 1, 2, 3, " window=0"),
            attend_args(&[1.0, 2.0], (&[3.0, 4.0], &[5.0, 6.0]), full_cache(6, 7.0, 8.0), 1),
            &[&[0.0, 0.0]],
        ),
        Case::new(
            "a row with one key gives its value",
            &attend_text(1, 1, 2, 3, ""),
            attend_args(&[1.0, 2.0], (&[3.0, 4.0], &[5.0, 6.0]), full_cache(6, 7.0, 8.0), 0),
            &[&[5.0, 6.0]],
        ),
        Case::new(
            "a cap does not let later keys in",
            &attend_text(1, 1, 2, 2, " softcap=1.0"),
            attend_args(&[10.0, 0.0], (&[1.0, 0.0], &[1.0, 0.0]), later_key(), 0),
            &[&[1.0, 0.0]],
        ),
    ];
    for (cap, first) in [(1.0f64, 0.0), (5.0, 0.0), (5.0, 2.0)] {
        // Scores of 10 and `first`, capped, with the values [0, 1] and [1, 0].
        let capped = |score: f64| cap * (score / cap).tanh();
        let weight = 1.0 / (1.0 + (capped(first) - capped(10.0)).exp());
        let cache = Datum::Cache {
            keys: vec![first / 10.0, 0.0, 9.0, 9.0],
            values: vec![1.0, 0.0, 9.0, 9.0],
        };
        cases.push(
            Case::new(
                format!("scores 10 and {first} with a cap of {cap}"),
                &attend_text(1, 1, 2, 2, &format!(" softcap={cap:?}")),
                attend_args(&[10.0, 0.0], (&[1.0, 0.0], &[0.0, 1.0]), cache, 1),
                &[&[1.0 - weight, weight]],
            )
            .tolerance(2e-5),
        );
    }
    for (h, kv) in [(28, 4), (32, 8), (12, 12), (8, 1)] {
        cases.push(grouped_heads(h, kv));
    }
    cases.extend([80, 96, 192].map(mean_of_values));
    cases.extend(empty_and_single_calls());
    cases
}

/// Rotates the numbers 1, 2, … of one head.
fn rope(pairing: &str, head_dim: usize, rotary: usize, position: i32, expected: &[f64]) -> Case {
    Case::new(
        format!("{pairing} rotates {rotary} of {head_dim} elements"),
        &format!(
            "block b
             arg %0 x input f32[1, 1, {head_dim}]
             arg %1 pos input index[1]
             %2 = rope %0 %1 pairing={pairing} base=10000.0 rotary={rotary} : f32[1, 1, {head_dim}]
             return %2"
        ),
        vec![
            Datum::Tensor((1..=head_dim).map(|x| x as f64).collect()),
            Datum::Index { positions: vec![position], sequences: vec![0] },
        ],
        &[expected],
    )
    .tolerance(1e-6)
}

/// One row that is appended and attends, with a scale of 1 and further attributes.
fn attend_text(h: usize, kv: usize, hd: usize, capacity: usize, attributes: &str) -> String {
    format!(
        "block b
         arg %0 q input f32[1, {h}, {hd}]
         arg %1 k input f32[1, {kv}, {hd}]
         arg %2 v input f32[1, {kv}, {hd}]
         arg %3 cache cache cache f32[1, {kv}, {hd}, {capacity}]
         arg %4 pos input index[1]
         %5 = append %3 %1 %2 %4 : cache f32[1, {kv}, {hd}, {capacity}]
         %6 = attend %0 %5 %4 scale=1.0{attributes} : f32[1, {h}, {hd}]
         return %6"
    )
}

fn attend_args(q: &[f64], (k, v): (&[f64], &[f64]), cache: Datum, position: i32) -> Vec<Datum> {
    let index = Datum::Index { positions: vec![position], sequences: vec![0] };
    vec![tensor(q), tensor(k), tensor(v), cache, index]
}

fn unit(n: usize, at: usize) -> Vec<f64> {
    (0..n).map(|i| if i == at { 1.0 } else { 0.0 }).collect()
}

/// Keys of zero, and a unit vector as the value of each position but the last.
fn unit_cache(n: usize) -> Datum {
    let values = (0..n - 1).flat_map(|at| unit(n, at)).chain(vec![77.0; n]).collect();
    Datum::Cache { keys: vec![0.0; n * n], values }
}

fn full_cache(n: usize, key: f64, value: f64) -> Datum {
    Datum::Cache { keys: vec![key; n], values: vec![value; n] }
}

/// Position 1 holds a key as good as that of position 0, with the value [0, 1].
fn later_key() -> Datum {
    Datum::Cache { keys: vec![0.0, 0.0, 1.0, 0.0], values: vec![0.0, 0.0, 0.0, 1.0] }
}

/// Equal scores, and values of key head i that are all i.
fn grouped_heads(h: usize, kv: usize) -> Case {
    let (hd, capacity) = (4, 3);
    let of_heads = |elements: usize| {
        (0..kv).flat_map(|head| vec![head as f64; elements]).collect::<Vec<f64>>()
    };
    let values = of_heads(capacity * hd);
    let cache = Datum::Cache { keys: vec![0.5; values.len()], values };
    let expected: Vec<f64> = (0..h).flat_map(|head| vec![(head * kv / h) as f64; hd]).collect();
    Case::new(
        format!("{h} query heads share {kv} key heads"),
        &attend_text(h, kv, hd, capacity, ""),
        attend_args(&vec![1.0; h * hd], (&vec![0.5; kv * hd], &of_heads(hd)), cache, 2),
        &[&expected],
    )
    .tolerance(1e-6)
}

/// Equal scores of values 1, 2, 3 and 6: the mean is 3.
fn mean_of_values(hd: usize) -> Case {
    let values = [1.0, 2.0, 3.0, 99.0, 99.0].iter().flat_map(|&v| vec![v; hd]).collect();
    let cache = Datum::Cache { keys: vec![0.25; 5 * hd], values };
    Case::new(
        format!("attention with heads of {hd}"),
        &attend_text(2, 1, hd, 5, ""),
        attend_args(&vec![0.125; 2 * hd], (&vec![0.25; hd], &vec![6.0; hd]), cache, 3),
        &[&vec![3.0; 2 * hd]],
    )
    .tolerance(1e-6)
}

/// A block with an operation of every kind, on no row and on one.
fn empty_and_single_calls() -> [Case; 2] {
    let text = "block b
                batch B 1..=4
                arg %0 tokens input i32[B<=4]
                arg %1 table weight f32{3, 4}
                arg %2 w weight f32[4]
                arg %3 square weight f32{4, 4}
                arg %4 cache cache cache f32[B<=4, 2, 2, 3]
                arg %5 pos input index[B<=4]
                %6 = embed %0 %1 : f32[B<=4, 4]
                %7 = rms_norm %6 %2 eps=0.0 : f32[B<=4, 4]
                %8 = linear %7 %3 : f32[B<=4, 4]
                %9 = reshape %8 shape=[B<=4, 2, 2] : f32[B<=4, 2, 2]
                %10 = rope %9 %5 pairing=HalfSplit base=100.0 rotary=2 : f32[B<=4, 2, 2]
                %11 = append %4 %10 %9 %5 : cache f32[B<=4, 2, 2, 3]
                %12 = attend %10 %11 %5 scale=1.0 : f32[B<=4, 2, 2]
                %13 = reshape %12 shape=[B<=4, 4] : f32[B<=4, 4]
                %14 = slice %13 start=1 len=3 : f32[B<=4, 3]
                %15 = layer_norm %6 %2 %2 eps=0.0 : f32[B<=4, 4]
                %16 = softmax %15 : f32[B<=4, 4]
                %17 = row_sum %16 : f32[B<=4, 1]
                %18 = silu %13 : f32[B<=4, 4]
                %19 = to %14 dtype=f16 : f16[B<=4, 3]
                %20 = argmax %13 : i32[B<=4]
                return %13 %14 %17 %18 %19 %20";
    let args = |tokens: &[i32]| {
        vec![
            Datum::Tokens(tokens.to_vec()),
            // Row 2 has a mean square of 1, and a mean of 0.
            dense(&format::F32, 3, 4, |n, k| match n {
                2 => [1.0, -1.0, 1.0, -1.0][k],
                _ => 5.0,
            }),
            filled(4, 1.0),
            // Reverses the row and scales it by 1, 2, 3 and 4.
            dense(&format::F32, 4, 4, |n, k| if n + k == 3 { n as f32 + 1.0 } else { 0.0 }),
            full_cache(4 * 2 * 3 * 2, 0.5, 9.0),
            Datum::Index { positions: vec![0; tokens.len()], sequences: vec![3; tokens.len()] },
        ]
    };
    // The only key is the row's own, so that its value comes back.
    let y = [-1.0f64, 2.0, -3.0, 4.0];
    let silu = y.map(|y| y / (1.0 + (-y).exp()));
    [
        Case::new("no rows", text, args(&[]), &[&[] as &[f64]; 6]).rows(0),
        Case::new("one row", text, args(&[2]), &[&y, &y[1..], &[1.0], &silu, &y[1..], &[3.0]])
            .tolerance(1e-6),
    ]
}
