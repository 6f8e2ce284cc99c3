//! Pointwise work on an attention's results is done by the block that holds them.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "attend_epilogue",
    doc: "Pointwise work on an attention's results is done by the block that holds them.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Attend { .. }, Template::Pointwise))
    },
    gain_ns: time_saved_ns,
};
