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

pub use fuseline_core::format::interop;
pub use fuseline_macros::{budget, decode, weight_format};
pub use fuseline_runtime::block::{Arena, LoadOptions};
pub use fuseline_runtime::cache::{Index, KvCache};
pub use fuseline_runtime::device::{Device, Graph};
pub use fuseline_runtime::element::{
    Element, Format, Int4FloatG32, Int4FloatG64, Int4FloatG128, Int4G32, Int4G64, Int4G128,
    Int4ZeroG32, Int4ZeroG64, Int4ZeroG128, Q4_1, Q8_0,
};
pub use fuseline_runtime::error::{Error, Result};
pub use fuseline_runtime::source::{self, Gguf, Safetensors, Slices, TensorSource};
pub use fuseline_runtime::tensor::{Scalar, Tensor, Tokens};
pub use fuseline_runtime::weight::Weight;
pub use half::{bf16, f16};

/// NVIDIA GPUs: options of [`Device::cuda`], memory of other libraries, kernels built ahead.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use crate::kernels_built_ahead as ahead;
    pub use fuseline_cuda::runtime::*;
}

/// The kernels that the build script compiled with `fuseline_build::write_ahead`, as a
/// `Result<Archive, ArchiveError>` for [`cuda::Options::ahead`].
#[cfg(feature = "cuda")]
#[doc(hidden)]
#[macro_export]
macro_rules! kernels_built_ahead {
    () => {
        $crate::cuda::Archive::read(include_bytes!(concat!(
            env!("OUT_DIR"),
            "/fuseline_kernels.bin"
        )))
    };
}

/// The generated CUDA, run on the CPU and checked: for tests of blocks where there is no GPU.
///
/// [`check`](emulate::check) runs one block on random arguments and compares every kernel with an
/// exact reference. [`device`](emulate::device) runs a whole program.
///
/// ```
/// # use fuseline::prelude::*;
/// #[decode(B in 1..=4, D = 64)]
/// fn gate(x: Tensor<f32, B, D>, y: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
///     x.silu() * y
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if std::process::Command::new("g++").arg("--version").output().is_err() { return Ok(()) }
/// use fuseline::emulate::{self, Check};
/// let report = emulate::check(gate::IR, &Check { rows: vec![3], ..Check::default() })?;
/// assert!(report.worst_error < 1e-6);
///
/// let device = emulate::device(emulate::Options::default())?;
/// let numbers = |x: f32| Tensor::from_slice(&device, &[x; 2 * 64]);
/// let block = gate::load(&device)?;
/// let result = block.call(&mut block.arena()?, &numbers(1.0)?, &numbers(2.0)?)?;
/// assert_eq!(result.shape(), [2, 64]);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "emulate")]
pub mod emulate {
    use crate::Device;
    pub use fuseline_cuda::emulate::*;

    /// A device that runs the generated CUDA on the CPU. A kernel's fault is the call's error.
    ///
    /// # Errors
    /// If there is no C++ compiler.
    pub fn device(options: Options) -> Result<Device> {
        Ok(Device::from_backend(EmulatedDevice::new(options)?))
    }
}

/// What programs with decode blocks use.
pub mod prelude {
    pub use crate::{
        Arena, Device, Gguf, Index, Int4FloatG32, Int4FloatG64, Int4FloatG128, Int4G32, Int4G64,
        Int4G128, Int4ZeroG32, Int4ZeroG64, Int4ZeroG128, KvCache, LoadOptions, Q4_1, Q8_0,
        Safetensors, Scalar, Slices, Tensor, TensorSource, Tokens, Weight, bf16, budget, decode,
        f16, weight_format,
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
