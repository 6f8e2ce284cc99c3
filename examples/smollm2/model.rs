//! The model on a device: weights, caches, and one step after the other. No arithmetic is done
//! here.

use crate::args::CacheType;
use crate::blocks::smollm2;
use fuseline::prelude::*;
use fuseline::{Error, Graph, Result};

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

    /// How many kernels a recorded step runs, once there is one.
    #[allow(dead_code)] // for tests
    fn n_launches(&self) -> Option<usize>;
}

/// How the model is run.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// The type of the caches.
    pub cache: CacheType,
    /// Whether operations share kernels.
    pub fusion: bool,
    /// Whether a step of one token is recorded once and then replayed, where the device can.
    pub record: bool,
}

/// Loads the model, and tells `progress` of each layer: how many are loaded, of how many.
///
/// # Errors
/// If the file is not of this model, or the device cannot run it.
pub fn load(
    device: &Device,
    file: &Gguf,
    choices: Choices,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Box<dyn Model>> {
    match choices.cache {
        CacheType::F32 => Ok(Box::new(cache_f32::Loaded::load(device, file, choices, progress)?)),
        CacheType::F16 => Ok(Box::new(cache_f16::Loaded::load(device, file, choices, progress)?)),
    }
}

/// Layers of SmolLM2-135M.
const N_LAYERS: usize = 30;

macro_rules! model {
    ($configuration:ident) => {
        mod $configuration {
            use super::smollm2::$configuration::{B, D, HD, KV, T, V, embed, head, layer};
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
                record: bool,
                step: Option<Step>,
            }

            /// Memory for steps of one token, always the same, and the recorded step.
            struct Step {
                tokens: Tokens<B>,
                pos: Index<B>,
                /// A layer's input and output, in turns.
                x: [Tensor<f32, B, D>; 2],
                logits: Tensor<f32, B, V>,
                graph: Option<Graph>,
            }

            impl Loaded {
                pub fn load(
                    device: &Device,
                    file: &Gguf,
                    choices: Choices,
                    progress: &mut dyn FnMut(usize, usize),
                ) -> Result<Loaded> {
                    let options = LoadOptions::default().fusion(choices.fusion);
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
                        record: choices.record,
                        step: None,
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

            impl Loaded {
                /// The logits after one token.
                fn decode(&mut self, id: u32) -> Result<Vec<f32>> {
                    let place = [(self.position, 0)];
                    let mut step = match self.step.take() {
                        Some(mut step) => {
                            step.tokens.write(&[id])?;
                            step.pos.write(&place)?;
                            step
                        }
                        None => Step {
                            tokens: Tokens::new(&self.device, &[id])?,
                            pos: Index::new(&self.device, &place)?,
                            x: [Tensor::zeros(&self.device, 1)?, Tensor::zeros(&self.device, 1)?],
                            logits: Tensor::zeros(&self.device, 1)?,
                            graph: None,
                        },
                    };
                    match &step.graph {
                        Some(graph) => graph.replay()?,
                        None => {
                            // The first step runs as it is: what it needs is loaded then.
                            self.run(&mut step)?;
                            if self.record {
                                let device = self.device.clone();
                                step.graph = device.record(|| self.run(&mut step)).ok();
                            }
                        }
                    }
                    self.position += 1;
                    let logits = step.logits.to_vec();
                    self.step = Some(step);
                    logits
                }

                /// All blocks, on a step's memory.
                fn run(&mut self, step: &mut Step) -> Result<()> {
                    let Step { tokens, pos, x: [x, y], logits, .. } = step;
                    let arena = &mut self.layer_arena;
                    self.embed.call_into(arena, &self.embed_weights, tokens, x)?;
                    let (mut from, mut to) = (x, y);
                    for (weights, cache) in &mut self.layers {
                        self.layer.call_into(arena, weights, from, cache, pos, to)?;
                        std::mem::swap(&mut from, &mut to);
                    }
                    self.head.call_into(&mut self.head_arena, &self.head_weights, from, logits)
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
                    self.decode(*last)
                }

                fn room(&self) -> usize {
                    T - self.position
                }

                fn n_launches(&self) -> Option<usize> {
                    let graph = self.step.as_ref()?.graph.as_ref()?;
                    Some(graph.n_launches())
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
