//! Reductions of the same rows, one after the other, are done by the block that holds the row.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "row_chain",
    doc: "Reductions of the same rows, one after the other, are done by the block that holds the row.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Rows(_), Template::Rows(_)))
    },
    gain_ns: time_saved_ns,
};
