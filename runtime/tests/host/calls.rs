//! Calls: which bucket runs, what is computed, and what is refused before anything runs.

use crate::blocks::{MLP, digest, spec};
use crate::recorder::{Event, Recorder};
use fuseline_runtime::private::{Argument, Block, Output};
use fuseline_runtime::{
    Arena, Device, Error, Index, KvCache, LoadOptions, Q8_0, Result, Scalar, Tensor, Tokens, Weight,
};

type X = Tensor<f32, 6, 3>;

/// The block on a device, as an expansion calls it.
struct Scale {
    block: Block,
    arena: Arena,
    w: Tensor<f32, 3>,
}

impl Scale {
    fn new(device: &Device) -> Scale {
        let block = Block::load(device, spec(MLP, digest(MLP)), LoadOptions::default()).unwrap();
        let arena = block.arena().unwrap();
        Scale { block, arena, w: Tensor::from_slice(device, &[1.0, 2.0, -4.0]).unwrap() }
    }

    fn call(&mut self, x: &X) -> Result<X> {
        let args = [x.as_arg(), self.w.as_arg(), Scalar(0.5).as_arg()];
        let rows = self.block.rows(&args)?;
        let mut out = X::with_rows(self.block.device(), rows)?;
        self.block.run(&mut self.arena, &args, &mut [out.as_output()])?;
        Ok(out)
    }

    fn call_into(&mut self, x: &X, out: &mut X) -> Result<()> {
        let args = [x.as_arg(), self.w.as_arg(), Scalar(0.5).as_arg()];
        self.block.run(&mut self.arena, &args, &mut [out.as_output()])
    }
}

fn x(device: &Device, rows: usize) -> X {
    let numbers: Vec<f32> = (0..rows * 3).map(|i| i as f32 + 1.0).collect();
    Tensor::from_slice(device, &numbers).unwrap()
}

#[test]
fn the_smallest_bucket_that_fits_runs() {
    let (device, recorder) = Recorder::device();
    let mut scale = Scale::new(&device);
    recorder.take();
    for (rows, bucket) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 6), (6, 6)] {
        let y = scale.call(&x(&device, rows)).unwrap();
        assert_eq!(y.shape(), [rows, 3]);
        let scratch_bytes = scale.arena.bytes();
        let run = Event::Run { bucket, rows, scalars: vec![0.5], scratch_bytes };
        assert_eq!(recorder.take(), [run]);
    }
}

#[test]
fn zero_rows_give_an_empty_result_and_no_run() {
    let (device, recorder) = Recorder::device();
    let mut scale = Scale::new(&device);
    recorder.take();
    let y = scale.call(&x(&device, 0)).unwrap();
    assert_eq!((y.shape(), y.to_vec().unwrap()), (vec![0, 3], vec![]));
    let mut out = X::zeros(&device).unwrap();
    scale.call_into(&x(&device, 0), &mut out).unwrap();
    assert_eq!((out.rows(), recorder.take()), (0, vec![]));
}

#[test]
fn the_cpu_computes_what_is_written() {
    let device = Device::cpu();
    let mut scale = Scale::new(&device);
    // x · [1, 2, -4] · 0.5, all exact.
    let y = scale.call(&x(&device, 3)).unwrap();
    let expected = [0.5, 2.0, -6.0, 2.0, 5.0, -12.0, 3.5, 8.0, -18.0];
    assert_eq!(y.to_vec().unwrap(), expected);
    let mut out = X::zeros(&device).unwrap();
    scale.call_into(&x(&device, 2), &mut out).unwrap();
    assert_eq!(out.to_vec().unwrap(), expected[..6]);
}

#[test]
fn results_go_to_memory_with_one_owner() {
    let device = Device::cpu();
    let mut scale = Scale::new(&device);
    let input = x(&device, 2);
    let before = input.to_vec().unwrap();
    let mut same = input.clone();
    let error = scale.call_into(&input, &mut same).unwrap_err();
    let text = "`x` and the result are the same memory, and the call writes it";
    assert_eq!(error.to_string(), text);
    assert_eq!(input.to_vec().unwrap(), before);
    let mut out = X::zeros(&device).unwrap();
    let kept = out.clone();
    let error = scale.call_into(&input, &mut out).unwrap_err();
    assert!(matches!(error, Error::Shared { .. }), "{error}");
    assert_eq!(kept.to_vec().unwrap(), [0.0; 18]);
    drop(kept);
    scale.call_into(&input, &mut out).unwrap();
    let mut small = x(&device, 1);
    let error = scale.call_into(&input, &mut small).unwrap_err();
    assert_eq!(error.to_string(), "the result has memory for 1 rows, but the call has 2");
}

