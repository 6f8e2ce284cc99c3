//! Loops compiled twice: with vector instructions and fused multiply-add, and without.

/// A loop. Implementations of `run` are `#[inline(always)]`, so that they are compiled for the
/// instructions of the function that they are inlined into.
pub(super) trait Loop {
    type Output;

    fn run(self) -> Self::Output;
}

/// Runs the loop with the best instructions that it was compiled for. Results are the same bits:
/// nothing is contracted, and `mul_add` rounds once either way.
pub(super) fn run<L: Loop>(body: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has the features, as was just asked.
        return unsafe { with_fma(body) };
    }
    body.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
fn with_fma<L: Loop>(body: L) -> L::Output {
    body.run()
}
