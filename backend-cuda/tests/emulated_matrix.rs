//! Linears on matrix instructions under emulation: where each weight goes, told by operands that
//! are one in one place; shapes that fill tiles and chunks and shapes that do not; operands of every
//! number of parts.

mod emulator;

use emulator::{in_parallel, required};
use fuseline_core::dtype::DType;
use fuseline_core::format::{FORMATS, Packed, WeightFormat};
use fuseline_core::ir::Graph;
use fuseline_core::oracle::{self, Datum};
use fuseline_core::plan::{Multiply, Options, Plan, Template, compile};
use fuseline_core::random::Rng;
use fuseline_cuda::emulate::{self, Emulator, Options as EmulatorOptions, Process};

/// A product of `rows` rows, of `dtype`.
fn block(format: &WeightFormat, (rows, n, k): (usize, usize, usize), dtype: DType) -> Graph {
    let text = format!(
        "block product
arg %0 x input {dtype}[R:{rows}, K:{k}]
arg %1 w weight {}{{N:{n}, K:{k}}}
%2 = linear %0 %1 : f32[R:{rows}, N:{n}]
return %2
",
        format.name
    );
    Graph::parse(&text).unwrap()
}

/// How a plan's one kernel multiplies.
fn multiply(plan: &Plan) -> (Multiply, bool) {
    match &plan.kernels()[0].structure.template {
        Template::Linear(linear) => (linear.multiply, linear.staged),
        other => panic!("{}", other.name()),
    }
}

/// A weight in which every code is somewhere, with scales and offsets that all differ.
fn weight(format: &WeightFormat, n: usize, k: usize) -> Packed {
    let n_codes = 1u64 << format.bits;
    let mut rng = Rng::new(3);
    let codes: Vec<u32> = (0..n * k)
        .map(|i| match format.code {
            fuseline_core::format::CodeMap::Float(dtype) => {
                let bytes = dtype.encode(&[rng.signed()]);
                bytes.iter().rev().fold(0, |code, &byte| code << 8 | u32::from(byte))
            }
            _ => (i as u64 * 7 % n_codes) as u32,
        })
        .collect();
    let n_groups = n * format.n_groups(k);
    let number = |i: usize| 0.5 + i as f32 / 64.0;
    let scales: Vec<f32> = (0..n_groups).map(number).collect();
    let has_offsets = format.group.is_some_and(|group| group.offset.is_some());
    let offsets: Vec<f32> = match has_offsets {
        true => (0..n_groups).map(|i| -3.0 - i as f32 / 32.0).collect(),
        false => Vec::new(),
    };
    let scales = if n_groups == 0 { Vec::new() } else { scales };
    format.pack_planes(&codes, &scales, &offsets, n, k).unwrap()
}

/// A plan, ready to be emulated.
struct Emulated<'a> {
    plan: &'a Plan,
    process: Process,
    library: usize,
}

impl<'a> Emulated<'a> {
    fn new(emulator: &Emulator, plan: &'a Plan) -> Emulated<'a> {
        let source = fuseline_cuda::emit::source(std::slice::from_ref(plan));
        let library = emulator.compile(&[&source]).unwrap();
        let mut process = emulator.start().unwrap();
        let library = process.open(&library).unwrap();
        Emulated { plan, process, library }
    }

    fn run(&mut self, rows: usize, args: &[Datum]) -> Vec<f64> {
        let run = emulate::run(&mut self.process, self.library, self.plan, rows, args);
        run.unwrap().results.into_iter().next().unwrap()
    }
}

fn tiled() -> Vec<&'static WeightFormat> {
    FORMATS.iter().copied().filter(|format| format.is_tiled()).collect()
}

