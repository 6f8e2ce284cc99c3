//! Times the expansion of every `#[decode]` item of a Rust file, and prints one JSON object:
//! `timings FILE.rs`.
//!
//! - `total_ms`: from tokens to tokens, all that the macro does.
//! - `planning_ms`: the part of it that is graphs to plans.
//! - `emission_ms`: the part of it that is plans to CUDA text.
//!
//! Each is the median of [`N_RUNS`], after one run that is not counted. Macros are compiled
//! without optimization by default, so `cargo xtask timings` builds this program so too.

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, Plan, compile};
use proc_macro2::TokenStream;
use quote::ToTokens;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Runs that are counted; odd, so that one of them is the median.
const N_RUNS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: timings FILE.rs")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let programs = programs(&text).map_err(|error| format!("{path}: {error}"))?;
    if programs.is_empty() {
        return Err(format!("{path} has no `#[decode]` item").into());
    }

    let mut graphs = Vec::new();
    for (attr, item) in &programs {
        let (blocks, errors) = fuseline_frontend::blocks(attr.clone(), item.clone());
        if let Some(error) = errors.list().first() {
            return Err(format!("{path}: {}", error.diagnostic).into());
        }
        for block in blocks {
            graphs.push(buckets(&Graph::parse(&block.ir)?));
        }
    }
    let plans: Vec<Vec<Plan>> = graphs.iter().map(|graphs| plan(graphs)).collect();
    let n_kernels: usize = plans.iter().flatten().map(Plan::n_launches).sum();

    let planning_ms = median_ms(|| {
        graphs.iter().for_each(|graphs| drop(black_box(plan(graphs))));
    });
    let emission_ms = median_ms(|| {
        plans.iter().for_each(|plans| drop(black_box(fuseline_cuda::emit::source(plans))));
    });
    let total_ms = median_ms(|| {
        for (attr, item) in &programs {
            drop(black_box(fuseline_frontend::decode(attr.clone(), item.clone())));
        }
    });
    println!(
        "{{\"blocks\": {}, \"kernels\": {n_kernels}, \"planning_ms\": {planning_ms:.2}, \
         \"emission_ms\": {emission_ms:.2}, \"total_ms\": {total_ms:.2}}}",
        graphs.len(),
    );
    Ok(())
}

/// The attribute's arguments and the item of every `#[decode]` item at the top of a file.
fn programs(text: &str) -> syn::Result<Vec<(TokenStream, TokenStream)>> {
    let mut programs = Vec::new();
    for mut item in syn::parse_file(text)?.items {
        let attrs = match &mut item {
            syn::Item::Mod(item) => &mut item.attrs,
            syn::Item::Fn(item) => &mut item.attrs,
            _ => continue,
        };
        let is_decode = |attr: &syn::Attribute| {
            attr.path().segments.last().is_some_and(|segment| segment.ident == "decode")
        };
        let Some(index) = attrs.iter().position(is_decode) else { continue };
        let args = match attrs.remove(index).meta {
            syn::Meta::List(list) => list.tokens,
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => TokenStream::new(),
        };
        programs.push((args, item.to_token_stream()));
    }
    Ok(programs)
}

/// The graph for every bucket of rows.
fn buckets(graph: &Graph) -> Vec<Graph> {
    match &graph.batch {
        Some(batch) => batch.buckets().into_iter().map(|rows| graph.with_rows(rows)).collect(),
        None => vec![graph.clone()],
    }
}

fn plan(graphs: &[Graph]) -> Vec<Plan> {
    // The front end has planned the same graphs, so none is refused.
    graphs.iter().filter_map(|graph| compile(graph, &Options::default()).ok()).collect()
}

fn median_ms(mut run: impl FnMut()) -> f64 {
    run();
    let mut times: Vec<f64> = (0..N_RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[N_RUNS / 2]
}
