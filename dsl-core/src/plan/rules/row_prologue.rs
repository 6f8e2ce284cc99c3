//! Pointwise work on the rows of a reduction is done as they are read.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "row_prologue",
    doc: "Pointwise work on the rows of a reduction is done as they are read.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Pointwise, Template::Rows(_)))
    },
    gain_ns: time_saved_ns,
};
