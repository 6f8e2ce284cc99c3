//! What a block's signature asks of a call, checked before the call runs.
//!
//! - Arguments and results are of the declared kinds, types and shapes.
//! - All arguments with the batch dim have the same rows, as many as the batch dim allows.
//! - All memory is the block's device's.
//! - Memory that is written is neither read nor written elsewhere, and has one owner.
//! - Every row's place is in every cache that it goes to, and every token in every table.

use crate::arena::Arena;
use crate::argument::{ArgRef, OutputRef, TensorArg};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Memory;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Graph, Op, Type, ValueId};
use std::sync::Arc;

/// What a call has to bring.
#[derive(Debug)]
pub(crate) struct Signature {
    graph: Graph,
    places: Vec<PlaceCheck>,
    tables: Vec<TableCheck>,
}

/// An index whose rows go to a cache.
#[derive(Debug, PartialEq)]
struct PlaceCheck {
    index: usize,
    cache: usize,
    sequences: usize,
    capacity: usize,
}

/// Tokens that choose rows of a table.
#[derive(Debug, PartialEq)]
struct TableCheck {
    tokens: usize,
    n_rows: usize,
}

impl Signature {
    pub fn new(graph: Graph) -> Signature {
        let arg = |value: ValueId| graph.args.iter().position(|arg| arg.value == value);
        let (mut places, mut tables) = (Vec::new(), Vec::new());
        for value in &graph.values {
            let (cache, index) = match (&value.op, value.inputs.as_slice()) {
                (Op::Append, &[cache, _, _, index]) => (cache, index),
                (Op::Attend { .. }, &[_, append, index, ..]) => {
                    (graph[append].inputs.first().copied().unwrap_or(append), index)
                }
                (Op::Embed, &[tokens, table]) => {
                    if let (Some(tokens), Type::Weight { n, .. }) =
                        (arg(graph.base(tokens)), &graph[table].ty)
                    {
                        tables.push(TableCheck { tokens, n_rows: n.size });
                    }
                    continue;
                }
                _ => continue,
            };
            if let (Some(index), Some(at), Type::Cache { batch, capacity, .. }) =
                (arg(index), arg(cache), &graph[cache].ty)
            {
                let (sequences, capacity) = (batch.size, capacity.size);
                let check = PlaceCheck { index, cache: at, sequences, capacity };
                if !places.contains(&check) {
                    places.push(check);
                }
            }
        }
        Signature { graph, places, tables }
    }

