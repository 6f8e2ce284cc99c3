//! `fuseline explain`.

use crate::blocks;
use fuseline_core::field::{Rules, compare};
use fuseline_core::plan::{Options, compile};
use std::error::Error;
use std::path::PathBuf;

/// Prints what the planner decides for blocks, and what PyTorch's compiler would write to memory
/// for the same ones.
///
/// Each plan shows its kernels with what they read, write and are estimated to take, every decision
/// with its reason, and the places of operands with the estimate of each. Needs no GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The root of a crate, such as src/main.rs, for all of its `#[decode]` blocks; or an .ir
    /// file.
    path: PathBuf,

    /// Only the block of this name or path, such as `model::mlp`.
    #[arg(long, value_name = "NAME")]
    block: Option<String>,

    /// Rows of a call: the plan of the bucket that holds them. Without it, the plan of every
    /// bucket.
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// Only what is written between kernels, in bytes: by TorchInductor's rule of counted
    /// operations, and by the plan.
    #[arg(long)]
    compare: bool,

    /// Compare with the rule as it is without autotuning: matrix products of one row are calls of a
    /// library, too.
    #[arg(long)]
    no_autotune: bool,
}

/// Prints the plans; always true.
pub fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let rules = Rules { decomposes: !args.no_autotune, ..Rules::default() };
    for block in blocks::read(&args.path, args.block.as_deref())? {
        let buckets = block.graph.batch.as_ref().map_or(vec![0], |batch| batch.buckets());
        let wanted: Vec<usize> = match args.rows {
            Some(rows) if buckets != [0] => {
                let bucket = buckets.iter().find(|&&bucket| bucket >= rows);
                let most = buckets.last().copied().unwrap_or(0);
                vec![*bucket.ok_or_else(|| {
                    format!("{}: expected at most {most} rows, found {rows}", block.name)
                })?]
            }
            _ => buckets,
        };
        for rows in wanted {
            let graph = if rows == 0 { block.graph.clone() } else { block.graph.with_rows(rows) };
            let plan = compile(&graph, &Options::default())?;
            if !args.compare {
                print!("{}", plan.explain());
            }
            println!("{}", compare(&plan, &rules));
        }
    }
    Ok(true)
}
