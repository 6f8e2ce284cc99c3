//! Fuseline's procedural macros: a shell around [`fuseline_frontend`], where the work is done.

use proc_macro::TokenStream;

/// Compiles a decode block: a function, or an inline `mod` of functions.
///
/// The arguments are the dims, `D = 576`; the batch dim with its range, `B in 1..=64`; the type
/// that operands of products are rounded to, `operand = bf16`; or named configurations of those,
/// `llama_1b { D = 2048, … }, llama_8b { D = 4096, … }`. Dims begin with a capital.
///
/// A `Weight`, and a `Tensor` that does not mention the batch dim, is a field of the block's
/// `Weights`; other arguments come with each call. The batch dim is the one with a range, or the
/// one called `B`.
#[proc_macro_attribute]
pub fn decode(attr: TokenStream, item: TokenStream) -> TokenStream {
    fuseline_frontend::decode(attr.into(), item.into()).into()
}

/// Bounds the plan of a decode block: `max_launches = 2`, `max_scratch_bytes = 4096`,
/// `deny(product_buffer)`. A plan that exceeds a bound does not compile.
#[proc_macro_attribute]
pub fn budget(attr: TokenStream, item: TokenStream) -> TokenStream {
    fuseline_frontend::budget(attr.into(), item.into()).into()
}

/// Declares a weight format:
/// `#[weight_format(bits = 4, unsigned(bias = 8), group = 32, scale = f16)] pub struct Mine;`.
/// The functions of the decode module that it stands in can use it; outside of one it only makes
/// the type.
#[proc_macro_attribute]
pub fn weight_format(attr: TokenStream, item: TokenStream) -> TokenStream {
    fuseline_frontend::weight_format(attr.into(), item.into()).into()
}