    /// Rows that the arguments with the batch dim have; 1 if there is no batch dim.
    pub fn rows(&self, args: &[ArgRef<'_>]) -> Result<usize> {
        self.check_count("arguments", self.graph.args.len(), args.len())?;
        let mut first: Option<(usize, &str)> = None;
        for (arg, given) in self.graph.args.iter().zip(args) {
            let (dim, rows) = match (&self.graph[arg.value].ty, given) {
                (Type::Tensor { shape, .. }, ArgRef::Tensor(tensor)) => {
                    (shape.first(), tensor.rows)
                }
                (Type::Index { rows }, ArgRef::Index(index)) => {
                    (Some(rows), index.places.rows.len())
                }
                // What does not fit is refused by `check`.
                _ => continue,
            };
            let Some(dim) = dim.filter(|dim| dim.batch) else { continue };
            match first {
                None => {
                    self.check_range(&arg.name, dim, rows)?;
                    first = Some((rows, &arg.name));
                }
                Some((first_rows, first)) if first_rows != rows => {
                    return Err(Error::RowsDiffer {
                        first: first.to_string(),
                        first_rows,
                        second: arg.name.to_string(),
                        second_rows: rows,
                    });
                }
                Some(_) => {}
            }
        }
        Ok(first.map_or(1, |(rows, _)| rows))
    }

    fn check_range(&self, name: &str, dim: &Dim, rows: usize) -> Result<()> {
        let min = self.graph.batch.as_ref().map_or(1, |batch| batch.min);
        if rows == 0 || (min..=dim.size).contains(&rows) {
            return Ok(());
        }
        Err(Error::Rows { what: format!("`{name}`"), min, max: dim.size, found: rows })
    }

    /// Checks a call of `rows` rows.
    pub fn check(
        &self,
        device: &Device,
        rows: usize,
        args: &[ArgRef<'_>],
        outputs: &[OutputRef<'_>],
    ) -> Result<()> {
        self.check_count("arguments", self.graph.args.len(), args.len())?;
        self.check_count("results", self.graph.outputs.len(), outputs.len())?;
        for (arg, given) in self.graph.args.iter().zip(args) {
            let what = format!("`{}`", arg.name);
            check_type(&what, &self.graph[arg.value].ty, rows, given)?;
            for (memory, _) in given.memories() {
                check_device(&what, device, memory.device())?;
            }
        }
        for (at, (&value, output)) in self.graph.outputs.iter().zip(outputs).enumerate() {
            let (what, ty) = (self.result_name(at), &self.graph[value].ty);
            check_dtype(&what, ty.dtype(), output.dtype)?;
            check_row(&what, ty.shape(), &output.dims.with_rows(output.dims.first()))?;
            check_device(&what, device, output.memory.device())?;
            let expected = live(ty.shape(), rows).first().copied().unwrap_or(1);
            let row_bytes = output.dims.row_elements("Tensor")? * output.dtype.bytes();
            let found = output.memory.bytes().checked_div(row_bytes).unwrap_or(usize::MAX);
            if found < expected {
                return Err(Error::Capacity { what, expected, found });
            }
        }
        self.check_aliases(args, outputs)?;
        self.check_places(args)?;
        self.check_tokens(args)
    }

    /// Checks that an arena has room and is the block's device's.
    pub fn check_arena(&self, device: &Device, arena: &Arena, expected_bytes: usize) -> Result<()> {
        check_device("the arena", device, arena.device())?;
        if arena.bytes() < expected_bytes {
            let (block, found_bytes) = (self.graph.name.clone(), arena.bytes());
            return Err(Error::Arena { block, expected_bytes, found_bytes });
        }
        Ok(())
    }

    /// Whether each result has the batch dim.
    pub fn batch_results(&self) -> impl Iterator<Item = bool> {
        self.graph.outputs.iter().map(|&output| self.graph[output].ty.has_batch())
    }

    fn result_name(&self, at: usize) -> String {
        match self.graph.outputs.len() {
            1 => "the result".to_string(),
            _ => format!("result {at}"),
        }
    }

    fn check_count(&self, what: &'static str, expected: usize, found: usize) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        Err(Error::Count { block: self.graph.name.clone(), what, expected, found })
    }

    fn check_aliases(&self, args: &[ArgRef<'_>], outputs: &[OutputRef<'_>]) -> Result<()> {
        let mut uses: Vec<(Name, &Memory, bool)> = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            uses.extend(arg.memories().into_iter().map(|(m, writes)| (Name::Arg(at), m, writes)));
        }
        uses.extend(
            outputs.iter().enumerate().map(|(at, o)| (Name::Result(at), &**o.memory, true)),
        );
        for (at, (second, memory, writes)) in uses.iter().enumerate() {
            let clash = uses[..at].iter().find(|(_, other, other_writes)| {
                memory.bytes() > 0 && memory.is(other) && (*writes || *other_writes)
            });
            if let Some((first, ..)) = clash {
                let (first, second) = (self.name(*first), self.name(*second));
                return Err(Error::Alias { first, second });
            }
        }
        match outputs.iter().position(|output| Arc::strong_count(output.memory) > 1) {
            Some(at) => Err(Error::Shared { what: self.result_name(at) }),
            None => Ok(()),
        }
    }

    fn name(&self, name: Name) -> String {
        match name {
            Name::Arg(at) => format!("`{}`", self.graph.args[at].name),
            Name::Result(at) => self.result_name(at),
        }
    }

    fn check_places(&self, args: &[ArgRef<'_>]) -> Result<()> {
        for check in &self.places {
            let ArgRef::Index(given) = &args[check.index] else { continue };
            let names = || {
                let [index, cache] =
                    [check.index, check.cache].map(|at| self.graph.args[at].name.to_string());
                (index, cache)
            };
            for (row, &(position, sequence)) in given.places.rows.iter().enumerate() {
                if sequence >= check.sequences {
                    let ((index, cache), sequences) = (names(), check.sequences);
                    return Err(Error::Sequence {
                        index,
                        cache,
                        row,
                        sequence,
                        position,
                        sequences,
                    });
                }
                if position >= check.capacity {
                    let ((index, cache), capacity) = (names(), check.capacity);
                    return Err(Error::Position {
                        index,
                        cache,
                        row,
                        sequence,
                        position,
                        capacity,
                    });
                }
            }
        }
        Ok(())
    }

    fn check_tokens(&self, args: &[ArgRef<'_>]) -> Result<()> {
        for check in &self.tables {
            let ArgRef::Tensor(TensorArg { tokens: Some(tokens), .. }) = &args[check.tokens] else {
                continue;
            };
            let late = tokens.iter().position(|&token| token as usize >= check.n_rows);
            if let Some(row) = late {
                return Err(Error::Token {
                    what: format!("`{}`", self.graph.args[check.tokens].name),
                    row,
                    found: tokens[row],
                    limit: check.n_rows,
                });
            }
        }
        Ok(())
    }
}

/// An argument or result, by its place.
#[derive(Clone, Copy)]
enum Name {
    Arg(usize),
    Result(usize),
}

/// The sizes of a shape in a call of `rows` rows.
fn live(shape: &[Dim], rows: usize) -> Vec<usize> {
    shape.iter().map(|dim| if dim.batch { rows } else { dim.size }).collect()
}

/// Checks an argument's kind, element type and shape.
fn check_type(what: &str, ty: &Type, rows: usize, given: &ArgRef<'_>) -> Result<()> {
    match (ty, given) {
        (Type::Tensor { dtype, shape }, ArgRef::Scalar(_))
            if shape.is_empty() && dtype.is_float() =>
        {
            Ok(())
        }
        (Type::Tensor { dtype, shape }, ArgRef::Tensor(tensor)) if !shape.is_empty() => {
            check_dtype(what, *dtype, tensor.dtype)?;
            check_shape(what, live(shape, rows), tensor.dims.with_rows(tensor.rows))
        }
        (Type::Weight { format, n, k }, ArgRef::Weight(weight)) => {
            let found = &weight.planes.format;
            check_kind(what, **format == *found, || match format.name == found.name {
                true => (format!("{format:?}"), format!("another `{}`: {found:?}", found.name)),
                false => (format.name.to_string(), found.name.to_string()),
            })?;
            check_shape(what, vec![n.size, k.size], weight.dims.as_slice().to_vec())
        }
        (Type::Cache { dtype, batch, kv_heads, head_dim, capacity }, ArgRef::Cache(cache)) => {
            check_dtype(what, *dtype, cache.dtype)?;
            let expected = [batch, kv_heads, capacity, head_dim].map(|dim| dim.size);
            check_shape(what, expected.to_vec(), cache.dims.as_slice().to_vec())
        }
        (Type::Index { rows: dim }, ArgRef::Index(index)) => {
            let expected = live(std::slice::from_ref(dim), rows);
            check_shape(what, expected, vec![index.places.rows.len()])
        }
        (
            Type::Tensor { .. } | Type::Weight { .. } | Type::Cache { .. } | Type::Index { .. },
            _,
        ) => check_kind(what, false, || (declared_kind(ty).to_string(), given.kind().to_string())),
    }
}

fn check_kind(what: &str, fits: bool, texts: impl Fn() -> (String, String)) -> Result<()> {
    if fits {
        return Ok(());
    }
    let (expected, found) = texts();
    Err(Error::Kind { what: what.to_string(), expected, found })
}

fn check_dtype(what: &str, expected: DType, found: DType) -> Result<()> {
    check_kind(what, expected == found, || (expected.to_string(), found.to_string()))
}

fn check_shape(what: &str, expected: Vec<usize>, found: Vec<usize>) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Shape { what: what.to_string(), expected, found })
}

/// Checks a result's shape; its type may have room for more rows than the batch dim.
fn check_row(what: &str, shape: &[Dim], found: &[usize]) -> Result<()> {
    let expected = live(shape, shape.first().map_or(1, |dim| dim.size));
    let fits = expected.len() == found.len()
        && expected.get(1..) == found.get(1..)
        && shape.first().is_none_or(|dim| dim.batch || found.first() == Some(&dim.size));
    if fits { Ok(()) } else { check_shape(what, expected, found.to_vec()) }
}

fn check_device(what: &str, expected: &Device, found: &Device) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.name(), found.name());
    Err(Error::Device { what: what.to_string(), expected, found })
}

fn declared_kind(ty: &Type) -> &'static str {
    match ty {
        Type::Tensor { dtype: DType::I32, .. } => "`Tokens`",
        Type::Tensor { shape, .. } if shape.is_empty() => "a `Scalar`",
        Type::Tensor { .. } => "a `Tensor`",
        Type::Weight { .. } => "a `Weight`",
        Type::Cache { .. } => "a `KvCache`",
        Type::Index { .. } => "an `Index`",
    }
}
