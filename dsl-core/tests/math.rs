//! Accuracy of the pointwise functions against `f64`, their special values, and rotary angles
//! against values computed to 60 digits.

use fuseline_core::math;

/// Every `STRIDE`-th bit pattern of an `f32`: all exponents, both signs, subnormals, NaNs. Prime,
/// so that the significands differ from binade to binade.
const STRIDE: usize = 4099;

fn sweep() -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(STRIDE).map(f32::from_bits)
}

/// The distance of `got` from `want` in units of the last place of `want` as an `f32`.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || rounded.is_infinite() || got.is_infinite() {
        let same = got == rounded || (got.is_nan() && rounded.is_nan());
        // The neighbour of an infinity is one unit away.
        return if same {
            0.0
        } else if got.abs() == f32::MAX || rounded.abs() == f32::MAX {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let magnitude = rounded.abs().max(f32::MIN_POSITIVE);
    let exponent = (magnitude.to_bits() >> 23) as i32 - 127;
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

/// Prints and checks the largest error over the sweep, among inputs that `domain` admits.
fn check(
    name: &str,
    bound_ulps: f64,
    domain: impl Fn(f32) -> bool,
    function: impl Fn(f32) -> f32,
    reference: impl Fn(f64) -> f64,
) {
    let (mut worst, mut at) = (0.0, 0.0);
    let fine = (0..400_000).map(|i| (i - 200_000) as f32 * 1.0e-4);
    for x in sweep().chain(fine).filter(|&x| domain(x)) {
        let got = function(x);
        assert_eq!(got.is_nan(), reference(f64::from(x)).is_nan(), "{name}({x:e}) = {got:e}");
        let error = ulps(got, reference(f64::from(x)));
        if error.is_nan() || error > worst {
            (worst, at) = (error, x);
        }
    }
    println!("{name}: {worst:.3} ulp at {at:e}");
    assert!(worst <= bound_ulps, "{name}({at:e}): {worst} ulp, expected at most {bound_ulps}");
}

fn any(_: f32) -> bool {
    true
}

#[test]
fn errors_stay_below_the_documented_bounds() {
    check("exp", 1.1, any, math::exp, f64::exp);
    check("log", 1.0, any, math::log, f64::ln);
    check("tanh", 2.0, any, math::tanh, f64::tanh);
    check("erf", 2.0, any, math::erf, libm::erf);
    check("sqrt", 0.5, any, math::sqrt, f64::sqrt);
    check("recip", 0.5, any, math::recip, |x| 1.0 / x);
    check("rsqrt", 1.5, any, math::rsqrt, |x| 1.0 / x.sqrt());
    // Exact references: no cancellation in 1 + e^-x.
    check("sigmoid", 2.5, any, math::sigmoid, |x| 1.0 / (1.0 + (-x).exp()));
    // Below -87 the exponential is subnormal and has fewer bits.
    check("silu", 3.5, |x| x > -87.0, math::silu, |x| x / (1.0 + (-x).exp()));
    check(
        "softcap",
        4.0,
        |x| x.abs() > 1e-36,
        |x| math::softcap(x, 30.0),
        |x| 30.0 * (x / 30.0).tanh(),
    );
}

/// GELU's argument is rounded before an exponential, so its error grows with x² where it is small.
#[test]
fn gelu_errors_stay_below_their_bounds() {
    let c = (2.0 / std::f64::consts::PI).sqrt();
    // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), the same function without cancellation.
    let gelu_tanh = |x: f64| x / (1.0 + (-2.0 * c * (x + 0.044715 * x * x * x)).exp());
    let gelu_erf = |x: f64| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    check("gelu_tanh", 4.0, |x| x > -0.5, math::gelu_tanh, gelu_tanh);
    check("gelu_tanh", 40.0, |x| (-5.0..=-0.5).contains(&x), math::gelu_tanh, gelu_tanh);
    check("gelu_erf", 4.0, |x| x > -0.5, math::gelu_erf, gelu_erf);
    check("gelu_erf", 60.0, |x| (-5.0..=-0.5).contains(&x), math::gelu_erf, gelu_erf);
    let mut worst = [0f64; 2];
    for x in sweep().filter(|x| x.is_finite()) {
        let wide = f64::from(x);
        let scale = 1.0 + wide.abs();
        worst[0] = worst[0].max((f64::from(math::gelu_tanh(x)) - gelu_tanh(wide)).abs() / scale);
        worst[1] = worst[1].max((f64::from(math::gelu_erf(x)) - gelu_erf(wide)).abs() / scale);
    }
    println!("gelu_tanh, gelu_erf: absolute error / (1 + |x|) {worst:?}");
    assert!(worst.iter().all(|&error| error < 1.5e-7), "{worst:?}");
}

#[test]
fn gelu_has_known_values() {
    // Computed to 12 digits.
    let cases = [
        (-5.0, -2.29179619663e-7, -1.4332578594e-6),
        (-2.0, -0.0454023059122, -0.0455002638964),
        (-1.0, -0.158808009392, -0.158655253931),
        (0.5, 0.345714009825, 0.345731230637),
        (3.0, 2.99636260792, 2.99595030591),
    ];
    for (x, tanh_form, erf_form) in cases {
        for (got, want) in [(math::gelu_tanh(x), tanh_form), (math::gelu_erf(x), erf_form)] {
            let error = (f64::from(got) - want).abs() / f64::abs(want);
            assert!(error < 3e-6, "at {x}: {got}, expected {want}");
        }
    }
    for gelu in [math::gelu_tanh, math::gelu_erf, math::silu] {
        assert_eq!(gelu(40.0), 40.0);
        assert_eq!(gelu(f32::MAX), f32::MAX);
        assert_eq!(gelu(f32::INFINITY), f32::INFINITY);
        assert_eq!(gelu(-200.0), 0.0);
        assert_eq!(gelu(f32::MIN), 0.0);
        assert_eq!(gelu(f32::NEG_INFINITY), 0.0);
    }
    assert_eq!((math::gelu_tanh(11.0), math::gelu_tanh(12.0)), (11.0, 12.0));
}

#[test]
fn special_values_are_exact() {
    let inf = f32::INFINITY;
    assert_eq!([math::exp(0.0), math::exp(inf), math::exp(-inf)], [1.0, inf, 0.0]);
    assert_eq!([math::exp(88.8), math::exp(-104.0)], [inf, 0.0]);
    assert_eq!(math::exp(-103.9), f32::from_bits(1), "the least subnormal");
    assert_eq!(
        [math::log(0.0), math::log(-0.0), math::log(1.0), math::log(inf)],
        [-inf, -inf, 0.0, inf]
    );
    assert!([-1.0, -inf, -f32::from_bits(1)].iter().all(|&x| math::log(x).is_nan()));
    for odd in [math::tanh, math::erf] {
        assert_eq!([odd(40.0), odd(-40.0), odd(inf), odd(f32::MIN)], [1.0, -1.0, 1.0, -1.0]);
        assert_eq!(odd(-0.0).to_bits(), (-0f32).to_bits());
    }
    assert_eq!([math::sigmoid(0.0), math::sigmoid(inf), math::sigmoid(-inf)], [0.5, 1.0, 0.0]);
    assert_eq!([math::relu(-1.0), math::relu(2.0), math::relu(inf)], [0.0, 2.0, inf]);
    assert_eq!(math::relu(-0.0).to_bits(), 0);
    let halves = [0.5, 1.5, 2.5, -0.5, -1.5, 8388607.5, 8388609.0, 0.49999997];
    assert_eq!(halves.map(math::round), [0.0, 2.0, 2.0, -0.0, -2.0, 8388608.0, 8388609.0, 0.0]);
    assert_eq!(math::round(-0.3).to_bits(), (-0f32).to_bits());
    assert_eq!(math::softcap(1e30, 50.0), 50.0);
    assert_eq!([math::clamp(5.0, -1.0, 1.0), math::clamp(-5.0, -1.0, 1.0)], [1.0, -1.0]);
    assert_eq!([math::clamp(0.25, -1.0, 1.0), math::clamp(0.0, 3.0, 1.0)], [0.25, 1.0]);
}

#[test]
fn nan_in_gives_nan_out() {
    let unary = [
        math::exp,
        math::log,
        math::tanh,
        math::erf,
        math::sigmoid,
        math::silu,
        math::gelu_tanh,
        math::gelu_erf,
        math::recip,
        math::sqrt,
        math::rsqrt,
        math::relu,
        math::round,
    ];
    for bits in [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff, 0x7fff_ffff] {
        let nan = f32::from_bits(bits);
        for (index, function) in unary.iter().enumerate() {
            assert!(function(nan).is_nan(), "function {index} of {bits:#x}");
        }
        for x in [0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, nan] {
            assert!(math::min(nan, x).is_nan() && math::min(x, nan).is_nan());
            assert!(math::max(nan, x).is_nan() && math::max(x, nan).is_nan());
            assert!(math::softcap(nan, x).is_nan() && math::softcap(x, nan).is_nan());
            assert!(math::clamp(nan, -1.0, x).is_nan());
            assert!(math::clamp(x, nan, 1.0).is_nan() && math::clamp(x, 0.0, nan).is_nan());
        }
    }
}

#[test]
fn min_and_max_do_not_depend_on_order() {
    let ascending = [f32::NEG_INFINITY, -2.5, -1e-40, -0.0, 0.0, 1e-40, 2.5, f32::INFINITY];
    for (i, &a) in ascending.iter().enumerate() {
        for (j, &b) in ascending.iter().enumerate() {
            assert_eq!(math::min(a, b).to_bits(), ascending[i.min(j)].to_bits(), "{a}, {b}");
            assert_eq!(math::max(a, b).to_bits(), ascending[i.max(j)].to_bits(), "{a}, {b}");
        }
    }
}

#[test]
fn frequencies_are_right_to_one_unit() {
    // base, rotary, pair, round(frac(base^(-2 pair / rotary) / 2π) · 2^64) computed to 60 digits.
    let cases: [(f64, usize, usize, u64); 10] = [
        (10000.0, 128, 0, 0x28be60db9391054a),
        (10000.0, 128, 1, 0x234855e55644662f),
        (10000.0, 128, 63, 0x13458e2f59024),
        (100000.0, 64, 1, 0x1c6ea3140b9f22aa),
        (100000.0, 64, 7, 0x348861db6ff0ba2),
        (500000.0, 128, 5, 0xe9db1244192bf71),
        (1000000.0, 96, 47, 0x38f8c87ad43),
        (10000.0, 7, 3, 0x3e3555ce4d012),
        (10000.5, 80, 11, 0x33c80c54cb565c6),
        (0.5, 64, 3, 0x2b7aad9a1140e6a7),
    ];
    for (base, rotary, pair, want) in cases {
        let got = math::turns(base, rotary, pair);
        assert!(got.abs_diff(want) <= 1, "{base} {rotary} {pair}: {got:#x}, expected {want:#x}");
    }
}

#[test]
fn bases_without_meaning_rotate_nothing() {
    for base in [0.0, -0.0, -10000.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(math::turns(base, 64, 3), 0, "{base}");
    }
    assert_eq!(math::turns(10000.0, 0, 3), 0);
    // Out of range, but no panic.
    for base in [f64::MIN_POSITIVE, 1e-300, 1e300, f64::MAX] {
        for (rotary, pair) in [(1, 0), (1, usize::MAX), (2, 9), (usize::MAX, 1), (128, 63)] {
            let _ = math::turns(base, rotary, pair);
        }
    }
}

#[test]
fn angles_of_far_positions_are_right() {
    // Sine and cosine of `position` radians, computed to 12 digits.
    let cases = [
        (0, 0.0, 1.0),
        (1, 0.841470984808, 0.540302305868),
        (-1, -0.841470984808, 0.540302305868),
        (1000, 0.826879540532, 0.562379076291),
        (131071, -0.575241683755, -0.817983499388),
        (i32::MAX, -0.724916555145, -0.688836691878),
    ];
    let frequency = math::turns(10000.0, 128, 0);
    for (position, sin, cos) in cases {
        let got = math::sin_cos_turns(math::rope_turn(position, frequency));
        let error = (f64::from(got.0) - sin).abs().max((f64::from(got.1) - cos).abs());
        assert!(error < 1e-7, "position {position}: {got:?}, expected {sin}, {cos}");
    }
}

#[test]
fn sine_and_cosine_stay_below_their_bound() {
    let (mut worst, mut at) = (0f64, 0);
    // All the circle, and dense around its start.
    let circle = (0..1_000_000u64).map(|i| i.wrapping_mul(0x0000_10c6_f7a0_b5ed));
    let start = (0..64).flat_map(|shift| (1..200u64).map(move |i| i << shift));
    for turn in circle.chain(start) {
        // Reduced to an eighth exactly, so that the reference is right near zeros too.
        let quarter = turn.wrapping_add(1 << 61) >> 62;
        let rest = turn.wrapping_sub(quarter << 62) as i64;
        let (s, c) = (rest as f64 * (std::f64::consts::TAU / 2f64.powi(64))).sin_cos();
        let (sin, cos) = [(s, c), (c, -s), (-s, -c), (-c, s)][quarter as usize];
        let got = math::sin_cos_turns(turn);
        let error = ulps(got.0, sin).max(ulps(got.1, cos));
        if error.is_nan() || error > worst {
            (worst, at) = (error, turn);
        }
    }
    println!("sin_cos_turns: {worst:.3} ulp at {at:#x}");
    assert!(worst <= 1.5, "{at:#x}: {worst} ulp");
}

/// The functions over a slice, compiled with vector FMA instructions as the CPU back end does.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn vectorized(function: usize, values: &[f32]) -> Vec<f32> {
    fn map(values: &[f32], function: impl Fn(f32) -> f32) -> Vec<f32> {
        values.iter().map(|&x| function(x)).collect()
    }
    match function {
        0 => map(values, math::exp),
        1 => map(values, math::log),
        2 => map(values, math::tanh),
        3 => map(values, math::gelu_tanh),
        _ => map(values, math::gelu_erf),
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn vector_instructions_give_the_same_bits() {
    if !std::arch::is_x86_feature_detected!("avx2") || !std::arch::is_x86_feature_detected!("fma") {
        eprintln!("skipped: no avx2 and fma");
        return;
    }
    let values: Vec<f32> = sweep().collect();
    let scalar = [math::exp, math::log, math::tanh, math::gelu_tanh, math::gelu_erf];
    for (index, function) in scalar.iter().enumerate() {
        // SAFETY: avx2 and fma were detected above.
        let got = unsafe { vectorized(index, &values) };
        for (&x, got) in values.iter().zip(got) {
            let want = function(x);
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "function {index} of {x:e}: {got:e}, expected {want:e}");
        }
    }
}
