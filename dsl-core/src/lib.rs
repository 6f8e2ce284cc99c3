//! Fuseline's core.

pub mod diag;
pub mod dtype;
pub mod format;
pub mod ir;
pub mod math;
