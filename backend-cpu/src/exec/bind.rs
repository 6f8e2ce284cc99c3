//! A call's buffers: their kinds and sizes are checked, none is both read and written, and all of
//! them are locked while the program runs.
//!
//! Buffers are known by *handles*, which are given out at load: those of the arguments in order
//! (a tensor has one, a weight three, a cache and an index two, a scalar none), then one for each
//! result, then the scratch memory.

use super::device_error;
use super::frame::Count;
use super::gather::token_row;
use super::program::Program;
use crate::memory::{CpuBuffer, Storage};
use fuseline_core::backend::{BackendError, Binding, Buffer, BufferRef, Call};
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Graph, Type};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// What a call has to bring.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    args: Vec<Param>,
    outputs: Vec<(Count, DType)>,
    scratch_bytes: usize,
    /// The most rows, if the program has a batch dim; without one, a call's rows do not matter.
    max_rows: Option<usize>,
}

#[derive(Clone, Debug)]
struct Param {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Scalar(DType),
    Tensor { count: Count, dtype: DType },
    Weight { plane_bytes: [usize; 3] },
    Cache { bytes: usize },
    Index { rows: Count },
}

/// What else is checked before anything is written.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// Rows have places in a cache.
    Places { index: usize, rows: Count, sequences: usize, capacity: usize },
    /// Tokens have rows in a table.
    Tokens { handle: usize, count: Count, n_rows: usize },
}

/// One buffer of a call.
#[derive(Clone, Copy)]
struct Use<'a> {
    buffer: &'a CpuBuffer,
    writes: bool,
    what: What<'a>,
}

/// What messages call a buffer.
#[derive(Clone, Copy)]
enum What<'a> {
    Arg(&'a str),
    Part(&'a str, &'static str),
    Output(usize),
    Scratch,
}

impl What<'_> {
    fn text(self) -> String {
        match self {
            What::Arg(name) => format!("`{name}`"),
            What::Part(name, part) => format!("the {part} of `{name}`"),
            What::Output(index) => format!("result {index}"),
            What::Scratch => "the scratch memory".to_string(),
        }
    }
}

impl Signature {
    pub fn new(graph: &Graph, scratch_bytes: usize, rows: usize) -> Signature {
        let kind = |ty: &Type| match ty {
            Type::Tensor { dtype, shape } if shape.is_empty() && dtype.is_float() => {
                Kind::Scalar(*dtype)
            }
            Type::Tensor { dtype, shape } => {
                Kind::Tensor { count: Count::of(shape), dtype: *dtype }
            }
            Type::Weight { format, n, k } => {
                let n_groups = n.size * format.n_groups(k.size);
                let plane = |dtype: Option<DType>| n_groups * dtype.map_or(0, DType::bytes);
                Kind::Weight {
                    plane_bytes: [
                        n.size * format.code_row_bytes(k.size),
                        plane(format.group.map(|group| group.scale)),
                        plane(format.group.and_then(|group| group.offset)),
                    ],
                }
            }
            // Keys and values are buffers of their own.
            Type::Cache { .. } => Kind::Cache { bytes: ty.bytes() / 2 },
            Type::Index { rows } => Kind::Index { rows: Count::of(std::slice::from_ref(rows)) },
        };
        let args = graph.args.iter();
        let args = args
            .map(|arg| Param { name: arg.name.to_string(), kind: kind(&graph[arg.value].ty) })
            .collect();
        let output = |ty: &Type| (Count::of(ty.shape()), ty.dtype());
        Signature {
            args,
            outputs: graph.outputs.iter().map(|&id| output(&graph[id].ty)).collect(),
            scratch_bytes,
            max_rows: graph.values.iter().any(|value| value.ty.has_batch()).then_some(rows),
        }
    }

    /// The first handle of each argument, and of the results.
    pub fn handles(&self) -> (Vec<usize>, usize) {
        let mut next = 0;
        let mut first = Vec::with_capacity(self.args.len());
        for param in &self.args {
            first.push(next);
            next += match param.kind {
                Kind::Scalar(_) => 0,
                Kind::Tensor { .. } => 1,
                Kind::Weight { .. } => 3,
                Kind::Cache { .. } | Kind::Index { .. } => 2,
            };
        }
        (first, next)
    }

