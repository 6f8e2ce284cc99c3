//! Pointwise work on a linear's results, rotation and cache writes included, is done by the threads that hold them.

use super::{Rule, time_saved_ns};
use crate::plan::Template;

/// See the [module](self).
pub static RULE: Rule = Rule {
    name: "linear_epilogue",
    doc: "Pointwise work on a linear's results, rotation and cache writes included, is done by the threads that hold them.",
    matches: |producer, consumer| {
        matches!((producer, consumer), (Template::Linear(_), Template::Pointwise))
    },
    gain_ns: time_saved_ns,
};
