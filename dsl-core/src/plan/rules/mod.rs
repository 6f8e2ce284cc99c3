//! The rules of fusion, as data. A rule says which kernels it brings together and what that is
//! worth; whether the result is legal is asked of one place for all of them
//! (`plan/structure.rs`).

mod attend_epilogue;
mod attend_prologue;
mod gather_epilogue;
mod linear_epilogue;
mod linear_prologue;
mod pointwise_chain;
mod row_chain;
mod row_epilogue;
mod row_prologue;
pub mod sibling_linear;

use super::cost::Cost;
use super::structure::Template;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// As the decision log prints it.
    pub name: &'static str,
    /// One sentence: before and after.
    pub doc: &'static str,
    /// Whether it joins a producer and a consumer with these templates.
    pub matches: fn(producer: &Template, consumer: &Template) -> bool,
    /// Time that it saves, from the costs of the kernels before and of the one after.
    pub gain_ns: fn(before: &[&Cost], after: &Cost) -> f64,
}

/// Every rule on edges, in the order that breaks ties.
pub static RULES: &[&Rule] = &[
    &linear_epilogue::RULE,
    &linear_prologue::RULE,
    &attend_epilogue::RULE,
    &attend_prologue::RULE,
    &row_epilogue::RULE,
    &row_prologue::RULE,
    &row_chain::RULE,
    &gather_epilogue::RULE,
    &pointwise_chain::RULE,
];

/// The time of the kernels before less that of the one after.
fn time_saved_ns(before: &[&Cost], after: &Cost) -> f64 {
    before.iter().map(|cost| cost.ns).sum::<f64>() - after.ns
}
