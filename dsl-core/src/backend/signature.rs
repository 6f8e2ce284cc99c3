//! What a call has to bring: everything about it that shows without reading its buffers is
//! checked here, the same for every back end.
//!
//! Buffers are known by *handles*, in this order: those of the arguments (a tensor has one, a
//! weight three, a cache and an index two, a scalar none), then one for each result, then the
//! scratch memory.

use super::{BackendError, Binding, BufferRef, Call};
use crate::dtype::DType;
use crate::format::WeightLayout;
use crate::ir::{Dim, Graph, Type};
use std::fmt;
use std::sync::Arc;

/// A number of elements that depends on a call's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The product of the dims that are fixed.
    fixed: usize,
    /// How many dims are the batch dim.
    n_batch: u32,
}

impl Count {
    /// Elements of a shape.
    pub fn of(shape: &[Dim]) -> Count {
        let fixed = shape.iter().filter(|dim| !dim.batch).map(|dim| dim.size).product();
        Count { fixed, n_batch: shape.iter().filter(|dim| dim.batch).count() as u32 }
    }

    /// Elements in a call of `rows` rows.
    pub fn at(self, rows: usize) -> usize {
        self.fixed * rows.pow(self.n_batch)
    }
}

/// What a call has to bring.
#[derive(Clone, Debug)]
pub struct Signature {
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

/// One buffer of a call.
#[derive(Clone, Copy, Debug)]
pub struct Use<'a> {
    /// The buffer.
    pub buffer: &'a BufferRef,
    /// How many of its bytes, from the first on.
    pub bytes: usize,
    /// Whether the program may write them.
    pub writes: bool,
    /// What messages call it.
    pub what: What<'a>,
}

/// What messages call a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// An argument's.
    Arg(&'a str),
    /// One of several of an argument.
    Part(&'a str, &'static str),
    /// A result's.
    Output(usize),
    /// The scratch memory.
    Scratch,
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Arg(name) => write!(f, "`{name}`"),
            What::Part(name, part) => write!(f, "the {part} of `{name}`"),
            What::Output(index) => write!(f, "result {index}"),
            What::Scratch => f.write_str("the scratch memory"),
        }
    }
}

impl Signature {
    /// What calls of a graph's program of up to `rows` rows bring to a device that keeps weights in
    /// this layout.
    pub fn new(
        graph: &Graph,
        scratch_bytes: usize,
        rows: usize,
        layout: WeightLayout,
    ) -> Signature {
        let kind = |ty: &Type| match ty {
            Type::Tensor { dtype, shape } if shape.is_empty() && dtype.is_float() => {
                Kind::Scalar(*dtype)
            }
            Type::Tensor { dtype, shape } => {
                Kind::Tensor { count: Count::of(shape), dtype: *dtype }
            }
            Type::Weight { format, n, k } => {
                Kind::Weight { plane_bytes: format.plane_bytes(n.size, k.size, layout) }
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

    /// Checks a call.
    ///
    /// # Errors
    /// If it has too many rows, another number or kind of arguments, a buffer that is too small,
    /// or one that is both read and written.
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
        bound.check_alias()?;
        Ok(bound)
    }
}

/// A call whose buffers have the right kinds and sizes.
#[derive(Debug)]
pub struct Bound<'a> {
    /// Rows of the call.
    pub rows: usize,
    /// By handle.
    pub uses: Vec<Use<'a>>,
    /// By argument; 0 for arguments that are no scalars.
    pub scalars: Vec<f32>,
}

impl<'a> Bound<'a> {
    fn add_arg(&mut self, param: &'a Param, binding: &Binding<'a>) -> Result<(), BackendError> {
        let (rows, name) = (self.rows, &param.name);
        let mut scalar = 0.0;
        match (&param.kind, *binding) {
            (Kind::Scalar(dtype), Binding::Scalar(number)) => {
                scalar = dtype.round(f64::from(number)) as f32;
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
        if buffer.bytes() < bytes {
            return Err(BackendError::Size {
                what: what.to_string(),
                expected_bytes: bytes,
                found_bytes: buffer.bytes(),
            });
        }
        self.uses.push(Use { buffer, bytes, writes, what });
        Ok(())
    }

    fn check_alias(&self) -> Result<(), BackendError> {
        let address = |place: &Use<'_>| Arc::as_ptr(place.buffer).cast::<()>() as usize;
        let mut order: Vec<&Use<'_>> = self.uses.iter().collect();
        order.sort_by_key(|place| address(place));
        for pair in order.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            // An empty buffer may stand for everything that is empty.
            let shared = address(a) == address(b) && a.buffer.bytes() > 0;
            if shared && (a.writes || b.writes) {
                let what = if a.writes { a.what } else { b.what };
                return Err(BackendError::Alias { what: what.to_string() });
            }
        }
        Ok(())
    }
}

fn device_error(message: String) -> BackendError {
    BackendError::Device { message }
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
