//! Blocks of one operation each, at shapes that are no multiples of anything.

use fuseline_core::format::FORMATS;
use fuseline_core::ir::Graph;
use fuseline_core::oracle::Datum;
use fuseline_core::random::random_args;

/// Name, graph, rows and arguments.
pub type Block = (String, Graph, usize, Vec<Datum>);

pub fn blocks() -> Vec<Block> {
    let mut list = Vec::new();
    // Larger groups are another number in the same text.
    for format in FORMATS.iter().filter(|format| format.group_size() <= 32) {
        let group = format.group.map_or(1, |group| group.size);
        for n in [1, 63, 65, 257, 4097] {
            for k in [group, 7 * group, 96, 576] {
                for rows in [1, 3, 17] {
                    // The large ones once.
                    if n == 4097 && (k == 96 || rows == 3) {
                        continue;
                    }
                    list.push(linear(&format.name, n, k, rows));
                }
            }
        }
    }
    for head_dim in [64, 80, 96, 128, 256] {
        for (heads, kv_heads) in [(1, 1), (4, 2), (16, 1), (9, 3)] {
            for length in [0, 1, 31, 33, 1000] {
                let dtype = ["f32", "f16", "bf16"][(head_dim / 16 + heads + length) % 3];
                list.push(attention(head_dim, heads, kv_heads, length, dtype));
            }
        }
    }
    list
}

fn linear(format: &str, n: usize, k: usize, rows: usize) -> Block {
    let text = format!(
        "block linear
arg %0 x input f32[R:{rows}, K:{k}]
arg %1 w weight {format}{{N:{n}, K:{k}}}
%2 = linear %0 %1 : f32[R:{rows}, N:{n}]
return %2
"
    );
    let graph = Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"));
    let args = random_args(&graph, rows, (n * k + rows) as u64);
    (format!("linear {format} N {n} K {k} rows {rows}"), graph, rows, args)
}

/// The second of two rows is at `length`; both are alone in their caches.
fn attention(head_dim: usize, heads: usize, kv_heads: usize, length: usize, dtype: &str) -> Block {
    let text = format!(
        "block attention
arg %0 q input f32[B:2, H:{heads}, HD:{head_dim}]
arg %1 k input f32[B:2, KV:{kv_heads}, HD:{head_dim}]
arg %2 v input f32[B:2, KV:{kv_heads}, HD:{head_dim}]
arg %3 kv cache cache {dtype}[B:2, KV:{kv_heads}, HD:{head_dim}, T:1024]
arg %4 pos input index[B:2]
%5 = append %3 %1 %2 %4 : cache {dtype}[B:2, KV:{kv_heads}, HD:{head_dim}, T:1024]
%6 = attend %0 %5 %4 scale=0.125 : f32[B:2, H:{heads}, HD:{head_dim}]
return %6
"
    );
    let graph = Graph::parse(&text).unwrap_or_else(|error| panic!("{text}{error}"));
    let mut args = random_args(&graph, 2, (head_dim + heads + length) as u64);
    args[4] = Datum::Index { positions: vec![3, length as i32], sequences: vec![1, 0] };
    let name = format!("attend {dtype} heads {heads}/{kv_heads} x {head_dim} length {length}");
    (name, graph, 2, args)
}
