//! The field's counting rule against its worked examples, and against plans of ours.

use fuseline_core::field::{Counts, Decode, Rules, Stored, compare, decide};
use fuseline_core::ir::{Graph, Type};
use fuseline_core::plan::{Options, compile};

const K: usize = 9216;
const N: usize = 2560;

/// A linear of an activation, in the lines of `chain`, whose last value is `x`.
fn block(chain: &str, x: usize, format: &str) -> Graph {
    let declared = match format {
        "Int4" => "format Int4 bits=4 code=unsigned(8) group=32 scale=bf16\n",
        _ => "",
    };
    let text = format!(
        "block seed
{declared}arg %0 g input bf16[1, K:{K}]
arg %1 u input bf16[1, K:{K}]
arg %2 gain weight bf16[K:{K}]
arg %3 w weight {format}{{N:{N}, K:{K}}}
{chain}%{y} = linear %{x} %3 : f32[1, N:{N}]
return %{y}
",
        y = x.max(3) + 1,
    );
    Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"))
}

const SWIGLU: &str = "%4 = silu %0 : f32[1, K:9216]
%5 = mul %4 %1 : f32[1, K:9216]
";
const GEGLU: &str = "%4 = gelu_tanh %0 : f32[1, K:9216]
%5 = mul %4 %1 : f32[1, K:9216]
";
const RMS_NORM: &str = "%4 = rms_norm %0 %2 eps=0.00001 : f32[1, K:9216]
";
const RESIDUAL_RMS_NORM: &str = "%4 = add %0 %1 : f32[1, K:9216]
%5 = rms_norm %4 %2 eps=0.00001 : f32[1, K:9216]
";
const FAKE_QUANT: &str = "%4 = silu %0 : f32[1, K:9216]
%5 = mul %4 %1 : f32[1, K:9216]
%6 = const 0.05 : f32[]
%7 = div %5 %6 : f32[1, K:9216]
%8 = const -127.0 : f32[]
%9 = const 127.0 : f32[]
%10 = max %7 %8 : f32[1, K:9216]
%11 = min %10 %9 : f32[1, K:9216]
%12 = round %11 : f32[1, K:9216]
%13 = mul %12 %6 : f32[1, K:9216]
";
const CLAMPED_SWIGLU: &str = "%4 = const 7.0 : f32[]
%5 = const -7.0 : f32[]
%6 = const 1.0 : f32[]
%7 = min %0 %4 : f32[1, K:9216]
%8 = silu %7 : f32[1, K:9216]
%9 = clamp %1 %5 %4 : f32[1, K:9216]
%10 = add %9 %6 : f32[1, K:9216]
%11 = mul %8 %10 : f32[1, K:9216]
";
