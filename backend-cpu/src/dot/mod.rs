//! The inner loops: products of activations with packed weights, decoded rows, and the loops of
//! attention.
//!
//! A product is `y[m][n] = Σ_k x[m][k] · w[n][k]`. Decoding is exact: a group's scale and offset
//! leave the sum,
//!
//! ```text
//! Σ_group w · x = scale · Σ map(code) · x  +  offset · Σ x
//! ```
//!
//! and the sums are f32, in an order that depends on the vector instructions in use (the
//! [`Level`]) and on nothing else: not on the number of threads, nor on how many rows or weights
//! share a launch.
//!
//! | module | holds |
//! |---|---|
//! | `simd` | vectors of each instruction set, and the choice between them |
//! | `codes` | how codes become vectors, one family a type |
//! | `planes` | the weight, checked; rows decoded for embeddings |
//! | `activations` | what is prepared once a launch |
//! | `rows` | the cut of a product into tiles |
//! | `tile` | the loop itself |
//! | `attention` | scores and weighted sums over a cache |

// Loops over lanes and rows step through several arrays at once.
#![allow(clippy::needless_range_loop)]

mod activations;
mod attention;
mod codes;
mod planes;
mod rows;
mod simd;
mod tile;

pub use activations::Activations;
pub use attention::{Element, axpy, axpy_rows, dot, dot_rows};
pub use planes::{DotError, Planes, embed_row};
pub use simd::Level;

use rayon::prelude::*;
use rows::Rows;

#[cfg(target_endian = "big")]
compile_error!("packed weights are read in place, which needs a little-endian target");

/// Multiplications below which a launch stays on the calling thread: about what waking another
/// thread costs.
const MIN_PARALLEL_PRODUCTS: usize = 1 << 18;

/// Chunks a thread in a parallel launch, so that threads that start late or run slowly get fewer.
const CHUNKS_PER_THREAD: usize = 4;

/// Computes the product of `x` with every weight, in one parallel region. Output i is
/// `[x.m(), weights[i].n()]`, row-major, and is overwritten.
///
/// A caller that is itself a thread of the pool (see [`rayon::ThreadPool::install`]) saves a
/// hand-over for every launch.
///
/// # Errors
///
/// Before anything is written: if a weight's rows are not as long as the activations', if an
/// output has another size, or if the activations were filled for other formats.
pub fn linear(
    x: &Activations,
    weights: &[Planes<'_>],
    outputs: &mut [&mut [f32]],
) -> Result<(), DotError> {
    check(x, weights, outputs)?;
    let (level, m) = (x.level(), x.m());
    let n_products = weights.iter().map(|w| m * w.n() * w.k()).sum::<usize>();
    let n_threads = rayon::current_num_threads();
    let parallel = n_threads > 1 && n_products >= MIN_PARALLEL_PRODUCTS;
    let n_rows = weights.iter().map(Planes::n).sum::<usize>();
    let chunk_rows = if parallel {
        n_rows.div_ceil(n_threads * CHUNKS_PER_THREAD).next_multiple_of(16)
    } else {
        n_rows.max(1)
    };
    let mut chunks = Vec::new();
    for (weight, output) in weights.iter().zip(outputs.iter_mut()) {
        if m > 0 && weight.n() > 0 {
            split(*weight, m, output, chunk_rows, &mut chunks);
        }
    }
    let run = |mut chunk: Chunk<'_, '_>| {
        let first = chunk.first;
        if let Some(rows) = Rows::new(x, chunk.weight, first, &mut chunk.out) {
            level.for_format(chunk.weight.format()).run(rows);
        }
    };
    if parallel {
        chunks.into_par_iter().with_max_len(1).for_each(run);
    } else {
        chunks.into_iter().for_each(run);
    }
    Ok(())
}

/// Some output rows of one weight, for all rows of the activations.
struct Chunk<'w, 'o> {
    weight: Planes<'w>,
    first: usize,
    out: Vec<&'o mut [f32]>,
}

/// Cuts an `[m, n]` output into chunks of `chunk_rows` output rows.
fn split<'w, 'o>(
    weight: Planes<'w>,
    m: usize,
    output: &'o mut [f32],
    chunk_rows: usize,
    chunks: &mut Vec<Chunk<'w, 'o>>,
) {
    let begin = chunks.len();
    chunks.extend((0..weight.n()).step_by(chunk_rows).map(|first| Chunk {
        weight,
        first,
        out: Vec::with_capacity(m),
    }));
    for row in output.chunks_exact_mut(weight.n()) {
        for (chunk, piece) in chunks[begin..].iter_mut().zip(row.chunks_mut(chunk_rows)) {
            chunk.out.push(piece);
        }
    }
}

fn check(x: &Activations, weights: &[Planes<'_>], outputs: &[&mut [f32]]) -> Result<(), DotError> {
    expect_len("outputs", weights.len(), outputs.len())?;
    for (weight, output) in weights.iter().zip(outputs) {
        expect_len("elements of a weight's row", x.k(), weight.k())?;
        expect_len("elements of an output", x.m().saturating_mul(weight.n()), output.len())?;
        let format = weight.format();
        if x.rows_for(format).is_none() || x.sums_for(format).is_none() {
            return Err(DotError::Unprepared { format: format.name.to_string() });
        }
    }
    Ok(())
}

fn expect_len(what: &'static str, expected: usize, found: usize) -> Result<(), DotError> {
    if expected == found { Ok(()) } else { Err(DotError::Length { what, expected, found }) }
}
