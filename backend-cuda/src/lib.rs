//! Fuseline's CUDA back end. With feature `emit` (all that the macro needs): CUDA source text
//! from plans. Pure, like the core: the same plan gives the same bytes.

#[cfg(feature = "emit")]
pub mod emit;
