//! Calls that do not fit are refused with a reason, before anything is written.

mod device;

use device::{Arg, Loaded, buffer, load, read, upload};
use fuseline_core::backend::{Backend, BackendError, Buffer, BufferRef};
use fuseline_core::ir::Graph;
use fuseline_core::oracle::Datum;
use fuseline_core::random::random_args;
use fuseline_cpu::Cpu;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// The back end that is tested.
fn backend() -> &'static dyn Backend {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(Cpu::new)
}

const TEXT: &str = "block small
batch B 1..=4
arg %0 tokens input i32[B<=4]
arg %1 table weight Q8_0{10, 64}
arg %2 kv cache cache f32[B<=4, 2, 32, 8]
arg %3 pos input index[B<=4]
arg %4 scale input f32[]
%5 = embed %0 %1 : f32[B<=4, 64]
%6 = mul %5 %4 : f32[B<=4, 64]
%7 = reshape %6 shape=[B<=4, 2, 32] : f32[B<=4, 2, 32]
%8 = append %2 %7 %7 %3 : cache f32[B<=4, 2, 32, 8]
%9 = attend %7 %8 %3 scale=0.125 : f32[B<=4, 2, 32]
return %9
";

struct Fixture {
    loaded: Loaded,
    args: Vec<Arg>,
    outputs: Vec<BufferRef>,
    scratch: BufferRef,
}

fn fixture() -> Fixture {
    let graph = Graph::parse(TEXT).unwrap();
    let loaded = load(&graph, true);
    let args = upload(&graph, &random_args(&graph, 3, 5));
    let outputs = loaded.outputs();
    let scratch = Cpu::new().alloc(loaded.scratch_bytes).unwrap();
    Fixture { loaded, args, outputs, scratch }
}

impl Fixture {
    fn call(&self, rows: usize) -> Result<(), BackendError> {
        self.loaded.call(rows, &self.args, &self.outputs, &self.scratch)
    }

    /// The error of a call of three rows, which writes nothing.
    fn refuses(self) -> BackendError {
        let written = || -> Vec<Vec<u8>> {
            let caches = self.args.iter().filter_map(|arg| match arg {
                Arg::Cache(sides) => Some(sides),
                _ => None,
            });
            caches.flatten().chain(&self.outputs).chain([&self.scratch]).map(read_any).collect()
        };
        let before = written();
        let error = self.call(3).unwrap_err();
        assert_eq!(before, written(), "something was written");
        error
    }
}

fn read_any(buffer: &BufferRef) -> Vec<u8> {
    if buffer.as_any().is::<Foreign>() { Vec::new() } else { read(buffer) }
}

fn integers(values: &[i32]) -> BufferRef {
    buffer(bytemuck::cast_slice(values))
}

/// Memory of another device.
#[derive(Debug)]
struct Foreign;