#[test]
fn other_devices_memory_is_refused() {
    let (device, recorder) = Recorder::device();
    let mut scale = Scale::new(&device);
    recorder.take();
    let foreign = x(&Device::cpu(), 2);
    let error = scale.call(&foreign).unwrap_err();
    let text = "`x` is on the CPU, but the block is on the recorder; every device has memory of \
                its own";
    assert_eq!(error.to_string(), text);
    let mut out = X::zeros(&Device::cpu()).unwrap();
    let error = scale.call_into(&x(&device, 2), &mut out).unwrap_err();
    assert!(error.to_string().starts_with("the result is on the CPU"), "{error}");
    scale.arena = Scale::new(&Device::cpu()).arena;
    let error = scale.call(&x(&device, 2)).unwrap_err();
    assert!(error.to_string().starts_with("the arena is on the CPU"), "{error}");
    assert_eq!(recorder.take(), []);
}

/// Two rows at least, an index beside them, and a value that has to be stored.
const TURN: &str = "\
block turn
batch B 2..=4
arg %0 x input f32[B<=4, 64]
arg %1 w weight Q8_0{64, 64}
arg %2 pos input index[B<=4]
%3 = linear %0 %1 : f32[B<=4, 64]
%4 = linear %3 %1 : f32[B<=4, 64]
%5 = reshape %4 shape=[B<=4, 1, 64] : f32[B<=4, 1, 64]
%6 = rope %5 %2 pairing=Interleaved base=10000.0 rotary=64 : f32[B<=4, 1, 64]
return %6
";

#[test]
fn rows_agree_and_are_in_range() {
    let (device, _) = Recorder::device();
    let block = Block::load(&device, spec(TURN, 0), LoadOptions::default()).unwrap();
    let w: Weight<Q8_0, 64, 64> = Weight::quantize(&device, &[0.5; 64 * 64]).unwrap();
    let call = |x_rows: usize, index_rows: usize, arena: &mut Arena| {
        // Types of the program's own may have room for more rows than the block.
        let x: Tensor<f32, 8, 64> = Tensor::from_slice(&device, &vec![1.0; x_rows * 64]).unwrap();
        let pos = Index::<8>::prompt(&device, 0, 0..index_rows).unwrap();
        let args = [x.as_arg(), w.as_arg(), pos.as_arg()];
        let mut out: Tensor<f32, 8, 1, 64> = Tensor::with_rows(&device, block.rows(&args)?)?;
        block.run(arena, &args, &mut [out.as_output()])?;
        Ok::<usize, Error>(out.rows())
    };
    let mut arena = block.arena().unwrap();
    assert!(arena.bytes() > 0);
    assert_eq!(call(3, 3, &mut arena).unwrap(), 3);
    assert_eq!(call(0, 0, &mut arena).unwrap(), 0);
    let error = call(3, 2, &mut arena).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 3 rows, but `pos` has 2");
    let error = call(1, 1, &mut arena).unwrap_err();
    assert_eq!(error.to_string(), "`x`: expected 2 to 4 rows, found 1");
    let error = call(5, 5, &mut arena).unwrap_err();
    assert_eq!(error.to_string(), "`x`: expected 2 to 4 rows, found 5");
    // An arena of a block that needs none.
    let mut empty = Scale::new(&device).arena;
    let error = call(3, 3, &mut empty).unwrap_err();
    let needed = arena.bytes();
    let text = format!("the arena has 0 bytes, but the block `turn` needs {needed}");
    assert_eq!(error.to_string(), text);
}

