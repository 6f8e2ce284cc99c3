//! Caches: what calls write, and that nothing is written past their end.

use crate::blocks::spec;
use fuseline_runtime::args::{Argument, Output};
use fuseline_runtime::block::{Arena, Block, LoadOptions};
use fuseline_runtime::cache::{Index, KvCache};
use fuseline_runtime::device::Device;
use fuseline_runtime::error::{Error, Result};
use fuseline_runtime::tensor::Tensor;

/// Each row is its own query, key and value.
const STEP: &str = "\
block step
batch B 1..=2
arg %0 x input f32[B<=2, 1, 2]
arg %1 kv cache cache f32[B<=2, 1, 2, T:4]
arg %2 pos input index[B<=2]
%3 = neg %0 : f32[B<=2, 1, 2]
%4 = append %1 %0 %3 %2 : cache f32[B<=2, 1, 2, T:4]
%5 = attend %0 %4 %2 scale=1.0 : f32[B<=2, 1, 2]
return %5
";

type Kv = KvCache<f32, 2, 1, 2, 4>;
type X = Tensor<f32, 2, 1, 2>;

struct Step {
    block: Block,
    arena: Arena,
}

impl Step {
    fn new(device: &Device) -> Step {
        let block = Block::load(device, spec(STEP), LoadOptions::default()).unwrap();
        let arena = block.arena().unwrap();
        Step { block, arena }
    }

    fn call(&mut self, x: &[f32], kv: &mut Kv, pos: &Index<2>) -> Result<Vec<f32>> {
        let x = X::from_slice(self.block.device(), x)?;
        let args = [x.as_arg(), kv.as_arg(), pos.as_arg()];
        let mut out = X::with_rows(self.block.device(), self.block.rows(&args)?)?;
        self.block.run(&mut self.arena, &args, &mut [out.as_output()])?;
        out.to_vec()
    }
}

#[test]
fn the_fifth_append_to_a_capacity_of_four_is_refused() {
    let device = Device::cpu();
    let mut step = Step::new(&device);
    let mut kv = Kv::new(&device).unwrap();
    for position in 0..4 {
        let x = [position as f32 + 1.0, -0.5];
        step.call(&x, &mut kv, &Index::decode(&device, &[position]).unwrap()).unwrap();
    }
    // Sequence 0 holds what was appended, sequence 1 nothing.
    let keys = [[1.0, -0.5, 2.0, -0.5, 3.0, -0.5, 4.0, -0.5], [0.0; 8]].concat();
    let values: Vec<f32> = keys.iter().map(|key| if *key == 0.0 { 0.0 } else { -key }).collect();
    assert_eq!(kv.to_vecs().unwrap(), (keys.clone(), values.clone()));
    let fifth = Index::decode(&device, &[4]).unwrap();
    let error = step.call(&[9.0, 9.0], &mut kv, &fifth).unwrap_err();
    assert_eq!(
        error.to_string(),
        "position 4 of sequence 0 is beyond the capacity of `kv`, 4 positions"
    );
    assert!(matches!(error, Error::Position { position: 4, capacity: 4, .. }));
    // One row that does not fit is enough, and the other is not appended either.
    let half = Index::new(&device, &[(0, 1), (4, 0)]).unwrap();
    let error = step.call(&[9.0, 9.0, 8.0, 8.0], &mut kv, &half).unwrap_err();
    assert!(matches!(error, Error::Position { position: 4, sequence: 0, .. }), "{error}");
    assert_eq!(kv.to_vecs().unwrap(), (keys, values));
}

#[test]
fn sequences_are_the_caches() {
    let device = Device::cpu();
    let (mut step, mut kv) = (Step::new(&device), Kv::new(&device).unwrap());
    let third = Index::new(&device, &[(0, 2)]).unwrap();
    let error = step.call(&[1.0, 1.0], &mut kv, &third).unwrap_err();
    assert_eq!(error.to_string(), "sequence 2 is beyond the 2 sequences of `kv`");
}

#[test]
fn rows_attend_to_their_own_sequence() {
    let device = Device::cpu();
    let (mut step, mut kv) = (Step::new(&device), Kv::new(&device).unwrap());
    let both = Index::decode(&device, &[0, 0]).unwrap();
    // The only key of a sequence has weight 1, so each row gets its own value.
    let y = step.call(&[1.0, 2.0, -3.0, 0.5], &mut kv, &both).unwrap();
    assert_eq!(y, [-1.0, -2.0, 3.0, -0.5]);
    // Queries of zero weigh their keys alike: sequence 1 has values [3, -0.5] and [0, 0].
    let next = Index::new(&device, &[(1, 1)]).unwrap();
    assert_eq!(step.call(&[0.0, 0.0], &mut kv, &next).unwrap(), [1.5, -0.25]);
    kv.clear().unwrap();
    assert_eq!(kv.to_vecs().unwrap(), (vec![0.0; 16], vec![0.0; 16]));
    assert_eq!(kv.capacity(), 4);
}

#[test]
fn a_prompt_is_rows_of_one_sequence() {
    let device = Device::cpu();
    let mut step = Step::new(&device);
    let rows = [[0.0, 0.0], [0.0, 0.0]];
    let mut kv = Kv::new(&device).unwrap();
    let first = Index::prompt(&device, 1, 0..2).unwrap();
    step.call(&rows.concat(), &mut kv, &first).unwrap();
    // All keys are zero, so position 2 averages over three: -(0 + 0 + [3, 6]) / 3.
    let mut last =
        step.call(&[3.0, 6.0, 0.0, 0.0], &mut kv, &Index::new(&device, &[(2, 1), (3, 1)]).unwrap());
    let y = last.as_mut().unwrap();
    // exp(9 + 36) against twice exp(0): the own key takes all weight in f32.
    assert!((y[0] + 3.0).abs() < 1e-5 && (y[1] + 6.0).abs() < 1e-5, "{y:?}");
    // The last row's query is zero, so it weighs all four keys alike.
    assert_eq!(y[2..], [-0.75, -1.5]);
}

#[test]
fn two_rows_at_one_place_are_refused() {
    let device = Device::cpu();
    let (mut step, mut kv) = (Step::new(&device), Kv::new(&device).unwrap());
    let twice = Index::new(&device, &[(3, 1), (3, 1)]).unwrap();
    let error = step.call(&[1.0; 4], &mut kv, &twice).unwrap_err();
    assert_eq!(error.to_string(), "rows 0 and 1 are both position 3 of sequence 1");
    assert_eq!(kv.to_vecs().unwrap(), (vec![0.0; 16], vec![0.0; 16]));
}
