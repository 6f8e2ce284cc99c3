//! Fuseline's host API, the same for every back end: devices, tensors, packed weights, caches,
//! and blocks that are called with them. Programs use it through the crate `fuseline`, and the
//! types that `#[decode]` writes.
//!
//! - [`device`], [`tensor`], [`weight`], [`cache`]: what lies where.
//! - [`element`]: element types, and weight formats as types.
//! - [`source`]: where weights come from.
//! - [`block`], [`args`]: what expansions call.

pub mod args;
pub mod block;
pub mod cache;
pub mod device;
pub mod element;
pub mod error;
mod interop;
pub mod source;
pub mod tensor;
pub mod weight;
