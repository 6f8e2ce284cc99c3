//! Vector arithmetic behind one trait, so that each inner loop is written once.
//!
//! A value of a [`Simd`] type is a token: it can be made only where the CPU has the features, and
//! a [`Kernel`] that receives one may use them. [`Level::run`] compiles a kernel for every level
//! and enters the one that the level names. Everything that a kernel calls on the way to a
//! vector instruction is `#[inline(always)]`: code that is left out of line would be compiled
//! without the features.
//!
//! The traits are `pub` inside a private module: bounds of public functions may name them, other
//! crates cannot.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use fuseline_core::format::WeightFormat;
use portable::Portable;
use std::fmt;

#[cfg(target_arch = "x86_64")]
use {avx2::Avx2, avx512::Avx512};

/// Vectors of [`Simd::LANES`] f32 numbers. Methods that read or write memory use the first
/// elements of the slice and panic if it is too short.
pub trait Simd: Copy {
    /// One vector.
    type F32: Copy;
    /// Numbers in a vector.
    const LANES: usize;

    /// Runs `kernel` in a function of its own, compiled with this type's features.
    fn enter<K: Kernel>(self, kernel: K);
    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::F32;
    /// `LANES` numbers from memory.
    fn load(self, from: &[f32]) -> Self::F32;
    /// `LANES` numbers to memory.
    fn store(self, value: Self::F32, to: &mut [f32]);
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a · b + c`, with one rounding where the CPU has such an instruction.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// The sum of all lanes, in a fixed order.
    fn sum(self, value: Self::F32) -> f32;
    /// `4 · LANES` bytes as f32.
    fn widen_f32(self, bytes: &[u8]) -> Self::F32;
    /// `2 · LANES` bytes as f16.
    fn widen_f16(self, bytes: &[u8]) -> Self::F32;
    /// `2 · LANES` bytes as bf16.
    fn widen_bf16(self, bytes: &[u8]) -> Self::F32;
    /// `LANES` unsigned bytes.
    fn widen_u8(self, bytes: &[u8]) -> Self::F32;
    /// `LANES` signed bytes.
    fn widen_i8(self, bytes: &[u8]) -> Self::F32;
    /// `LANES` bytes: the table's entries for the low nibbles, and for the high nibbles.
    fn lookup(self, table: &[f32; 16], bytes: &[u8]) -> (Self::F32, Self::F32);
}

/// A loop that can be compiled for any [`Simd`].
pub trait Kernel {
    /// Runs the loop. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S);
}

/// Which vector instructions the loops use. A level exists only if the CPU has its instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Level(Isa);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Isa {
    /// Plain Rust, vectors of 4: for groups that no wider unit divides.
    Portable4(Portable<4>),
    /// Plain Rust, vectors of 8.
    Portable8(Portable<8>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Level {
    /// Plain Rust, which runs everywhere.
    pub const PORTABLE: Level = Level(Isa::Portable8(Portable));

    /// The levels that this CPU has, slowest first.
    pub fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(Avx2::detect().map(|token| Level(Isa::Avx2(token))));
            levels.extend(Avx512::detect().map(|token| Level(Isa::Avx512(token))));
        }
        levels
    }

    /// The fastest level that this CPU has.
    pub fn best() -> Level {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = Avx512::detect() {
            return Level(Isa::Avx512(token));
        } else if let Some(token) = Avx2::detect() {
            return Level(Isa::Avx2(token));
        }
        Level::PORTABLE
    }

    /// The level's name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Portable4(_) => "portable4",
            Isa::Portable8(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
        }
    }

    /// This level, or the widest below it whose unit divides the format's groups.
    pub(super) fn for_format(self, format: &WeightFormat) -> Level {
        let size = format.group.map_or(0, |group| group.size);
        let narrower = match self.0 {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(token) => Level(Isa::Avx2(token.narrower())),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => Level(Isa::Portable4(Portable)),
            Isa::Portable8(_) | Isa::Portable4(_) => Level(Isa::Portable4(Portable)),
        };
        if size.is_multiple_of(self.unit()) || narrower == self {
            return self;
        }
        narrower.for_format(format)
    }

    /// Elements along K that a loop takes at a time: two vectors.
    pub(super) fn unit(self) -> usize {
        match self.0 {
            Isa::Portable4(_) => 8,
            Isa::Portable8(_) => 16,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => 2 * Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => 2 * Avx512::LANES,
        }
    }

    /// Runs `kernel` with this level's instructions.
    pub(super) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            Isa::Portable4(token) => token.enter(kernel),
            Isa::Portable8(token) => token.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(token) => token.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(token) => token.enter(kernel),
        }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Level({})", self.name())
    }
}