    /// Checks everything about a call that shows without reading its buffers.
    pub fn bind<'a>(&'a self, call: &'a Call<'a>) -> Result<Bound<'a>, BackendError> {
        if let Some(max) = self.max_rows
            && call.rows > max
        {
            let found = call.rows;
            return Err(device_error(format!("expected at most {max} rows, found {found}")));
        }
        let count = |what: &str, expected: usize, found: usize| {
            if expected == found {
                return Ok(());
            }
            Err(device_error(format!("expected {expected} {what}, found {found}")))
        };
        count("arguments", self.args.len(), call.args.len())?;
        count("results", self.outputs.len(), call.outputs.len())?;
        let mut bound = Bound { rows: call.rows, uses: Vec::new(), scalars: Vec::new() };
        for (param, binding) in self.args.iter().zip(call.args) {
            bound.add_arg(param, binding)?;
        }
        for (index, (output, (count, dtype))) in call.outputs.iter().zip(&self.outputs).enumerate()
        {
            let bytes = count.at(call.rows) * dtype.bytes();
            bound.add(output, bytes, true, What::Output(index))?;
        }
        bound.add(call.scratch, self.scratch_bytes, self.scratch_bytes > 0, What::Scratch)?;
        Ok(bound)
    }
}

/// A call whose buffers have the right kinds and sizes.
pub(super) struct Bound<'a> {
    pub rows: usize,
    /// By handle.
    uses: Vec<Use<'a>>,
    /// By argument; 0 for arguments that are no scalars.
    pub scalars: Vec<f32>,
}

impl<'a> Bound<'a> {
    fn add_arg(&mut self, param: &'a Param, binding: &Binding<'a>) -> Result<(), BackendError> {
        let (rows, name) = (self.rows, &param.name);
        let mut scalar = 0.0;
        match (&param.kind, *binding) {
            (Kind::Scalar(dtype), Binding::Scalar(number)) => {
                let mut rounded = [number];
                super::pointwise::round(*dtype, &mut rounded);
                scalar = rounded[0];
            }
            (Kind::Tensor { count, dtype }, Binding::Tensor(buffer)) => {
                self.add(buffer, count.at(rows) * dtype.bytes(), false, What::Arg(name))?;
            }
            (Kind::Weight { plane_bytes }, Binding::Weight { codes, scales, offsets }) => {
                let parts = [(codes, "codes"), (scales, "scales"), (offsets, "offsets")];
                for ((buffer, part), &bytes) in parts.into_iter().zip(plane_bytes) {
                    self.add(buffer, bytes, false, What::Part(name, part))?;
                }
            }
            (Kind::Cache { bytes }, Binding::Cache { keys, values }) => {
                self.add(keys, *bytes, true, What::Part(name, "keys"))?;
                self.add(values, *bytes, true, What::Part(name, "values"))?;
            }
            (Kind::Index { rows: count }, Binding::Index { positions, sequences }) => {
                let bytes = count.at(rows) * DType::I32.bytes();
                self.add(positions, bytes, false, What::Part(name, "positions"))?;
                self.add(sequences, bytes, false, What::Part(name, "sequences"))?;
            }
            (kind, binding) => {
                let (expected, found) = (kind.text(), binding_text(&binding));
                return Err(device_error(format!("`{name}` is {expected}, found {found}")));
            }
        }
        self.scalars.push(scalar);
        Ok(())
    }

    fn add(
        &mut self,
        buffer: &'a BufferRef,
        bytes: usize,
        writes: bool,
        what: What<'a>,
    ) -> Result<(), BackendError> {
        let buffer = CpuBuffer::of(buffer)?;
        if buffer.bytes() < bytes {
            return Err(BackendError::Size {
                what: what.text(),
                expected_bytes: bytes,
                found_bytes: buffer.bytes(),
            });
        }
        self.uses.push(Use { buffer, writes, what });
        Ok(())
    }

    /// Locks every buffer, each once and in the order of addresses, so that calls that share
    /// buffers wait for each other and never both.
    ///
    /// A thread of a rayon pool does not wait: while it waits for other threads it may have taken
    /// up this call in the middle of another one, which holds the buffer until this one ends.
    pub fn lock(&self) -> Result<Locked<'a>, BackendError> {
        let address = |handle: usize| std::ptr::from_ref(self.uses[handle].buffer) as usize;
        let mut order: Vec<usize> = (0..self.uses.len()).collect();
        order.sort_by_key(|&handle| address(handle));
        for pair in order.windows(2) {
            let (a, b) = (self.uses[pair[0]], self.uses[pair[1]]);
            // An empty buffer may stand for everything that is empty.
            let shared = std::ptr::eq(a.buffer, b.buffer) && a.buffer.bytes() > 0;
            if shared && (a.writes || b.writes) {
                let what = if a.writes { a.what } else { b.what };
                return Err(BackendError::Alias { what: what.text() });
            }
        }
        let waits = rayon::current_thread_index().is_none();
        let mut guards: Vec<Guard<'a>> = Vec::with_capacity(order.len());
        let mut places = vec![0; order.len()];
        let mut last = None;
        for handle in order {
            if last != Some(address(handle)) {
                last = Some(address(handle));
                let Use { buffer, writes, what } = self.uses[handle];
                let guard = if writes && buffer.bytes() > 0 {
                    buffer.lock_mut(waits).map(Guard::Write)
                } else {
                    buffer.lock(waits).map(Guard::Read)
                };
                guards.push(guard.ok_or_else(|| {
                    device_error(format!("{} is in use by another call", what.text()))
                })?);
            }
            places[handle] = guards.len() - 1;
        }
        Ok(Locked { guards, places })
    }
}