#[test]
fn kinds_types_and_shapes_are_checked() {
    let (device, recorder) = Recorder::device();
    let block = Block::load(&device, spec(TURN, 0), LoadOptions::default()).unwrap();
    let mut arena = block.arena().unwrap();
    recorder.take();
    let x: Tensor<f32, 4, 64> = Tensor::zeros(&device).unwrap();
    let w: Weight<Q8_0, 64, 64> = Weight::quantize(&device, &[0.5; 64 * 64]).unwrap();
    let pos = Index::<4>::prompt(&device, 0, 0..4).unwrap();
    let narrow: Tensor<f32, 4, 32> = Tensor::zeros(&device).unwrap();
    let halves: Tensor<half::f16, 4, 64> = Tensor::zeros(&device).unwrap();
    let flat: Tensor<f32, 4> = Tensor::zeros(&device).unwrap();
    let dense: Weight<f32, 64, 64> = Weight::quantize(&device, &[0.5; 64 * 64]).unwrap();
    let tall: Weight<Q8_0, 32, 64> = Weight::quantize(&device, &[0.5; 32 * 64]).unwrap();
    let tokens = Tokens::<4>::new(&device, &[0; 4]).unwrap();
    let kv: KvCache<f32, 1, 1, 1, 1> = KvCache::new(&device).unwrap();
    let (x, w, pos) = (x.as_arg(), w.as_arg(), pos.as_arg());
    let number = Scalar(1.0);
    let cases = [
        ([narrow.as_arg(), w, pos], "`x`: expected shape [4, 64], found [4, 32]"),
        ([halves.as_arg(), w, pos], "`x`: expected f32, found f16"),
        ([flat.as_arg(), w, pos], "`x`: expected shape [4, 64], found [4]"),
        ([tokens.as_arg(), w, pos], "`x`: expected f32, found i32"),
        ([number.as_arg(), w, pos], "`x`: expected a `Tensor`, found a `Scalar`"),
        ([x, dense.as_arg(), pos], "`w`: expected Q8_0, found f32"),
        ([x, tall.as_arg(), pos], "`w`: expected shape [64, 64], found [32, 64]"),
        ([x, x, pos], "`w`: expected a `Weight`, found a `Tensor`"),
        ([x, w, kv.as_arg()], "`pos`: expected an `Index`, found a `KvCache`"),
        ([x, w, tokens.as_arg()], "`pos`: expected an `Index`, found `Tokens`"),
    ];
    for (args, text) in cases {
        let mut out: Tensor<f32, 4, 1, 64> = Tensor::zeros(&device).unwrap();
        let error = block.run(&mut arena, &args, &mut [out.as_output()]).unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    let error = block.run(&mut arena, &[x, w], &mut []).unwrap_err();
    assert_eq!(error.to_string(), "block `turn`: expected 3 arguments, found 2");
    let error = block.run(&mut arena, &[x, w, pos], &mut []).unwrap_err();
    assert_eq!(error.to_string(), "block `turn`: expected 1 results, found 0");
    let mut out: Tensor<f32, 4, 2, 64> = Tensor::zeros(&device).unwrap();
    let error = block.run(&mut arena, &[x, w, pos], &mut [out.as_output()]).unwrap_err();
    assert_eq!(error.to_string(), "the result: expected shape [4, 1, 64], found [4, 2, 64]");
    let mut out: Tensor<half::f16, 4, 1, 64> = Tensor::zeros(&device).unwrap();
    let error = block.run(&mut arena, &[x, w, pos], &mut [out.as_output()]).unwrap_err();
    assert_eq!(error.to_string(), "the result: expected f32, found f16");
    assert_eq!(recorder.take(), []);
}

/// Without a range there is one plan, and every tensor has all its rows.
const FIXED: &str = "\
block fixed
arg %0 x input f32[2, 3]
%1 = neg %0 : f32[2, 3]
return %1
";

#[test]
fn a_block_without_batch_dim_takes_all_rows() {
    let device = Device::cpu();
    let block = Block::load(&device, spec(FIXED, 0), LoadOptions::default()).unwrap();
    let mut arena = block.arena().unwrap();
    let mut call = |x: &Tensor<f32, 2, 3>| {
        let mut out: Tensor<f32, 2, 3> = Tensor::with_rows(&device, 2)?;
        block.run(&mut arena, &[x.as_arg()], &mut [out.as_output()])?;
        out.to_vec()
    };
    let full = Tensor::from_slice(&device, &[1.0, -2.0, 3.0, 0.25, 5.0, -6.0]).unwrap();
    assert_eq!(call(&full).unwrap(), [-1.0, 2.0, -3.0, -0.25, -5.0, 6.0]);
    let error = call(&Tensor::from_slice(&device, &[1.0; 3]).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "`x`: expected shape [2, 3], found [1, 3]");
}

/// Rows of a table by token, and each row's greatest element as a token.
const LOOK: &str = "\
block look
batch B 1..=4
arg %0 ids input i32[B<=4]
arg %1 table weight f32{V:5, D:2}
%2 = embed %0 %1 : f32[B<=4, D:2]
%3 = argmax %2 : i32[B<=4]
return %2 %3
";

#[test]
fn tokens_have_rows_in_the_table() {
    let device = Device::cpu();
    let block = Block::load(&device, spec(LOOK, 0), LoadOptions::default()).unwrap();
    let mut arena = block.arena().unwrap();
    let table = [0.0, 1.0, 3.0, 2.0, -1.0, -2.0, 8.0, 9.0, 5.0, 4.0];
    let table: Weight<f32, 5, 2> = Weight::quantize(&device, &table).unwrap();
    let mut call = |ids: &Tokens<4>| {
        let args = [ids.as_arg(), table.as_arg()];
        let rows = block.rows(&args)?;
        let mut out: Tensor<f32, 4, 2> = Tensor::with_rows(&device, rows)?;
        let mut best: Tokens<4> = Tokens::with_rows(&device, rows)?;
        block.run(&mut arena, &args, &mut [out.as_output(), best.as_output()])?;
        Ok::<_, Error>((out, best))
    };
    let (rows, best) = call(&Tokens::new(&device, &[4, 0, 3]).unwrap()).unwrap();
    assert_eq!(rows.to_vec().unwrap(), [5.0, 4.0, 0.0, 1.0, 8.0, 9.0]);
    assert_eq!(best.to_vec().unwrap(), [0, 1, 1]);
    // A result goes straight into the next call.
    let (rows, _) = call(&best).unwrap();
    assert_eq!(rows.to_vec().unwrap(), [0.0, 1.0, 3.0, 2.0, 3.0, 2.0]);
    let error = call(&Tokens::new(&device, &[4, 5]).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "`ids`: row 1 is token 5, expected one below 5");
}
