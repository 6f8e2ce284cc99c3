//! Fuseline: an embedded language for LLM decode kernels.
//!
//! A decode block is an ordinary function of expression chains. At `cargo build` a planner decides
//! which operations share a kernel and writes CUDA C++ for them; the program runs the same plan on
//! the device that it finds.
//!
//! ```
//! use fuseline::prelude::*;
//!
//! #[decode(B in 1..=4, D = 64, F = 96)]
//! pub mod model {
//!     #[budget(max_launches = 2, deny(product_buffer))]
//!     pub fn mlp(
//!         x: Tensor<f32, B, D>,
//!         norm: Tensor<f32, D>,
//!         gate: Weight<Q4_1, F, D>,
//!         up: Weight<Q4_1, F, D>,
//!         down: Weight<Q8_0, D, F>,
//!     ) -> Tensor<f32, B, D> {
//!         let h = x.rms_norm(norm, 1e-5);
//!         x + (h.linear(gate).silu() * h.linear(up)).linear(down)
//!     }
//! }
//!
//! fn main() -> fuseline::Result<()> {
//!     let device = Device::best()?;
//!     let numbers = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.37).sin()).collect() };
//!     let weights = model::mlp::Weights {
//!         norm: Tensor::from_slice(&device, &numbers(64))?,
//!         gate: Weight::quantize(&device, &numbers(96 * 64))?,
//!         up: Weight::quantize(&device, &numbers(96 * 64))?,
//!         down: Weight::quantize(&device, &numbers(64 * 96))?,
//!     };
//!     let block = model::mlp::load(&device)?;
//!     let mut arena = block.arena()?;
//!     let x = Tensor::from_slice(&device, &numbers(3 * 64))?; // three rows of at most four
//!     let y = block.call(&mut arena, &weights, &x)?;
//!     assert_eq!(y.shape(), [3, 64]);
//!
//!     // What the planner decided, and the source that it wrote:
//!     assert!(model::mlp::EXPLAIN.contains("linear_epilogue"));
//!     assert!(model::mlp::CUDA.contains("FL_KERNEL"));
//!     Ok(())
//! }
//! ```
//!
//! The language, the planner and its reports are described in `README.md` and `ARCHITECTURE.md`.

pub use fuseline_macros::{budget, decode, weight_format};
pub use fuseline_runtime::block::{Arena, LoadOptions};
pub use fuseline_runtime::cache::{Index, KvCache};
pub use fuseline_runtime::device::Device;
pub use fuseline_runtime::element::{Element, Format, Q4_1, Q8_0};
pub use fuseline_runtime::error::{Error, Result};
pub use fuseline_runtime::source::{self, Gguf, Safetensors, Slices, TensorSource};
pub use fuseline_runtime::tensor::{Scalar, Tensor, Tokens};
pub use fuseline_runtime::weight::Weight;
pub use half::{bf16, f16};

/// What programs with decode blocks use.
pub mod prelude {
    pub use crate::{
        Arena, Device, Gguf, Index, KvCache, LoadOptions, Q4_1, Q8_0, Safetensors, Scalar, Slices,
        Tensor, TensorSource, Tokens, Weight, bf16, budget, decode, f16, weight_format,
    };
}

/// What expansions name. Not for programs: it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use fuseline_core::dtype::DType;
    pub use fuseline_core::format::{CodeMap, Group, WeightFormat};
    pub use fuseline_runtime::args::{Argument, Output};
    pub use fuseline_runtime::block::{Block, BlockSpec};
    pub use fuseline_runtime::element::Format;
}
