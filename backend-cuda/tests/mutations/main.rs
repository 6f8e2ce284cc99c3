//! Mistakes that templates could have, made in their text one at a time: emulation catches every
//! one, and says what it is.

#[path = "../emulator/mod.rs"]
mod emulator;
mod table;

use emulator::{in_parallel, required};
use fuseline_core::ir::Graph;
use fuseline_core::oracle::Datum;
use fuseline_core::plan::{self, Plan};
use fuseline_core::random::random_args;
use fuseline_cuda::emulate::{self, Emulator, Error, FaultKind, Library, Options, blank_unread};
use std::collections::BTreeMap;
use table::{Caught, MUTANTS};

const BLOCKS: &[(&str, &str)] = &[
    ("attention", include_str!("blocks/attention.ir")),
    ("dense", include_str!("blocks/dense.ir")),
    ("embed", include_str!("blocks/embed.ir")),
    ("matrix", include_str!("blocks/matrix.ir")),
    ("mlp", include_str!("blocks/mlp.ir")),
    ("point", include_str!("blocks/point.ir")),
    ("rows", include_str!("blocks/rows.ir")),
];

/// A block for its largest bucket, with calls of the bucket full and of a row less.
struct Block {
    plan: Plan,
    source: String,
    calls: Vec<(usize, Vec<Datum>)>,
}

fn blocks() -> BTreeMap<&'static str, Block> {
    let block = |&(name, text): &(&'static str, &str)| {
        let graph = Graph::parse(text).unwrap();
        let rows = graph.rows();
        let plan = plan::compile(&graph, &plan::Options::default()).unwrap();
        let source = fuseline_cuda::emit::source(std::slice::from_ref(&plan));
        let less = graph.batch.is_some().then(|| rows - 1);
        let calls = [Some(rows), less].into_iter().flatten().map(|rows| {
            let mut args = random_args(&graph, rows, 3);
            // Late positions: a window and a history are there to be got wrong.
            for datum in &mut args {
                match datum {
                    Datum::Index { positions, sequences } => {
                        *positions = (0..rows).map(|row| 17 - 3 * row as i32).collect();
                        *sequences = (0..rows as i32).collect();
                    }
                    // Two equal maxima, which an argmax tells apart by their places.
                    Datum::Tensor(x) if name == "rows" && x.len() == 300 * rows => {
                        for row in x.chunks_mut(300) {
                            (row[7], row[201]) = (3.0, 3.0);
                        }
                    }
                    Datum::Tensor(x) if name == "rows" => {
                        (x[201], x[7]) = (1.0, 1.0);
                    }
                    _ => {}
                }
            }
            blank_unread(&graph, &mut args);
            (rows, args)
        });
        (name, Block { plan, source, calls: calls.collect() })
    };
    BLOCKS.iter().map(block).collect()
}

/// What a source does wrong: nothing, or the error that it ends with.
fn outcome(emulator: &Emulator, library: &Library, block: &Block) -> emulate::Result<()> {
    let mut process = emulator.start()?;
    let number = process.open(library)?;
    for (rows, args) in &block.calls {
        emulate::run(&mut process, number, &block.plan, *rows, args)?;
    }
    Ok(())
}

#[test]
fn the_blocks_themselves_are_right() {
    let Some(emulator) = required(Options::default()) else { return };
    for (name, block) in &blocks() {
        let library = emulator.compile(&[&block.source]).unwrap();
        outcome(&emulator, &library, block).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_mistake_is_caught() {
    let options = Options { limit_seconds: 3, ..Options::default() };
    let Some(emulator) = required(options) else { return };
    let blocks = blocks();
    let faults = in_parallel(MUTANTS, |mutant| {
        let what = mutant.what;
        let block = &blocks[mutant.block];
        if !block.source.contains(mutant.from) {
            return Err(format!(
                "{what}: the source of `{}` has no\n{}",
                mutant.block, mutant.from
            ));
        }
        let source = block.source.replacen(mutant.from, mutant.to, 1);
        let library = emulator.compile(&[&source]).map_err(|e| format!("{what}: {e}"))?;
        let found = outcome(&emulator, &library, block);
        let (caught, report) = match &found {
            Ok(()) => return Err(format!("{what}: not caught")),
            Err(Error::Fault(fault)) => (Caught::Fault(fault.kind), fault.to_string()),
            Err(Error::Mismatch(mismatch)) => (Caught::Mismatch, mismatch.to_string()),
            Err(error) => return Err(format!("{what}: {error}")),
        };
        println!("{what}:\n{report}\n");
        if let Err(Error::Fault(fault)) = &found {
            let (line, value) = (&fault.line, &fault.value);
            let race = matches!(fault.kind, FaultKind::Race | FaultKind::SharedRace);
            let other = fault.other.as_ref().and_then(|other| other.line.as_ref());
            // Of threads that have returned, only those that wait for them are somewhere.
            let placed = line.is_some() || fault.kind == FaultKind::DivergentBarrier;
            let known = placed && value.is_some() || fault.kind == FaultKind::Unwritten;
            if !known
                || other.is_none() && (race || line.is_none() && fault.kind != FaultKind::Unwritten)
            {
                return Err(format!("{what}: nothing says where: {report}"));
            }
        }
        match mutant.caught.contains(&caught) {
            true => Ok(()),
            false => Err(format!("{what}: expected {:?}, found {report}", mutant.caught)),
        }
    });
    let faults: Vec<String> = faults.into_iter().filter_map(Result::err).collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), MUTANTS.len(), faults.join("\n"));
}
