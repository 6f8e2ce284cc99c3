//! Random graphs and arguments, the same for the same seed, and smaller graphs with the same fault:
//! support for tests, of this crate and of back ends.

mod args;
mod graph;
mod shrink;

pub use args::{random_args, random_weight};
pub use graph::{CURVE4, GraphOptions, random_graph};
pub use shrink::{MAX_SHRINK_CALLS, shrink};

/// A splitmix64 generator: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose numbers depend on `seed` alone.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        // The bias is below n / 2^64.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// True in `percent` of 100 calls.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A number between -1 and 1 that is not 0, and exact in `f32`.
    pub fn signed(&mut self) -> f64 {
        // 2^24 odd multiples of 2^-24.
        let odd = 2 * self.below(1 << 23) + 1;
        (odd as f64 - f64::from(1 << 23)) / f64::from(1 << 23)
    }

    /// One of the list, which is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
