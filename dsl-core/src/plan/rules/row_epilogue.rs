//! Pointwise work on the results of a row reduction is done by the block that holds the row.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "row_epilogue",
    doc: "Pointwise work on the results of a row reduction is done by the block that holds the row.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Rows(_), Template::Pointwise))
    },
    gain_ns: time_saved_ns,
};
