//! Loading blocks: digests, buckets, what a device keeps.

use crate::recorder::{Event, Recorder};
use fuseline_core::ir::Graph;
use fuseline_core::plan::{self, Options};
use fuseline_runtime::block::{Block, BlockSpec, LoadOptions};
use fuseline_runtime::error::Error;

/// Two operations that share a kernel when they may.
pub const MLP: &str = "\
block scale
batch B 1..=6
arg %0 x input f32[B<=6, D:3]
arg %1 w weight f32[D:3]
arg %2 alpha input f32[]
%3 = mul %0 %1 : f32[B<=6, D:3]
%4 = mul %3 %2 : f32[B<=6, D:3]
return %4
";

pub fn spec(ir: &'static str) -> BlockSpec {
    with_digest(ir, digest(ir))
}

fn with_digest(ir: &'static str, digest: u64) -> BlockSpec {
    BlockSpec { name: "scale", ir, cuda: "", digest }
}

/// The digest that a macro would write.
pub fn digest(ir: &str) -> u64 {
    let graph = Graph::parse(ir).unwrap();
    let rows = graph.batch.as_ref().map_or(Vec::new(), |batch| batch.buckets());
    let variants = match rows.is_empty() {
        true => vec![graph],
        false => rows.iter().map(|&rows| graph.with_rows(rows)).collect(),
    };
    let options = Options { fusion: true };
    let plans: Vec<_> =
        variants.iter().map(|graph| plan::compile(graph, &options).unwrap()).collect();
    plan::digest(ir, &plans)
}

#[test]
fn a_device_loads_each_bucket_once() {
    let (device, recorder) = Recorder::device();
    let spec = spec(MLP);
    let block = Block::load(&device, spec, LoadOptions::default()).unwrap();
    let load = |rows, launches| Event::Load { rows, launches };
    assert_eq!(recorder.take(), [load(1, 1), load(2, 1), load(4, 1), load(6, 1)]);
    assert_eq!(block.explain().matches("scale  rows ").count(), 4);
    Block::load(&device, spec, LoadOptions::default()).unwrap();
    assert_eq!(recorder.take(), []);
    // Other choices are another block, and the digest is still that of the fused plans.
    Block::load(&device, spec, LoadOptions::default().fusion(false)).unwrap();
    assert_eq!(recorder.take(), [load(1, 2), load(2, 2), load(4, 2), load(6, 2)]);
    // Another device has blocks of its own.
    let (other, other_recorder) = Recorder::device();
    Block::load(&other, spec, LoadOptions::default()).unwrap();
    assert_eq!(other_recorder.take().len(), 4);
}

#[test]
fn plans_of_other_versions_are_refused() {
    let (device, recorder) = Recorder::device();
    let error = Block::load(&device, with_digest(MLP, 1), LoadOptions::default()).unwrap_err();
    let expected_text = format!(
        "block `scale` was built as 0000000000000001, this version plans it as {:016x}: macro \
         and runtime are of different versions",
        digest(MLP)
    );
    assert_eq!(error.to_string(), expected_text);
    assert!(matches!(error, Error::Digest { expected: 1, .. }));
    let unfused = Block::load(&device, with_digest(MLP, 1), LoadOptions::default().fusion(false))
        .unwrap_err();
    assert!(matches!(unfused, Error::Digest { .. }));
    assert_eq!(recorder.take(), []);
}

#[test]
fn texts_that_are_no_blocks_are_refused() {
    let (device, _) = Recorder::device();
    let message = |ir| {
        let error = Block::load(&device, with_digest(ir, 0), LoadOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Block { .. }));
        error.to_string()
    };
    let text = message("block x\nnonsense\n");
    assert!(text.starts_with("block `scale`: line 2: "), "{text}");
    let text = message("block x\narg %0 x input f32[3]\n%1 = neg %0 : f32[4]\nreturn %1\n");
    assert!(text.contains("another type"), "{text}");
}
