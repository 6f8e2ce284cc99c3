//! One call: its arguments are checked, and then its values are computed in order.

use super::{Datum, OracleError, attention, pointwise, row};
use crate::dtype::DType;
use crate::format::WeightFormat;
use crate::ir::{Dim, Graph, Op, Reduction, Type, ValueId, VerifyError};

/// Elements along each dim in a call of `rows` rows.
pub(super) fn live(shape: &[Dim], rows: usize) -> Vec<usize> {
    shape.iter().map(|dim| if dim.batch { rows } else { dim.size }).collect()
}

/// `value` rounded to `f32`, as every value of a block is, and then to `dtype`.
pub(super) fn round(dtype: DType, value: f64) -> f64 {
    let value = value as f32;
    match dtype {
        DType::F32 => f64::from(value),
        DType::F16 => half::f16::from_f32(value).to_f64(),
        DType::BF16 => half::bf16::from_f32(value).to_f64(),
        DType::I32 => f64::from(value as i32),
    }
}

/// Checks that the arguments are as the graph declares them.
pub(super) fn check(graph: &Graph, rows: usize, args: &[Datum]) -> Result<(), OracleError> {
    if args.len() != graph.args.len() {
        return Err(OracleError::ArgCount { expected: graph.args.len(), found: args.len() });
    }
    for (arg, datum) in graph.args.iter().zip(args) {
        let length = |what, expected: usize, found: usize| {
            if expected == found {
                return Ok(());
            }
            Err(OracleError::Length { arg: arg.name.to_string(), what, expected, found })
        };
        let fits = |dim: &Dim| {
            if dim.batch && rows > dim.size {
                return Err(OracleError::Rows { max: dim.size, found: rows });
            }
            Ok(())
        };
        match (&graph[arg.value].ty, datum) {
            (Type::Tensor { dtype, shape }, Datum::Scalar(_))
                if dtype.is_float() && shape.is_empty() => {}
            (Type::Tensor { dtype, shape }, Datum::Tensor(elements))
                if dtype.is_float() && !shape.is_empty() =>
            {
                shape.iter().try_for_each(fits)?;
                length("elements", live(shape, rows).iter().product(), elements.len())?;
            }
            (Type::Tensor { dtype: DType::I32, shape }, Datum::Tokens(tokens)) => {
                shape.iter().try_for_each(fits)?;
                length("tokens", live(shape, rows).iter().product(), tokens.len())?;
            }
            (Type::Weight { format, n, k }, Datum::Weight(packed)) => {
                check_format(format, k.size).map_err(|message| OracleError::Format {
                    arg: arg.name.to_string(),
                    message,
                })?;
                let n_groups = n.size * format.n_groups(k.size);
                let plane = |dtype: Option<DType>| n_groups * dtype.map_or(0, DType::bytes);
                let (scale, offset) =
                    format.group.map_or((None, None), |g| (Some(g.scale), g.offset));
                length("rows", n.size, packed.n)?;
                length("elements a row", k.size, packed.k)?;
                let code_bytes = n.size * format.code_row_bytes(k.size);
                length("bytes of codes", code_bytes, packed.codes.len())?;
                length("bytes of scales", plane(scale), packed.scales.len())?;
                length("bytes of offsets", plane(offset), packed.offsets.len())?;
            }
            (
                Type::Cache { batch, kv_heads, head_dim, capacity, .. },
                Datum::Cache { keys, values },
            ) => {
                let elements = batch.size * kv_heads.size * capacity.size * head_dim.size;
                length("elements of keys", elements, keys.len())?;
                length("elements of values", elements, values.len())?;
            }
            (Type::Index { rows: dim }, Datum::Index { positions, sequences }) => {
                fits(dim)?;
                let rows = if dim.batch { rows } else { dim.size };
                length("positions", rows, positions.len())?;
                length("sequences", rows, sequences.len())?;
            }
            (ty, datum) => {
                return Err(OracleError::Kind {
                    arg: arg.name.to_string(),
                    expected: kind(ty),
                    found: datum.kind(),
                });
            }
        }
    }
    Ok(())
}

fn check_format(format: &WeightFormat, k: usize) -> Result<(), String> {
    format.check()?;
    let group = format.group_size();
    if !k.is_multiple_of(group) {
        return Err(format!("a row of {k} elements does not divide into groups of {group}"));
    }
    Ok(())
}

/// The kind of datum that an argument of type `ty` is.
fn kind(ty: &Type) -> &'static str {
    match ty {
        Type::Tensor { dtype: DType::I32, .. } => "tokens",
        Type::Tensor { shape, .. } if shape.is_empty() => "a scalar",
        Type::Tensor { .. } => "a tensor",
        Type::Weight { .. } => "a weight",
        Type::Cache { .. } => "a cache",
        Type::Index { .. } => "an index",
    }
}

