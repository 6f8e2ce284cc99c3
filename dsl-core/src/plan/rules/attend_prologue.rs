//! Pointwise work on queries, rotation included, is done as an attention block reads them.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "attend_prologue",
    doc: "Pointwise work on queries, rotation included, is done as an attention block reads them.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Pointwise, Template::Attend { .. }))
    },
    gain_ns: time_saved_ns,
};