impl Kind {
    fn text(&self) -> &'static str {
        match self {
            Kind::Scalar(_) => "a scalar",
            Kind::Tensor { .. } => "a tensor",
            Kind::Weight { .. } => "a weight",
            Kind::Cache { .. } => "a cache",
            Kind::Index { .. } => "an index",
        }
    }
}

fn binding_text(binding: &Binding<'_>) -> &'static str {
    match binding {
        Binding::Scalar(_) => "a scalar",
        Binding::Tensor(_) => "a tensor",
        Binding::Weight { .. } => "a weight",
        Binding::Cache { .. } => "a cache",
        Binding::Index { .. } => "an index",
    }
}

/// The locks of a call.
pub(super) struct Locked<'a> {
    guards: Vec<Guard<'a>>,
    /// The guard of each handle.
    places: Vec<usize>,
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Storage>),
    Write(RwLockWriteGuard<'a, Storage>),
}

impl Locked<'_> {
    /// The bytes behind the locks, which other threads may work on.
    pub fn memory(&mut self) -> Memory<'_> {
        let bytes = self.guards.iter_mut().map(|guard| match guard {
            Guard::Read(storage) => Bytes::Read(storage.bytes()),
            Guard::Write(storage) => Bytes::Write(storage.bytes_mut()),
        });
        Memory { bytes: bytes.collect(), places: &self.places }
    }
}

/// The buffers of a call.
pub(super) struct Memory<'a> {
    bytes: Vec<Bytes<'a>>,
    /// Which of them each handle is.
    places: &'a [usize],
}

enum Bytes<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

impl<'a> Memory<'a> {
    /// The bytes of a buffer, which may be longer than its use; none while it is taken.
    pub fn bytes(&self, handle: usize) -> &[u8] {
        match &self.bytes[self.places[handle]] {
            Bytes::Read(bytes) => bytes,
            Bytes::Write(bytes) => bytes,
        }
    }

    /// Takes a buffer that is written, so that others can be read meanwhile; none of a buffer
    /// that is only read.
    pub fn take(&mut self, handle: usize) -> &'a mut [u8] {
        match &mut self.bytes[self.places[handle]] {
            Bytes::Read(_) => &mut [],
            Bytes::Write(bytes) => std::mem::take(bytes),
        }
    }

    /// Puts it back.
    pub fn put(&mut self, handle: usize, bytes: &'a mut [u8]) {
        if let place @ Bytes::Write(_) = &mut self.bytes[self.places[handle]] {
            *place = Bytes::Write(bytes);
        }
    }

    /// Checks what shows only in the buffers: positions, sequences, tokens.
    pub fn check(&self, program: &Program, rows: usize) -> Result<(), BackendError> {
        for check in &program.checks {
            match *check {
                Check::Places { index, rows: count, sequences, capacity } => {
                    let n = count.at(rows);
                    let integers =
                        |handle| super::frame::integers(self.bytes(handle)).iter().take(n);
                    let within = |name: &str, found: i32, limit: usize, row: usize| {
                        if usize::try_from(found).is_ok_and(|found| found < limit) {
                            return Ok(());
                        }
                        Err(device_error(format!(
                            "row {row} is at {name} {found}, expected 0 or more and less than {limit}"
                        )))
                    };
                    for (row, &position) in integers(index).enumerate() {
                        within("position", position, capacity, row)?;
                    }
                    for (row, &sequence) in integers(index + 1).enumerate() {
                        within("sequence", sequence, sequences, row)?;
                    }
                }
                Check::Tokens { handle, count, n_rows } => {
                    let tokens = super::frame::integers(self.bytes(handle));
                    for &token in tokens.iter().take(count.at(rows)) {
                        token_row(token, n_rows)?;
                    }
                }
            }
        }
        Ok(())
    }
}
