//! The blocks of SmolLM2-135M on the weights of a GGUF file, random activations before them.

use super::blocks::{Block, Bucket, Call, golden_folder};
use fuseline_core::ir::{Graph, Role, Type, ValueId};
use fuseline_core::oracle::Datum;
use fuseline_core::random::{Rng, random_args};
use fuseline_cuda::emulate::blank_unread;
use fuseline_runtime::source::{Encoding, Gguf, TensorSource};
use std::error::Error;
use std::fs;
use std::path::Path;

const EMBED: &str = "block embed
batch B 1..=4
arg %0 tokens input i32[B<=4]
arg %1 table weight Q8_0{V:49152, D:576}
%2 x = embed %0 %1 : f32[B<=4, D:576]
return %2
";

/// The longest history of a row.
const MAX_POSITION: usize = 40;

/// The layer, the embedding and the head.
pub fn blocks(path: &Path) -> Result<Vec<Block>, Box<dyn Error>> {
    let file = Gguf::open(path)?;
    let read = |name: &str| fs::read_to_string(golden_folder().join(name));
    let layer = Graph::parse(&read("smollm2_layer.ir")?)?;
    let head = Graph::parse(&read("head_argmax.ir")?)?;
    let layer_tensors = [
        ("attn_norm", "blk.0.attn_norm.weight"),
        ("wq", "blk.0.attn_q.weight"),
        ("wk", "blk.0.attn_k.weight"),
        ("wv", "blk.0.attn_v.weight"),
        ("wo", "blk.0.attn_output.weight"),
        ("ffn_norm", "blk.0.ffn_norm.weight"),
        ("gate", "blk.0.ffn_gate.weight"),
        ("up", "blk.0.ffn_up.weight"),
        ("down", "blk.0.ffn_down.weight"),
    ];
    let head_tensors = [("norm", "output_norm.weight"), ("table", "token_embd.weight")];
    Ok(vec![
        block(
            "model_layer",
            &layer,
            &[(1, &[1]), (4, &[4, 3]), (16, &[16, 13])],
            &file,
            &layer_tensors,
        )?,
        block("model_embed", &Graph::parse(EMBED)?, &[(4, &[4, 3])], &file, &head_tensors)?,
        block("model_head", &head, &[(1, &[1]), (4, &[4, 3])], &file, &head_tensors)?,
    ])
}

/// A block for each bucket, called with each of its numbers of rows.
fn block(
    name: &str,
    graph: &Graph,
    buckets: &[(usize, &[usize])],
    file: &Gguf,
    tensors: &[(&str, &str)],
) -> Result<Block, Box<dyn Error>> {
    let mut list = Vec::new();
    for (seed, &(bucket, counts)) in buckets.iter().enumerate() {
        let graph = graph.with_rows(bucket);
        let mut calls = Vec::new();
        for &rows in counts {
            let mut args = random_args(&graph, rows, seed as u64);
            for (arg, datum) in graph.args.iter().zip(&mut args) {
                match arg.role {
                    Role::Weight => {
                        let tensor = tensors.iter().find(|(arg_name, _)| *arg_name == &*arg.name);
                        let (_, tensor) = tensor.ok_or(format!("no tensor for `{}`", arg.name))?;
                        *datum = weight(&graph, arg.value, file, tensor)?;
                    }
                    Role::Input | Role::Cache => {}
                }
                if let Datum::Index { positions, sequences } = datum {
                    let mut rng = Rng::new(seed as u64);
                    *positions = (0..rows).map(|_| rng.below(MAX_POSITION) as i32).collect();
                    *sequences = (0..rows).rev().map(|row| row as i32).collect();
                }
            }
            blank_unread(&graph, &mut args);
            calls.push(Call { rows, args });
        }
        list.push(Bucket { graph, calls });
    }
    Ok(Block { name: name.to_string(), timed: true, buckets: list })
}

/// An argument out of the file.
fn weight(graph: &Graph, arg: ValueId, file: &Gguf, tensor: &str) -> Result<Datum, Box<dyn Error>> {
    let view = file.tensor(tensor)?;
    match (&graph[arg].ty, &view.encoding) {
        (Type::Weight { format, n, k }, Encoding::Gguf { name, .. }) if *name == format.name => {
            Ok(Datum::Weight(format.pack_gguf(view.bytes, n.size, k.size)?))
        }
        (Type::Tensor { .. }, Encoding::Dense(fuseline_core::dtype::DType::F32)) => {
            let words = view.bytes.chunks_exact(4);
            let number = |b: &[u8]| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            Ok(Datum::Tensor(words.map(number).collect()))
        }
        (_, encoding) => Err(format!("`{tensor}` is stored as {encoding}").into()),
    }
}
