//! Pointwise work and row reductions on a linear's operand are done once by each block, which keeps the operand's K values a row in shared memory.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "linear_prologue",
    doc: "Pointwise work and row reductions on a linear's operand are done once by each block, which keeps the operand's K values a row in shared memory.",
    matches: |producer, consumer| {
        matches!(
            (producer, consumer),
            (Template::Pointwise | Template::Rows(_), Template::Linear(_))
        )
    },
    gain_ns: time_saved_ns,
};
