//! Prints the CUDA source of a graph in its text form: `emit FILE.ir [ROWS…]`. Without row counts,
//! of all its buckets.

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, compile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: emit FILE.ir [ROWS…]")?;
    let graph = Graph::parse(&std::fs::read_to_string(path)?)?;
    let mut rows: Vec<usize> = args.map(|n| n.parse()).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        rows = graph.batch.as_ref().map_or(vec![graph.rows()], |batch| batch.buckets());
    }
    let mut plans = Vec::new();
    for n in rows {
        plans.push(compile(&graph.with_rows(n), &Options::default())?);
    }
    print!("{}", fuseline_cuda::emit::source(&plans));
    Ok(())
}
