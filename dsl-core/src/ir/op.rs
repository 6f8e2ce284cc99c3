//! The operations of a graph.

use super::dim::{Dim, Shape};
use crate::dtype::DType;
use crate::math;

/// One operation. Operands are listed in the order of [`super::Value::inputs`].
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// An argument of the block. No operands.
    Arg,
    /// A number. No operands.
    Const(f32),
    /// Element by element, operands broadcast from the right.
    Pointwise(Pointwise),
    /// Rounded to a type. `[x]`
    Cast(DType),
    /// One number a row, over the last axis, which stays with length 1. `[x]`
    Reduce(Reduction),
    /// `exp(x - max) / sum` over the last axis. `[x]`
    Softmax,
    /// The first index of the largest element of each row. `[x]`
    Argmax,
    /// `x / sqrt(mean(x²) + eps) · weight` over the last axis. `[x, weight]`
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean) / sqrt(var + eps) · weight + bias` over the last axis. `[x, weight, bias]`
    LayerNorm {
        /// Added to the variance.
        eps: f32,
    },
    /// `y[.., n] = Σ_k x[.., k] · w[n, k]`. `[x, weight]`
    Linear,
    /// Elements `start .. start + len` of the last axis. `[x]`
    Slice {
        /// The first element.
        start: usize,
        /// How many.
        len: Dim,
    },
    /// The same elements in row-major order under another shape. `[x]`
    Reshape {
        /// The new shape.
        shape: Shape,
    },
    /// Rotary position embedding of the last axis. `[x, pos]`
    Rope {
        /// Which elements rotate together.
        pairing: Pairing,
        /// Pair i turns by `base^(-2i / rotary)` radians a position.
        base: f64,
        /// How many elements rotate, from the first; the others stay.
        rotary: usize,
    },
    /// Writes a row of keys and values at each row's position. `[cache, k, v, pos]`
    Append,
    /// Causal attention of each row to the positions of its sequence up to its own, grouped
    /// query heads sharing a key head. `[q, cache, pos]`, then sinks if there are any.
    Attend {
        /// Multiplies `q · k`.
        scale: f32,
        /// Only the last so many positions, the row's own included.
        window: Option<usize>,
        /// Scores become `cap · tanh(score / cap)`, before masking.
        softcap: Option<f32>,
        /// Whether operand 3 is one more score a query head, with no value.
        sinks: bool,
        /// What q and the probabilities are rounded to.
        operand: DType,
    },
    /// Row `tokens[i]` of a table. `[tokens, weight]`
    Embed,
    /// Every element of a weight as a number: `f32[N, K]`. `[weight]`
    Dequantize,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Elements `2i` and `2i + 1`.
    Interleaved,
    /// Elements `i` and `i + rotary / 2`.
    HalfSplit,
}

impl Pairing {
    /// The name that programs and the text form use.
    pub fn name(self) -> &'static str {
        match self {
            Pairing::Interleaved => "Interleaved",
            Pairing::HalfSplit => "HalfSplit",
        }
    }

    /// Both, for messages and parsers.
    pub const ALL: [Pairing; 2] = [Pairing::Interleaved, Pairing::HalfSplit];
}

/// One number a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum over the count.
    Mean,
    /// The largest element; NaN if there is one.
    Max,
}

impl Reduction {
    /// Each of them.
    pub const ALL: [Reduction; 3] = [Reduction::Sum, Reduction::Mean, Reduction::Max];

    /// The name that programs and the text form use.
    pub fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Max => "max",
        }
    }
}

macro_rules! pointwise_ops {
    ($operands:ident; $($name:ident $text:literal $arity:literal $instructions:literal $doc:literal $eval:expr;)*) => {
        /// Operations on single elements, all in `f32`. A comparison gives 1 or 0, and
        /// [`Select`](Pointwise::Select) takes any number but 0 as true.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Pointwise {
            $(#[doc = $doc] $name,)*
        }

        impl Pointwise {
            /// Each of them.
            pub const ALL: &[Pointwise] = &[$(Pointwise::$name,)*];

            /// The name that programs and the text form use.
            pub fn name(self) -> &'static str {
                match self { $(Pointwise::$name => $text,)* }
            }

            /// How many operands.
            pub fn arity(self) -> usize {
                match self { $(Pointwise::$name => $arity,)* }
            }

            /// What it computes.
            pub fn doc(self) -> &'static str {
                match self { $(Pointwise::$name => $doc,)* }
            }

            /// Machine instructions of one evaluation, roughly, as the generated text compiles.
            pub fn instructions(self) -> usize {
                match self { $(Pointwise::$name => $instructions,)* }
            }

            /// Its value; operands beyond its arity are ignored.
            #[inline(always)]
            pub fn eval(self, $operands: [f32; 3]) -> f32 {
                match self { $(Pointwise::$name => $eval,)* }
            }
        }
    };
}

// name, text, arity, instructions, meaning
pointwise_ops! { x;
    Add "add" 2 1 "`a + b`" x[0] + x[1];
    Sub "sub" 2 1 "`a - b`" x[0] - x[1];
    Mul "mul" 2 1 "`a · b`" x[0] * x[1];
    Div "div" 2 10 "`a / b`" x[0] / x[1];
    Min "min" 2 2 "the smaller; NaN if either is" math::min(x[0], x[1]);
    Max "max" 2 2 "the larger; NaN if either is" math::max(x[0], x[1]);
    Lt "lt" 2 2 "1 if `a < b`, else 0" f32::from(u8::from(x[0] < x[1]));
    Le "le" 2 2 "1 if `a <= b`, else 0" f32::from(u8::from(x[0] <= x[1]));
    Gt "gt" 2 2 "1 if `a > b`, else 0" f32::from(u8::from(x[0] > x[1]));
    Ge "ge" 2 2 "1 if `a >= b`, else 0" f32::from(u8::from(x[0] >= x[1]));
    Eq "eq" 2 2 "1 if `a == b`, else 0" f32::from(u8::from(x[0] == x[1]));
    Ne "ne" 2 2 "1 if `a != b`, else 0" f32::from(u8::from(x[0] != x[1]));
    Neg "neg" 1 1 "`-a`" -x[0];
    Exp "exp" 1 12 "`e^a`" math::exp(x[0]);
    Log "log" 1 16 "the natural logarithm" math::log(x[0]);
    Silu "silu" 1 24 "`a · sigmoid(a)`" math::silu(x[0]);
    GeluTanh "gelu_tanh" 1 34 "GELU by its tanh approximation" math::gelu_tanh(x[0]);
    GeluErf "gelu_erf" 1 34 "`a · Φ(a)`" math::gelu_erf(x[0]);
    Sigmoid "sigmoid" 1 23 "`1 / (1 + e^-a)`" math::sigmoid(x[0]);
    Tanh "tanh" 1 26 "the hyperbolic tangent" math::tanh(x[0]);
    Relu "relu" 1 2 "`max(a, 0)`" math::relu(x[0]);
    Recip "recip" 1 9 "`1 / a`" math::recip(x[0]);
    Round "round" 1 6 "the nearest integer, halves to the even one" math::round(x[0]);
    Sqrt "sqrt" 1 9 "the square root" math::sqrt(x[0]);
    Rsqrt "rsqrt" 1 18 "`1 / sqrt(a)`" math::rsqrt(x[0]);
    Softcap "softcap" 2 37 "`cap · tanh(a / cap)`" math::softcap(x[0], x[1]);
    Clamp "clamp" 3 4 "a, but at least lo and at most hi; NaN stays" math::clamp(x[0], x[1], x[2]);
    Select "select" 3 2 "b where a is not 0, else c" if x[0] != 0.0 { x[1] } else { x[2] };
}

impl Pointwise {
    /// The operation of that name.
    pub fn from_name(name: &str) -> Option<Pointwise> {
        Pointwise::ALL.iter().copied().find(|op| op.name() == name)
    }
}

impl Op {
    /// The name in messages, plans and the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Arg => "arg",
            Op::Const(_) => "const",
            Op::Pointwise(op) => op.name(),
            Op::Cast(_) => "to",
            Op::Reduce(reduction) => reduction.row_name(),
            Op::Softmax => "softmax",
            Op::Argmax => "argmax",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Linear => "linear",
            Op::Slice { .. } => "slice",
            Op::Reshape { .. } => "reshape",
            Op::Rope { .. } => "rope",
            Op::Append => "append",
            Op::Attend { .. } => "attend",
            Op::Embed => "embed",
            Op::Dequantize => "dequantize",
        }
    }

    /// Whether the operation only renames elements: it moves no data.
    pub fn is_view(&self) -> bool {
        match self {
            Op::Slice { .. } | Op::Reshape { .. } => true,
            Op::Arg
            | Op::Const(_)
            | Op::Pointwise(_)
            | Op::Cast(_)
            | Op::Reduce(_)
            | Op::Softmax
            | Op::Argmax
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Linear
            | Op::Rope { .. }
            | Op::Append
            | Op::Attend { .. }
            | Op::Embed
            | Op::Dequantize => false,
        }
    }

    /// Whether the operation reduces rows over the last axis.
    pub fn is_row(&self) -> bool {
        match self {
            Op::Reduce(_)
            | Op::Softmax
            | Op::Argmax
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. } => true,
            Op::Arg
            | Op::Const(_)
            | Op::Pointwise(_)
            | Op::Cast(_)
            | Op::Linear
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Rope { .. }
            | Op::Append
            | Op::Attend { .. }
            | Op::Embed
            | Op::Dequantize => false,
        }
    }
}

impl Reduction {
    /// The name among all operations: `max` of a row is not `max` of two tensors.
    pub fn row_name(self) -> &'static str {
        match self {
            Reduction::Sum => "row_sum",
            Reduction::Mean => "row_mean",
            Reduction::Max => "row_max",
        }
    }
}
