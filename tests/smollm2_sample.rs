//! How the example chooses tokens.

#[path = "../examples/smollm2/sample.rs"]
mod sample;

use sample::Sampler;

#[test]
fn greedy_takes_the_first_of_the_largest() {
    let mut greedy = Sampler::Greedy;
    assert_eq!(greedy.next(&[1.0, 3.0, -2.0, 3.0]), Some(1));
    assert_eq!(greedy.next(&[f32::NAN, -5.0, f32::NAN, -4.0]), Some(3));
    assert_eq!(greedy.next(&[f32::NEG_INFINITY; 2]), Some(0));
    assert_eq!(greedy.next(&[f32::NAN]), None);
    assert_eq!(greedy.next(&[]), None);
}

/// Logits of log 1, log 2, log 5 at temperature 1: probabilities 1/8, 2/8, 5/8. With
/// 40,000 draws the deviation of a share is below 0.0025; the bound is five of these.
#[test]
fn shares_follow_the_softmax() {
    for seed in [1, 2, 3] {
        let mut sampler = Sampler::random(1.0, Some(seed));
        let logits = [0.0, 2f32.ln(), f32::NAN, 5f32.ln(), f32::NEG_INFINITY];
        let mut counts = [0u32; 5];
        for _ in 0..40_000 {
            counts[sampler.next(&logits).unwrap() as usize] += 1;
        }
        let expected = [0.125, 0.25, 0.0, 0.625, 0.0];
        for (count, expected) in counts.into_iter().zip(expected) {
            let share = f64::from(count) / 40_000.0;
            assert!((share - expected).abs() < 0.0125, "seed {seed}: {counts:?}");
        }
        assert_eq!((counts[2], counts[4]), (0, 0));
    }
}

/// At half the temperature the logits count twice: 1 : 4 : 25.
#[test]
fn temperature_divides_the_logits() {
    let mut sampler = Sampler::random(0.5, Some(7));
    let logits = [0.0, 2f32.ln(), 5f32.ln()];
    let most = (0..40_000).filter(|_| sampler.next(&logits) == Some(2)).count();
    assert!((most as f64 / 40_000.0 - 25.0 / 30.0).abs() < 0.0125, "{most}");
}

#[test]
fn a_seed_fixes_the_draws() {
    let logits: Vec<f32> = (0..100u8).map(|i| f32::from(i % 17) / 4.0).collect();
    let draws = |seed| {
        let mut sampler = Sampler::random(0.8, seed);
        (0..64).map(|_| sampler.next(&logits)).collect::<Vec<_>>()
    };
    assert_eq!(draws(Some(5)), draws(Some(5)));
    assert_ne!(draws(Some(5)), draws(Some(6)));
    assert_ne!(draws(None), draws(None));
}

#[test]
fn extreme_logits_choose_the_likeliest() {
    let mut sampler = Sampler::random(1e-300, Some(1));
    assert_eq!(sampler.next(&[1.0, 2.0, 2.0 - 1e-6]), Some(1));
    assert_eq!(sampler.next(&[0.0, f32::INFINITY, f32::INFINITY]), Some(1));
    assert_eq!(sampler.next(&[f32::NEG_INFINITY; 3]), Some(0));
    assert_eq!(sampler.next(&[f32::MAX, -f32::MAX]), Some(0));
    assert_eq!(sampler.next(&[f32::NAN; 3]), None);
}
