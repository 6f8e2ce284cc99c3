//! Choosing the next token from the logits.

/// How the next token is chosen.
pub enum Sampler {
    /// The likeliest token, the first one of several.
    Greedy,
    /// A random token, each as likely as the softmax of `logits / temperature` says.
    Random {
        /// Above 0: lower is more predictable.
        temperature: f64,
        /// Where the draws come from.
        rng: fastrand::Rng,
    },
}

impl Sampler {
    /// Draws with a seed, or differently in every run without one.
    pub fn random(temperature: f64, seed: Option<u64>) -> Sampler {
        let rng = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Sampler::Random { temperature, rng }
    }

    /// The next token. A logit that is NaN is never chosen; `None` if there is no other.
    pub fn next(&mut self, logits: &[f32]) -> Option<u32> {
        let likeliest = argmax(logits)?;
        match self {
            Sampler::Greedy => Some(likeliest),
            Sampler::Random { temperature, rng } => {
                let max = f64::from(logits[likeliest as usize]);
                Some(draw(logits, max, *temperature, rng).unwrap_or(likeliest))
            }
        }
    }
}

/// The first index of the largest number that is not NaN.
fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (id, &logit) in (0..).zip(logits) {
        if !logit.is_nan() && best.is_none_or(|(_, max)| logit > max) {
            best = Some((id, logit));
        }
    }
    best.map(|(id, _)| id)
}

/// Draws an index; `None` if an infinite maximum leaves no probabilities to draw from.
fn draw(logits: &[f32], max: f64, temperature: f64, rng: &mut fastrand::Rng) -> Option<u32> {
    if max.is_infinite() {
        return None;
    }
    let weight = |logit: f32| match logit.is_nan() {
        true => 0.0,
        false => ((f64::from(logit) - max) / temperature).exp(),
    };
    // At least 1: the weight of the maximum.
    let total: f64 = logits.iter().copied().map(weight).sum();
    let mut rest = rng.f64() * total;
    for (id, &logit) in (0..).zip(logits) {
        rest -= weight(logit);
        if rest < 0.0 {
            return Some(id);
        }
    }
    None // only rounding leads here
}
