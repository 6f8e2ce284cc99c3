//! Pointwise operations, one after the other, are done in registers.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "pointwise_chain",
    doc: "Pointwise operations, one after the other, are done in registers.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Pointwise, Template::Pointwise))
    },
    gain_ns: time_saved_ns,
};
