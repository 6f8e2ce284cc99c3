//! What PyTorch's compiler would do with a block: which values it would write to memory, by its
//! rule of counted operations. For comparison only; no plan of ours asks it.
//!
//! TorchInductor keeps a pointwise expression inside its consumers until a count is exceeded, and
//! writes the value out then ([`Rules`] has the thresholds). With autotuning it turns a matrix
//! product with one row into a multiplication and a sum, so that the whole product is such an
//! expression: where each operand's count is below the threshold and both together are above it,
//! the `N · K` products are written to memory and read back.
//!
//! - `expression` counts as it counts: every distinct load, number, cast and operation is one.
//! - [`decide`] walks a graph and says what would be written, and why.
//! - [`plan`](plan()) makes it a plan with pins, so that our back ends can run it and time it.
//! - [`compare`] sets it beside a plan of ours.
//!
//! The same expression is read as PyTorch types it: the result of an operation on `bf16` is
//! `bf16`, functions such as SiLU are widened inside, and a weight is decoded to its scale's type.

mod compare;
mod decide;
mod expression;
mod rewrite;

pub use compare::{Comparison, Written, compare};
pub use decide::{Cause, Decided, Product, Rules, Stored, decide};
pub use expression::{Counts, Decode};
pub use rewrite::{FieldError, plan};