#[test]
fn every_weight_is_multiplied_by_its_element() {
    let Some(emulator) = required(EmulatorOptions::default()) else { return };
    assert!(tiled().len() >= 11, "{}", tiled().len());
    let faults = in_parallel(&tiled(), |format| {
        // More rows than a tile, and two chunks.
        let (rows, n, k) = (16, 19, 256);
        let graph = block(format, (rows, n, k), DType::BF16);
        let plan = compile(&graph, &Options::default()).unwrap();
        assert_eq!(multiply(&plan).0, Multiply::Matrix { n_parts: 1 }, "{}", format.name);
        let packed = weight(format, n, k);
        let mut emulated = Emulated::new(&emulator, &plan);
        for first in (0..k).step_by(rows) {
            let mut x = vec![0.0; rows * k];
            (0..rows).for_each(|row| x[row * k + first + row] = 1.0);
            let args = [Datum::Tensor(x), Datum::Weight(packed.clone())];
            let found = emulated.run(rows, &args);
            for row in 0..rows {
                for output in 0..n {
                    let expected = format.decode(&packed, output, first + row);
                    let (found, place) = (found[row * n + output], (output, first + row));
                    // Scale and offset are rounded once each.
                    let off = (found - expected).abs();
                    if off > 2e-7 * expected.abs().max(16.0) {
                        return Err(format!(
                            "{} at {place:?}: {found}, not {expected}",
                            format.name
                        ));
                    }
                }
            }
        }
        Ok(())
    });
    let faults: Vec<_> = faults.into_iter().filter_map(Result::err).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn products_of_any_shape_are_right() {
    let Some(emulator) = required(EmulatorOptions::default()) else { return };
    let mut blocks = Vec::new();
    for (index, format) in tiled().into_iter().enumerate() {
        let group = format.group_size().max(8);
        let shapes = [
            (1, 1, group),
            (1, 16, 128),
            (2, 63, 3 * group),
            (3, 65, 5 * group),
            (5, 257, 128),
            (8, 33, 640),
            (17, 48, 384),
        ];
        for (at, &(rows, n, k)) in shapes.iter().enumerate() {
            if !k.is_multiple_of(group) {
                continue;
            }
            // All of them for some formats, some of them for all.
            if (index + at) % 2 == 0 || index < 4 {
                let dtype = if at % 2 == 0 { DType::F32 } else { DType::BF16 };
                blocks.push((format, (rows, n, k), dtype));
            }
        }
    }
    // Tasks of one warp each, and several rounds of them.
    blocks.push((tiled()[0], (1, 16 * 132 * 17 + 5, 32), DType::BF16));
    let faults = in_parallel(&blocks, |&(format, (rows, n, k), dtype)| {
        let name = format!("{} {rows} x {n} x {k} {dtype}", format.name);
        let graph = block(format, (rows, n, k), dtype);
        let plan = compile(&graph, &Options::default()).unwrap();
        if multiply(&plan).0 == Multiply::Lanes {
            return Err(format!("{name}: on lanes"));
        }
        let mut rng = Rng::new(11);
        let x = (0..rows * k).map(|_| dtype.round(rng.signed())).collect();
        let args = [Datum::Tensor(x), Datum::Weight(weight(format, n, k))];
        // The comparison with the oracle is the emulator's own.
        let found = Emulated::new(&emulator, &plan).run(rows, &args);
        let expected = oracle::run(&graph, rows, &mut args.to_vec()).unwrap().swap_remove(0);
        let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let pairs = expected.iter().zip(&found);
        let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale;
        if off > 2e-5 || found.len() != expected.len() {
            return Err(format!("{name}: off by {off:e}"));
        }
        Ok(())
    });
    let faults: Vec<_> = faults.into_iter().filter_map(Result::err).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Operands that do not fit in shared memory are read where they are; infinite ones stay so.
#[test]
fn operands_of_many_rows_are_read_where_they_are() {
    let Some(emulator) = required(EmulatorOptions::default()) else { return };
    let format = fuseline_core::format::builtin("Int4G128").unwrap();
    for (rows, dtype) in [(24, DType::BF16), (9, DType::F32)] {
        let (n, k) = (40, 4096);
        let graph = block(format, (rows, n, k), dtype);
        let plan = compile(&graph, &Options::default()).unwrap();
        assert!(matches!(multiply(&plan), (Multiply::Matrix { .. }, false)), "{rows} rows");
        let mut rng = Rng::new(5);
        let mut x: Vec<f64> = (0..rows * k).map(|_| dtype.round(rng.signed())).collect();
        x[3 * k + 77] = f64::INFINITY;
        let args = [Datum::Tensor(x), Datum::Weight(weight(format, n, k))];
        let found = Emulated::new(&emulator, &plan).run(rows, &args);
        let infinite = found.iter().filter(|x| !x.is_finite()).count();
        assert_eq!(infinite, n, "only of one row");
    }
}
