//! The model on a device: weights, caches, and one step after the other. No arithmetic is done
//! here.

use crate::args::CacheType;
use crate::blocks::smollm2;
use fuseline::prelude::*;
use fuseline::{Error, Graph, Result};
use std::collections::BTreeMap;

/// A loaded model with room for several sequences.
pub trait Model {
    /// Takes further tokens of the first sequence and gives the logits after the last of them.
    ///
    /// # Errors
    /// If the sequence is full, there is no token, or the device fails.
    fn step(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.prompt(0, ids)
    }

    /// Takes further tokens of one sequence and gives the logits after the last of them.
    ///
    /// # Errors
    /// If the sequence is full, there is no token, or the device fails.
    fn prompt(&mut self, sequence: usize, ids: &[u32]) -> Result<Vec<f32>>;

    /// Takes one token each of several sequences, and gives the logits after each: row by row.
    ///
    /// # Errors
    /// If a sequence is full or comes twice, there are too many, or the device fails.
    fn decode(&mut self, rows: &[Row]) -> Result<Vec<f32>>;

    /// Forgets a sequence's tokens.
    #[allow(dead_code)] // for tests
    fn reset(&mut self, sequence: usize);

    /// Tokens that the first sequence can still take.
    fn room(&self) -> usize;

    /// What the planner decided for every block.
    fn explain(&self) -> String;

    /// How many kernels a recorded step of so many rows runs, once there is one.
    #[allow(dead_code)] // for tests
    fn n_launches(&self, rows: usize) -> Option<usize>;
}

/// A sequence, and its next token.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub sequence: usize,
    pub id: u32,
}

/// How the model is run.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// The type of the caches.
    pub cache: CacheType,
    /// Whether operations share kernels.
    pub fusion: bool,
    /// Whether a step is recorded once for each number of rows and then replayed, where the
    /// device can.
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
                /// The next position of each sequence.
                positions: [usize; B],
                record: bool,
                /// By the number of rows.
                steps: BTreeMap<usize, Step>,
            }

            /// Memory for steps of so many rows, always the same, and the recorded step.
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
                        positions: [0; B],
                        record: choices.record,
                        steps: BTreeMap::new(),
                    })
                }

                /// Puts consecutive tokens of a sequence, at most `B`, into the caches.
                fn fill(&mut self, sequence: usize, ids: &[u32]) -> Result<()> {
                    let start = self.positions[sequence];
                    let end = start + ids.len();
                    let tokens = Tokens::<B>::new(&self.device, ids)?;
                    let pos = Index::<B>::prompt(&self.device, sequence, start..end)?;
                    let arena = &mut self.layer_arena;
                    let mut x = self.embed.call(arena, &self.embed_weights, &tokens)?;
                    for (weights, cache) in &mut self.layers {
                        x = self.layer.call(arena, weights, &x, cache, &pos)?;
                    }
                    self.positions[sequence] = end;
                    Ok(())
                }

                fn check_sequence(sequence: usize) -> Result<()> {
                    if sequence < B {
                        return Ok(());
                    }
                    let expected = format!("less than {B}");
                    Err(Error::Rows { name: "sequence".to_string(), expected, found: sequence })
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
                fn prompt(&mut self, sequence: usize, ids: &[u32]) -> Result<Vec<f32>> {
                    Self::check_sequence(sequence)?;
                    let Some((&id, before)) = ids.split_last() else {
                        let (name, expected) = ("ids".to_string(), "at least 1".to_string());
                        return Err(Error::Rows { name, expected, found: 0 });
                    };
                    for ids in before.chunks(B) {
                        self.fill(sequence, ids)?;
                    }
                    // Logits are needed after the last token only.
                    self.decode(&[Row { sequence, id }])
                }

                fn decode(&mut self, rows: &[Row]) -> Result<Vec<f32>> {
                    rows.iter().try_for_each(|row| Self::check_sequence(row.sequence))?;
                    let ids: Vec<u32> = rows.iter().map(|row| row.id).collect();
                    let place = |row: &Row| (self.positions[row.sequence], row.sequence);
                    let places: Vec<(usize, usize)> = rows.iter().map(place).collect();
                    let device = self.device.clone();
                    let n = rows.len();
                    let mut step = match self.steps.remove(&n) {
                        Some(mut step) => {
                            step.tokens.write(&ids)?;
                            step.pos.write(&places)?;
                            step
                        }
                        None => Step {
                            tokens: Tokens::new(&device, &ids)?,
                            pos: Index::new(&device, &places)?,
                            x: [Tensor::zeros(&device, n)?, Tensor::zeros(&device, n)?],
                            logits: Tensor::zeros(&device, n)?,
                            graph: None,
                        },
                    };
                    match &step.graph {
                        Some(graph) => graph.replay()?,
                        None => {
                            // The first step runs as it is: what it needs is loaded then.
                            self.run(&mut step)?;
                            if self.record {
                                step.graph = device.record(|| self.run(&mut step)).ok();
                            }
                        }
                    }
                    for row in rows {
                        self.positions[row.sequence] += 1;
                    }
                    let logits = step.logits.to_vec();
                    self.steps.insert(n, step);
                    logits
                }

                fn reset(&mut self, sequence: usize) {
                    self.positions[sequence] = 0;
                }

                fn room(&self) -> usize {
                    T - self.positions[0]
                }

                fn n_launches(&self, rows: usize) -> Option<usize> {
                    Some(self.steps.get(&rows)?.graph.as_ref()?.n_launches())
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