/// Whether elements are sums of many terms, whose last bits depend on the order.
fn is_summed(op: &Op) -> bool {
    match op {
        Op::Reduce(reduction) => *reduction != Reduction::Max,
        Op::Linear
        | Op::Softmax
        | Op::RmsNorm { .. }
        | Op::LayerNorm { .. }
        | Op::Rope { .. }
        | Op::Attend { .. } => true,
        _ => false,
    }
}

/// A call whose arguments have been checked.
pub(super) struct Call<'a> {
    graph: &'a Graph,
    rows: usize,
    args: &'a mut [Datum],
    /// Caches as this call leaves them, by the place of the argument.
    caches: Vec<Option<attention::Cache>>,
    /// Tensors that are known so far, by the place of the value.
    values: Vec<Option<Vec<f64>>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(graph: &'a Graph, rows: usize, args: &'a mut [Datum]) -> Call<'a> {
        let caches = graph.args.iter().zip(&*args);
        let caches = caches
            .map(|(arg, datum)| match (&graph[arg.value].ty, datum) {
                (ty, Datum::Cache { keys, values }) => attention::Cache::new(ty, keys, values),
                _ => None,
            })
            .collect();
        Call { graph, rows, args, caches, values: Vec::new() }
    }

    /// Computes every value, with what is summed `moved` before it is rounded, and stores the
    /// caches when nothing went wrong.
    pub(super) fn run(
        mut self,
        moved: &mut dyn FnMut(f64) -> f64,
    ) -> Result<Vec<Option<Vec<f64>>>, OracleError> {
        for id in self.graph.ids() {
            let mut value = self.compute(id)?;
            if let Some(elements) = &mut value {
                self.check_length(id, elements.len())?;
                if is_summed(&self.graph[id].op) {
                    elements.iter_mut().for_each(|element| *element = moved(*element));
                }
                let dtype = self.graph[id].ty.dtype();
                if dtype.is_float() {
                    elements.iter_mut().for_each(|element| *element = round(dtype, *element));
                }
            }
            self.values.push(value);
        }
        for (datum, cache) in self.args.iter_mut().zip(self.caches) {
            if let (Datum::Cache { keys, values }, Some(cache)) = (datum, cache) {
                (*keys, *values) = (cache.keys, cache.values);
            }
        }
        Ok(self.values)
    }

    /// A view can name another batch dim than its operand has, and then fit no call.
    fn check_length(&self, id: ValueId, found: usize) -> Result<(), OracleError> {
        let expected: usize = self.shape(id).iter().product();
        if expected == found {
            return Ok(());
        }
        let rows = self.rows;
        let message = format!("{found} elements in a call of {rows} rows, expected {expected}");
        Err(OracleError::Graph(vec![VerifyError { value: id, message }]))
    }

    /// The elements of a value before they are rounded to its type.
    fn compute(&mut self, id: ValueId) -> Result<Option<Vec<f64>>, OracleError> {
        let value = &self.graph[id];
        let shape = self.shape(id);
        let x = value.inputs.first().map_or(&[][..], |_| self.operand(id, 0));
        let x_shape = value.inputs.first().map_or(Vec::new(), |&input| self.shape(input));
        let elements = match &value.op {
            Op::Arg => return Ok(self.argument(id)),
            Op::Const(number) => vec![f64::from(*number)],
            Op::Pointwise(op) => {
                let operands: Vec<(&[f64], Vec<usize>)> = (0..value.inputs.len())
                    .map(|index| (self.operand(id, index), self.shape(value.inputs[index])))
                    .collect();
                pointwise::broadcast(*op, &operands, &shape)
            }
            Op::Cast(_) | Op::Reshape { .. } => x.to_vec(),
            Op::Reduce(reduction) => {
                row::each(x, &x_shape, |row| vec![row::reduce(*reduction, row)])
            }
            Op::Softmax => row::each(x, &x_shape, row::softmax),
            Op::Argmax => row::each(x, &x_shape, |row| vec![row::argmax(row) as f64]),
            Op::RmsNorm { eps } => {
                let weight = self.operand(id, 1);
                row::each(x, &x_shape, |row| row::rms_norm(row, weight, f64::from(*eps)))
            }
            Op::LayerNorm { eps } => {
                let (weight, bias) = (self.operand(id, 1), self.operand(id, 2));
                row::each(x, &x_shape, |row| row::layer_norm(row, weight, bias, f64::from(*eps)))
            }
            Op::Slice { start, len } => {
                row::each(x, &x_shape, |row| row[*start..start + len.size].to_vec())
            }
            Op::Linear => match (&self.graph[value.inputs[1]].ty, self.arg(value.inputs[1])) {
                (Type::Weight { format, .. }, Some(Datum::Weight(packed))) => {
                    row::linear(x, &x_shape, format, packed)
                }
                _ => Vec::new(),
            },
            Op::Dequantize => match (&self.graph[value.inputs[0]].ty, self.arg(value.inputs[0])) {
                (Type::Weight { format, .. }, Some(Datum::Weight(packed))) => {
                    let places = (0..packed.n).flat_map(|n| (0..packed.k).map(move |k| (n, k)));
                    places.map(|(n, k)| format.decode(packed, n, k)).collect()
                }
                _ => Vec::new(),
            },
            Op::Embed => match (&self.graph[value.inputs[1]].ty, self.arg(value.inputs[1])) {
                (Type::Weight { format, .. }, Some(Datum::Weight(packed))) => {
                    row::embed(x, format, packed)?
                }
                _ => Vec::new(),
            },
            Op::Rope { pairing, base, rotary } => {
                let (positions, _) = self.index(value.inputs[1]);
                attention::rope(x, &x_shape, positions, *pairing, *base, *rotary)
            }
            Op::Append => {
                let (k, v) = (self.operand(id, 1).to_vec(), self.operand(id, 2).to_vec());
                let (positions, sequences) = self.index(value.inputs[3]);
                let places = self.places(value.inputs[0], positions, sequences)?;
                if let Some(cache) = self.cache_place(id).and_then(|at| self.caches[at].as_mut()) {
                    cache.append(&k, &v, &places);
                }
                return Ok(None);
            }
            Op::Attend { scale, window, softcap, sinks, operand } => {
                let (positions, sequences) = self.index(value.inputs[2]);
                let places = self.places(value.inputs[1], positions, sequences)?;
                let attend = attention::Attend {
                    scale: f64::from(*scale),
                    window: *window,
                    softcap: softcap.map(f64::from),
                    sinks: sinks.then(|| self.operand(id, 3)),
                    operand: *operand,
                };
                let cache =
                    self.cache_place(value.inputs[1]).and_then(|at| self.caches[at].as_ref());
                cache.map_or(Vec::new(), |cache| attend.run(x, x_shape[1], cache, &places))
            }
        };
        Ok(Some(elements))
    }

    fn shape(&self, id: ValueId) -> Vec<usize> {
        live(self.graph[id].ty.shape(), self.rows)
    }

    /// The elements of operand `index`; none for operands that are no tensors.
    fn operand(&self, id: ValueId, index: usize) -> &[f64] {
        let input = self.graph[id].inputs[index];
        self.values[input.index()].as_deref().unwrap_or(&[])
    }

    fn arg_place(&self, id: ValueId) -> Option<usize> {
        self.graph.args.iter().position(|arg| arg.value == id)
    }

    fn arg(&self, id: ValueId) -> Option<&Datum> {
        self.arg_place(id).map(|at| &self.args[at])
    }

    fn argument(&self, id: ValueId) -> Option<Vec<f64>> {
        match self.arg(id)? {
            Datum::Scalar(number) => Some(vec![f64::from(*number)]),
            Datum::Tensor(elements) => Some(elements.clone()),
            Datum::Tokens(tokens) => Some(tokens.iter().map(|&token| f64::from(token)).collect()),
            Datum::Weight(_) | Datum::Cache { .. } | Datum::Index { .. } => None,
        }
    }

    /// Positions and sequences.
    fn index(&self, id: ValueId) -> (&[i32], &[i32]) {
        match self.arg(id) {
            Some(Datum::Index { positions, sequences }) => (positions, sequences),
            _ => (&[], &[]),
        }
    }

    /// The place of the cache argument that an append changes.
    fn cache_place(&self, append: ValueId) -> Option<usize> {
        self.arg_place(*self.graph[append].inputs.first()?)
    }

    /// Each row's sequence and position, which the cache has room for.
    fn places(
        &self,
        cache: ValueId,
        positions: &[i32],
        sequences: &[i32],
    ) -> Result<Vec<(usize, usize)>, OracleError> {
        let Type::Cache { batch, capacity, .. } = &self.graph[cache].ty else {
            return Ok(Vec::new());
        };
        let (sequences_max, capacity) = (batch.size, capacity.size);
        let within = |number: i32, size: usize| usize::try_from(number).ok().filter(|&n| n < size);
        let pairs = positions.iter().zip(sequences).enumerate();
        pairs
            .map(|(row, (&position, &sequence))| {
                let s = within(sequence, sequences_max).ok_or(OracleError::Sequence {
                    row,
                    sequence,
                    sequences: sequences_max,
                })?;
                let p = within(position, capacity).ok_or(OracleError::Position {
                    row,
                    position,
                    capacity,
                })?;
                Ok((s, p))
            })
            .collect()
    }
}
