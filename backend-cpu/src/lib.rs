//! Placeholder.

pub mod dot;
