//! Fuseline's core: what a decode block computes, how it is planned, and what its right answer
//! is. Pure: no I/O, no clock, no environment, and no hash map is iterated, so the same input
//! gives the same bytes on every machine.
//!
//! In reading order:
//!
//! - [`dtype`], [`format`](mod@format): elements, and weight formats as data.
//! - [`ir`]: the [graph](ir::Graph), its types and its text form.
//! - [`plan`]: [`compile`](plan::compile) makes a [`Plan`](plan::Plan) of a graph.
//! - [`target`]: the machines that plans are made for.
//! - [`math`]: the functions of single elements, the same on every back end.
//! - [`backend`]: what a back end is.
//! - [`diag`]: errors of a user's program, as data.

pub mod backend;
pub mod cases;
pub mod diag;
pub mod dtype;
pub mod field;
pub mod format;
pub mod ir;
pub mod math;
pub mod oracle;
pub mod plan;
pub mod random;
pub mod target;
