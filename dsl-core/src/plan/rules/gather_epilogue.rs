//! Pointwise work on the rows of a table is done as they are gathered.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "gather_epilogue",
    doc: "Pointwise work on the rows of a table is done as they are gathered.",
    matches: |producer, consumer| {
        matches!(
            (producer, consumer),
            (Template::Gather { .. }, Template::Pointwise)
                | (Template::Pointwise, Template::Gather { .. })
        )
    },
    gain_ns: time_saved_ns,
};
