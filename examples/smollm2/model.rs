//! The model on a device: weights, caches, and one step after the other. No arithmetic is done
//! here.

use crate::args::CacheType;
use crate::blocks::smollm2;
use fuseline::prelude::*;
use fuseline::{Error, Result};

/// A loaded model with one sequence.
pub trait Model {
    /// Takes further tokens of the sequence and gives the logits after the last of them.
    ///
    /// # Errors
    /// If the sequence is full, there is no token, or the device fails.
    fn step(&mut self, ids: &[u32]) -> Result<Vec<f32>>;

    /// Tokens that the sequence can still take.
    fn room(&self) -> usize;

    /// What the planner decided for every block.
    fn explain(&self) -> String;
}

/// Loads the model, and tells `progress` of each layer: how many are loaded, of how many.
///
/// # Errors
/// If the file is not of this model, or the device cannot run it.
pub fn load(
    device: &Device,
    file: &Gguf,
    cache: CacheType,
    fusion: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Box<dyn Model>> {
    match cache {
        CacheType::F32 => Ok(Box::new(cache_f32::Loaded::load(device, file, fusion, progress)?)),
        CacheType::F16 => Ok(Box::new(cache_f16::Loaded::load(device, file, fusion, progress)?)),
    }
}

/// Layers of SmolLM2-135M.
const N_LAYERS: usize = 30;

macro_rules! model {
    ($configuration:ident) => {
        mod $configuration {
            use super::smollm2::$configuration::{B, D, HD, KV, T, embed, head, layer};
            use super::*;

            type Cache = KvCache<smollm2::$configuration::C, B, KV, HD, T>;

            /// The blocks, their weights, and the sequence.
            pub struct Loaded {
                device: Device,
                embed: embed::Block,
                layer: layer::Block,
                head: head::Block,
                embed_weights: embed::Weights,
                head_weights: head::Weights,
                layers: Vec<(layer::Weights, Cache)>,
                layer_arena: Arena,
                head_arena: Arena,
                position: usize,
            }

            impl Loaded {
                pub fn load(
                    device: &Device,
                    file: &Gguf,
                    fusion: bool,
                    progress: &mut dyn FnMut(usize, usize),
                ) -> Result<Loaded> {
                    let options = LoadOptions::default().fusion(fusion);
                    let embed = embed::load_with(device, options)?;
                    let layer = layer::load_with(device, options)?;
                    let head = head::load_with(device, options)?;
                    let table: Weight<Q8_0, _, _> =
                        Weight::fill(device, file, "token_embd.weight")?;
                    let norm = Tensor::fill(device, file, "output_norm.weight")?;
                    let mut layers = Vec::new();
                    for index in 0..N_LAYERS {
                        progress(index, N_LAYERS);
                        let name = |argument: &str| format!("blk.{index}.{argument}.weight");
                        let weights = layer::Weights::fill(device, file, name)?;
                        layers.push((weights, layer.new_kv()?));
                    }
                    progress(N_LAYERS, N_LAYERS);
                    Ok(Loaded {
                        device: device.clone(),
                        layer_arena: layer.arena()?,
                        head_arena: head.arena()?,
                        embed_weights: embed::Weights { table: table.clone() },
                        head_weights: head::Weights { norm, table },
                        embed,
                        layer,
                        head,
                        layers,
                        position: 0,
                    })
                }

                /// The last layer's rows for consecutive tokens, at most `B`.
                fn forward(&mut self, ids: &[u32]) -> Result<Tensor<f32, B, D>> {
                    let end = self.position + ids.len();
                    let tokens = Tokens::<B>::new(&self.device, ids)?;
                    let pos = Index::<B>::prompt(&self.device, 0, self.position..end)?;
                    let arena = &mut self.layer_arena;
                    let mut x = self.embed.call(arena, &self.embed_weights, &tokens)?;
                    for (weights, cache) in &mut self.layers {
                        x = self.layer.call(arena, weights, &x, cache, &pos)?;
                    }
                    self.position = end;
                    Ok(x)
                }
            }

            impl Model for Loaded {
                fn step(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
                    let Some((last, before)) = ids.split_last() else {
                        let (name, expected) = ("ids".to_string(), "at least 1".to_string());
                        return Err(Error::Rows { name, expected, found: 0 });
                    };
                    for rows in before.chunks(B) {
                        self.forward(rows)?;
                    }
                    // Logits are needed after the last token only.
                    let x = self.forward(&[*last])?;
                    self.head.call(&mut self.head_arena, &self.head_weights, &x)?.to_vec()
                }

                fn room(&self) -> usize {
                    T - self.position
                }

                fn explain(&self) -> String {
                    [self.embed.explain(), self.layer.explain(), self.head.explain()].join("\n")
                }
            }
        }
    };
}

model!(cache_f32);
model!(cache_f16);
