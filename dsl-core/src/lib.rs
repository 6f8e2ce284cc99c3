//! Fuseline's core.

pub mod dtype;
pub mod format;
