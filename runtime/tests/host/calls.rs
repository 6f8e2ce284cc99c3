//! Calls: which bucket runs, what is computed, and what is refused before anything runs.

use crate::blocks::{MLP, spec};
use crate::recorder::{Event, Recorder};
use fuseline_runtime::args::{Argument, Output};
use fuseline_runtime::block::{Arena, Block, LoadOptions};
use fuseline_runtime::cache::{Index, KvCache};
use fuseline_runtime::device::Device;
use fuseline_runtime::element::Q8_0;
use fuseline_runtime::error::{Error, Result};
use fuseline_runtime::tensor::{Scalar, Tensor, Tokens};
use fuseline_runtime::weight::Weight;

type X = Tensor<f32, 6, 3>;

/// The block on a device, as an expansion calls it.
struct Scale {
    block: Block,
    arena: Arena,
    w: Tensor<f32, 3>,
}

impl Scale {
    fn new(device: &Device) -> Scale {
        let block = Block::load(device, spec(MLP), LoadOptions::default()).unwrap();
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
        let run = Event::Run { bucket, rows, scalars: vec![0.5] };
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
    let mut out = X::zeros(&device, 6).unwrap();
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
    let mut out = X::zeros(&device, 6).unwrap();
    scale.call_into(&x(&device, 2), &mut out).unwrap();
    assert_eq!(out.to_vec().unwrap(), expected[..6]);
}

#[test]
fn results_do_not_go_to_an_arguments_memory() {
    let device = Device::cpu();
    let mut scale = Scale::new(&device);
    let input = x(&device, 2);
    let before = input.to_vec().unwrap();
    let mut same = input.clone();
    let error = scale.call_into(&input, &mut same).unwrap_err();
    assert_eq!(error.to_string(), "result 0 is written to the memory of `x`");
    assert_eq!(input.to_vec().unwrap(), before);
    // A call that is refused leaves its results' rows alone.
    let mut small = x(&device, 1);
    let error = scale.call_into(&input, &mut small).unwrap_err();
    assert_eq!(error.to_string(), "`result 0` takes 2 rows of 3 f32, found 12 bytes of f32");
    assert_eq!(small.rows(), 1);
}

#[test]
fn other_devices_memory_is_refused() {
    let (device, recorder) = Recorder::device();
    let mut scale = Scale::new(&device);
    recorder.take();
    let error = scale.call(&x(&Device::cpu(), 2)).unwrap_err();
    let text = "`x` is on another device than the block, the recorder";
    assert_eq!(error.to_string(), text);
    let mut out = X::zeros(&Device::cpu(), 6).unwrap();
    let error = scale.call_into(&x(&device, 2), &mut out).unwrap_err();
    assert!(matches!(error, Error::Device { ref name, .. } if name == "result 0"), "{error}");
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
    let (device, recorder) = Recorder::device();
    let block = Block::load(&device, spec(TURN), LoadOptions::default()).unwrap();
    let w: Weight<Q8_0, 64, 64> = Weight::quantize(&device, &[0.5; 64 * 64]).unwrap();
    recorder.take();
    let mut arena = block.arena().unwrap();
    let mut call = |x_rows: usize, index_rows: usize| {
        // Types of the program's own may have room for more rows than the block.
        let x: Tensor<f32, 8, 64> = Tensor::from_slice(&device, &vec![1.0; x_rows * 64]).unwrap();
        let pos = Index::<8>::prompt(&device, 0, 0..index_rows).unwrap();
        let args = [x.as_arg(), w.as_arg(), pos.as_arg()];
        let mut out: Tensor<f32, 8, 1, 64> = Tensor::with_rows(&device, block.rows(&args)?)?;
        block.run(&mut arena, &args, &mut [out.as_output()])?;
        Ok::<usize, Error>(out.rows())
    };
    assert_eq!(call(0, 0).unwrap(), 0);
    let error = call(3, 2).unwrap_err();
    assert_eq!(error.to_string(), "`pos` has 2 rows, expected 3");
    let error = call(5, 5).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 5 rows, expected 2 to 4");
    let error = call(1, 1).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 1 rows, expected 2 to 4");
    assert_eq!(recorder.take(), []);
    assert_eq!(call(3, 3).unwrap(), 3);
    assert_eq!(recorder.take(), [Event::Run { bucket: 4, rows: 3, scalars: vec![] }]);
}

#[test]
fn kinds_types_and_shapes_are_checked() {
    let (device, recorder) = Recorder::device();
    let block = Block::load(&device, spec(TURN), LoadOptions::default()).unwrap();
    let mut arena = block.arena().unwrap();
    recorder.take();
    let x: Tensor<f32, 4, 64> = Tensor::zeros(&device, 4).unwrap();
    let w: Weight<Q8_0, 64, 64> = Weight::quantize(&device, &[0.5; 64 * 64]).unwrap();
    let pos = Index::<4>::prompt(&device, 0, 0..4).unwrap();
    let narrow: Tensor<f32, 4, 32> = Tensor::zeros(&device, 4).unwrap();
    let halves: Tensor<half::f16, 4, 64> = Tensor::zeros(&device, 4).unwrap();
    let flat: Tensor<f32, 4> = Tensor::zeros(&device, 4).unwrap();
    let dense: Weight<f32, 64, 64> = Weight::quantize(&device, &[0.5; 64 * 64]).unwrap();
    let tall: Weight<Q8_0, 32, 64> = Weight::quantize(&device, &[0.5; 32 * 64]).unwrap();
    let tokens = Tokens::<4>::new(&device, &[0; 4]).unwrap();
    let kv: KvCache<f32, 1, 1, 1, 1> = KvCache::new(&device).unwrap();
    let number = Scalar(1.0);
    let (x, w, pos) = (|| x.as_arg(), || w.as_arg(), || pos.as_arg());
    let cases = [
        ("x", [narrow.as_arg(), w(), pos()]),
        ("x", [halves.as_arg(), w(), pos()]),
        ("x", [flat.as_arg(), w(), pos()]),
        ("x", [tokens.as_arg(), w(), pos()]),
        ("x", [number.as_arg(), w(), pos()]),
        ("w", [x(), dense.as_arg(), pos()]),
        ("w", [x(), tall.as_arg(), pos()]),
        ("w", [x(), x(), pos()]),
        ("pos", [x(), w(), kv.as_arg()]),
        ("pos", [x(), w(), tokens.as_arg()]),
    ];
    for (at, (wrong, args)) in cases.into_iter().enumerate() {
        let mut out: Tensor<f32, 4, 1, 64> = Tensor::zeros(&device, 4).unwrap();
        let error = block.run(&mut arena, &args, &mut [out.as_output()]).unwrap_err();
        assert!(matches!(error, Error::Kind { ref name, .. } if name == wrong), "{at}: {error}");
    }
    let error = block.run(&mut arena, &[x(), w()], &mut []).unwrap_err();
    assert_eq!(error.to_string(), "block `turn` has 3 arguments, found 2");
    let error = block.run(&mut arena, &[x(), w(), pos()], &mut []).unwrap_err();
    assert_eq!(error.to_string(), "block `turn` has 1 results, found 0");
    let mut out: Tensor<half::f16, 4, 1, 64> = Tensor::zeros(&device, 4).unwrap();
    let error = block.run(&mut arena, &[x(), w(), pos()], &mut [out.as_output()]).unwrap_err();
    assert!(matches!(error, Error::Kind { ref name, .. } if name == "result 0"), "{error}");
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
    let block = Block::load(&device, spec(FIXED), LoadOptions::default()).unwrap();
    let mut arena = block.arena().unwrap();
    let mut call = |x: &Tensor<f32, 2, 3>| {
        let mut out: Tensor<f32, 2, 3> = Tensor::with_rows(&device, 2)?;
        block.run(&mut arena, &[x.as_arg()], &mut [out.as_output()])?;
        out.to_vec()
    };
    let full = Tensor::from_slice(&device, &[1.0, -2.0, 3.0, 0.25, 5.0, -6.0]).unwrap();
    assert_eq!(call(&full).unwrap(), [-1.0, 2.0, -3.0, -0.25, -5.0, 6.0]);
    let error = call(&Tensor::from_slice(&device, &[1.0; 3]).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Kind { ref name, .. } if name == "x"), "{error}");
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
    let block = Block::load(&device, spec(LOOK), LoadOptions::default()).unwrap();
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
    assert_eq!(error.to_string(), "token id 5 is not in a table of 5 rows");
}

/// Two results of one type.
const PAIR: &str = "\
block pair
arg %0 x input f32[2, 3]
%1 = neg %0 : f32[2, 3]
%2 = exp %1 : f32[2, 3]
return %1 %2
";

#[test]
fn results_do_not_share_memory() {
    let (device, recorder) = Recorder::device();
    let block = Block::load(&device, spec(PAIR), LoadOptions::default()).unwrap();
    let mut arena = block.arena().unwrap();
    recorder.take();
    let x: Tensor<f32, 2, 3> = Tensor::zeros(&device, 2).unwrap();
    let mut first: Tensor<f32, 2, 3> = Tensor::zeros(&device, 2).unwrap();
    let mut second = first.clone();
    let outputs = &mut [first.as_output(), second.as_output()];
    let error = block.run(&mut arena, &[x.as_arg()], outputs).unwrap_err();
    assert_eq!(error.to_string(), "result 1 is written to the memory of `result 0`");
    assert_eq!(recorder.take(), []);
}
