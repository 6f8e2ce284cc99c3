//! Runs graphs on a back end (the test's `crate::backend()`) with arguments as the oracle takes
//! them. Memory that a run should write is filled with NaNs before, and what lies behind it must
//! be untouched after.

use fuseline_core::backend::{BackendError, Binding, BufferRef, Call, Executable, Program};
use fuseline_core::ir::{Dim, Graph, Type};
use fuseline_core::oracle::Datum;
use fuseline_core::plan::{Options, compile};
use std::sync::Arc;

/// Bytes behind everything that is written.
const GUARD_BYTES: usize = 64;
const POISON: u8 = 0xFF;

/// A graph, planned and loaded.
pub struct Loaded {
    pub graph: Graph,
    pub executable: Box<dyn Executable>,
    pub scratch_bytes: usize,
}

/// An argument's buffers.
#[derive(Clone)]
pub enum Arg {
    Tensor(BufferRef),
    Weight([BufferRef; 3]),
    Cache([BufferRef; 2]),
    Index([BufferRef; 2]),
    Scalar(f32),
}

impl Arg {
    pub fn binding(&self) -> Binding<'_> {
        match self {
            Arg::Tensor(buffer) => Binding::Tensor(buffer),
            Arg::Weight([codes, scales, offsets]) => Binding::Weight { codes, scales, offsets },
            Arg::Cache([keys, values]) => Binding::Cache { keys, values },
            Arg::Index([positions, sequences]) => Binding::Index { positions, sequences },
            Arg::Scalar(number) => Binding::Scalar(*number),
        }
    }
}

pub fn load(graph: &Graph, fusion: bool) -> Loaded {
    let plan = compile(graph, &Options { fusion }).unwrap();
    let scratch_bytes = plan.scratch_bytes();
    let program = Program { plan: Arc::new(plan), cuda: "" };
    let executable = crate::backend().load(&program).unwrap();
    Loaded { graph: graph.clone(), executable, scratch_bytes }
}

/// Elements of a shape in a call of `rows` rows.
pub fn live(shape: &[Dim], rows: usize) -> usize {
    shape.iter().map(|dim| if dim.batch { rows } else { dim.size }).product()
}

pub fn buffer(bytes: &[u8]) -> BufferRef {
    let buffer = crate::backend().alloc(bytes.len()).unwrap();
    crate::backend().write(&buffer, 0, bytes).unwrap();
    buffer
}

/// `bytes`, and a guard behind them.
fn guarded(bytes: &[u8]) -> BufferRef {
    buffer(&[bytes, &[POISON; GUARD_BYTES]].concat())
}

pub fn read(buffer: &BufferRef) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes()];
    crate::backend().read(buffer, 0, &mut bytes).unwrap();
    bytes
}

/// The bytes before the guard, which is whole.
fn read_guarded(buffer: &BufferRef, bytes: usize, what: &str) -> Vec<u8> {
    let mut all = read(buffer);
    let guard = all.split_off(bytes);
    assert!(guard.iter().all(|&byte| byte == POISON), "{what}: bytes behind it were written");
    all
}

pub fn upload(graph: &Graph, args: &[Datum]) -> Vec<Arg> {
    let integers = |values: &[i32]| buffer(bytemuck::cast_slice(values));
    let one = |(arg, datum): (&fuseline_core::ir::Arg, &Datum)| {
        let dtype = graph[arg.value].ty.dtype();
        match datum {
            Datum::Scalar(number) => Arg::Scalar(*number),
            Datum::Tensor(values) => Arg::Tensor(buffer(&dtype.encode(values))),
            Datum::Tokens(tokens) => Arg::Tensor(integers(tokens)),
            Datum::Weight(packed) => {
                let Type::Weight { format, .. } = &graph[arg.value].ty else {
                    panic!("{} is no weight", arg.name)
                };
                let planes = packed.clone().arranged(format, crate::backend().weight_layout());
                Arg::Weight(planes.map(|plane| buffer(&plane)))
            }
            Datum::Cache { keys, values } => {
                Arg::Cache([keys, values].map(|side| guarded(&dtype.encode(side))))
            }
            Datum::Index { positions, sequences } => {
                Arg::Index([positions, sequences].map(|side| integers(side)))
            }
        }
    };
    graph.args.iter().zip(args).map(one).collect()
}

impl Loaded {
    /// Poisoned memory for the results, with room for as many rows as the graph allows.
    pub fn outputs(&self) -> Vec<BufferRef> {
        let outputs = self.graph.outputs.iter();
        outputs.map(|&id| guarded(&vec![POISON; self.graph[id].ty.bytes()])).collect()
    }

    pub fn call(
        &self,
        rows: usize,
        args: &[Arg],
        outputs: &[BufferRef],
        scratch: &BufferRef,
    ) -> Result<(), BackendError> {
        let args: Vec<Binding<'_>> = args.iter().map(Arg::binding).collect();
        let outputs: Vec<&BufferRef> = outputs.iter().collect();
        self.executable.run(&Call { rows, args: &args, outputs: &outputs, scratch })
    }

    /// Runs the graph, and gives its results; caches in `args` are updated.
    pub fn run(&self, rows: usize, args: &mut [Datum]) -> Result<Vec<Vec<f64>>, BackendError> {
        let graph = &self.graph;
        let uploaded = upload(graph, args);
        let outputs = self.outputs();
        let scratch = guarded(&vec![POISON; self.scratch_bytes]);
        self.call(rows, &uploaded, &outputs, &scratch)?;
        read_guarded(&scratch, self.scratch_bytes, "scratch");
        for ((arg, datum), found) in graph.args.iter().zip(args).zip(&uploaded) {
            if let (Datum::Cache { keys, values }, Arg::Cache(found)) = (datum, found) {
                let ty = &graph[arg.value].ty;
                let side =
                    |buffer| ty.dtype().decode(&read_guarded(buffer, ty.bytes() / 2, "cache"));
                (*keys, *values) = (side(&found[0]), side(&found[1]));
            }
        }
        let results = graph.outputs.iter().zip(&outputs).map(|(&id, buffer)| {
            let Type::Tensor { dtype, shape } = &graph[id].ty else { return Vec::new() };
            let live_bytes = live(shape, rows) * dtype.bytes();
            dtype.decode(&read_guarded(buffer, live_bytes, "a result"))
        });
        Ok(results.collect())
    }
}
