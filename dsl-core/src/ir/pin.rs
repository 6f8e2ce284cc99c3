//! Where a value lives, if the program says so and leaves the planner no choice.

use super::Op;

/// What the program demands of one value. It changes the plan, never a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The value is stored by a kernel of its own, and its users read it.
    Materialize,
    /// Every user computes the value anew where it reads it, and it is never stored.
    Inline,
}

impl Pin {
    /// Each of them.
    pub const ALL: [Pin; 2] = [Pin::Materialize, Pin::Inline];

    /// The name that programs and the text form use.
    pub fn name(self) -> &'static str {
        match self {
            Pin::Materialize => "materialize",
            Pin::Inline => "inline",
        }
    }

    /// Whether the result of an operation can have this pin.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(self, op: &Op) -> Result<(), &'static str> {
        match (self, op) {
            (Pin::Materialize, Op::Arg) => Err("an argument is in memory already"),
            (Pin::Materialize, Op::Const(_)) => Err("a number is part of the kernels that use it"),
            (Pin::Materialize, Op::Append) => Err("a cache is changed where it is"),
            (Pin::Materialize, Op::Slice { .. } | Op::Reshape { .. }) => {
                Err("a view has no memory of its own, so what it views is pinned")
            }
            (
                Pin::Materialize,
                Op::Pointwise(_)
                | Op::Cast(_)
                | Op::Reduce(_)
                | Op::Softmax
                | Op::Argmax
                | Op::RmsNorm { .. }
                | Op::LayerNorm { .. }
                | Op::Linear
                | Op::Rope { .. }
                | Op::Attend { .. }
                | Op::Embed
                | Op::Dequantize,
            )
            | (Pin::Inline, Op::Pointwise(_) | Op::Cast(_) | Op::Dequantize) => Ok(()),
            (
                Pin::Inline,
                Op::Arg
                | Op::Const(_)
                | Op::Reduce(_)
                | Op::Softmax
                | Op::Argmax
                | Op::RmsNorm { .. }
                | Op::LayerNorm { .. }
                | Op::Linear
                | Op::Slice { .. }
                | Op::Reshape { .. }
                | Op::Rope { .. }
                | Op::Append
                | Op::Attend { .. }
                | Op::Embed,
            ) => Err("only pointwise operations and casts are computed anew where they are read"),
        }
    }
}