impl Buffer for Foreign {
    fn bytes(&self) -> usize {
        1 << 20
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn message(error: BackendError) -> String {
    error.to_string()
}

#[test]
fn a_call_that_fits_runs() {
    fixture().call(3).unwrap();
    fixture().call(0).unwrap();
}

#[test]
fn more_rows_than_the_bucket() {
    assert_eq!(message(fixture().call(5).unwrap_err()), "expected at most 4 rows, found 5");
}

#[test]
fn too_few_arguments_and_results() {
    let mut missing = fixture();
    missing.args.pop();
    assert_eq!(message(missing.refuses()), "expected 5 arguments, found 4");
    let mut missing = fixture();
    missing.outputs.pop();
    assert_eq!(message(missing.refuses()), "expected 1 results, found 0");
}

#[test]
fn an_argument_of_another_kind() {
    let mut wrong = fixture();
    wrong.args[4] = wrong.args[0].clone();
    assert_eq!(message(wrong.refuses()), "`scale` is a scalar, found a tensor");
}

#[test]
fn small_buffers() {
    let size = |what: &str, expected_bytes, found_bytes| BackendError::Size {
        what: what.to_string(),
        expected_bytes,
        found_bytes,
    };
    let mut small = fixture();
    small.args[0] = Arg::Tensor(integers(&[1, 2]));
    assert_eq!(small.refuses(), size("`tokens`", 12, 8));
    let mut small = fixture();
    let Arg::Weight(planes) = &mut small.args[1] else { panic!("a weight") };
    planes[1] = buffer(&[0; 39]);
    assert_eq!(small.refuses(), size("the scales of `table`", 40, 39));
    let mut small = fixture();
    let Arg::Cache(sides) = &mut small.args[2] else { panic!("a cache") };
    sides[1] = buffer(&[0; 8191]);
    assert_eq!(small.refuses(), size("the values of `kv`", 8192, 8191));
    let mut small = fixture();
    let Arg::Index(sides) = &mut small.args[3] else { panic!("an index") };
    sides[1] = integers(&[0, 1]);
    assert_eq!(small.refuses(), size("the sequences of `pos`", 12, 8));
    let mut small = fixture();
    small.outputs[0] = buffer(&[0; 767]);
    assert_eq!(small.refuses(), size("result 0", 768, 767));
    let mut small = fixture();
    let expected = small.loaded.scratch_bytes;
    small.scratch = buffer(&vec![0; expected - 1]);
    assert_eq!(small.refuses(), size("the scratch memory", expected, expected - 1));
}

#[test]
fn buffers_of_another_device() {
    let foreign = BackendError::ForeignBuffer { device: Cpu::new().name() };
    let mut wrong = fixture();
    wrong.args[0] = Arg::Tensor(Arc::new(Foreign));
    assert_eq!(wrong.refuses(), foreign);
    let mut wrong = fixture();
    wrong.outputs[0] = Arc::new(Foreign);
    assert_eq!(wrong.refuses(), foreign);
    let buffer: BufferRef = Arc::new(Foreign);
    assert_eq!(Cpu::new().write(&buffer, 0, &[1]).unwrap_err(), foreign);
    assert_eq!(Cpu::new().read(&buffer, 0, &mut [1]).unwrap_err(), foreign);
}

#[test]
fn one_buffer_for_two_uses() {
    let is_alias = |error| matches!(error, BackendError::Alias { .. });
    let mut alias = fixture();
    let Arg::Cache(sides) = &mut alias.args[2] else { panic!("a cache") };
    sides[1] = sides[0].clone();
    assert!(is_alias(alias.refuses()));
    let mut alias = fixture();
    alias.scratch = alias.outputs[0].clone();
    let bytes = alias.scratch.bytes().max(alias.loaded.scratch_bytes);
    alias.outputs[0] = buffer(&vec![0; bytes]);
    alias.scratch = alias.outputs[0].clone();
    assert!(is_alias(alias.refuses()));
    let mut alias = fixture();
    let shared = buffer(&[0; 1024]);
    (alias.args[0], alias.outputs[0]) = (Arg::Tensor(shared.clone()), shared);
    assert_eq!(alias.refuses(), BackendError::Alias { what: "result 0".to_string() });
    // Reading one buffer twice is no harm.
    let mut shared = fixture();
    let Arg::Index(sides) = &mut shared.args[3] else { panic!("an index") };
    (sides[0], sides[1]) = (integers(&[0, 1, 2]), integers(&[0, 1, 2]));
    sides[0] = sides[1].clone();
    shared.call(3).unwrap();
}

#[test]
fn places_that_the_cache_does_not_have() {
    let with = |positions: &[i32], sequences: &[i32]| {
        let mut wrong = fixture();
        wrong.args[3] = Arg::Index([integers(positions), integers(sequences)]);
        message(wrong.refuses())
    };
    let range = |row, what, found, limit| {
        format!("row {row} is at {what} {found}, expected 0 or more and less than {limit}")
    };
    assert_eq!(with(&[0, 8, 1], &[0, 1, 2]), range(1, "position", 8, 8));
    assert_eq!(with(&[0, 1, -1], &[0, 1, 2]), range(2, "position", -1, 8));
    assert_eq!(with(&[0, 1, 2], &[4, 1, 2]), range(0, "sequence", 4, 4));
    assert_eq!(with(&[0, 1, 2], &[0, -7, 2]), range(1, "sequence", -7, 4));
}

#[test]
fn tokens_that_the_table_does_not_have() {
    for id in [10, -1, i32::MAX, i32::MIN] {
        let mut wrong = fixture();
        wrong.args[0] = Arg::Tensor(integers(&[3, id, 0]));
        assert_eq!(wrong.refuses(), BackendError::Token { id, n_rows: 10 });
    }
}

#[test]
fn copies_outside_a_buffer() {
    let buffer = buffer(&[1, 2, 3, 4]);
    let cpu = Cpu::new();
    assert!(matches!(cpu.write(&buffer, 3, &[0, 0]), Err(BackendError::Size { .. })));
    assert!(matches!(cpu.read(&buffer, usize::MAX, &mut [0]), Err(BackendError::Size { .. })));
    assert!(matches!(cpu.alloc(usize::MAX / 2), Err(BackendError::OutOfMemory { .. })));
    cpu.write(&buffer, 4, &[]).unwrap();
    assert_eq!(read(&buffer), [1, 2, 3, 4]);
}

#[test]
fn rows_that_are_not_in_the_call_may_hold_anything() {
    let graph = Graph::parse(TEXT).unwrap();
    let mut args = random_args(&graph, 2, 9);
    for datum in &mut args {
        match datum {
            Datum::Tokens(tokens) => tokens.extend([-5, 99]),
            Datum::Index { positions, sequences } => {
                positions.extend([-1, 1000]);
                sequences.extend([-1, 1000]);
            }
            _ => {}
        }
    }
    load(&graph, true).run(2, &mut args).unwrap();
}
