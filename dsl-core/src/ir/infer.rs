//! Types: what each operation makes of its operands, and what it does not take.

use super::dim::{Dim, Shape, elements, show};
use super::{Op, Type};
use crate::diag::{Code, Diagnostic};
use crate::dtype::DType;
use crate::format::WeightFormat;

/// Elements of a head whose sums fit into a block's shared memory on every target.
const MAX_HEAD_DIM: usize = 4096;

type Inferred = Result<Type, Diagnostic>;

/// The type of `op` on operands of types `inputs`.
///
/// # Errors
/// A diagnostic at the operand that does not fit, with both shapes in the user's dim names.
pub fn infer(op: &Op, inputs: &[&Type]) -> Inferred {
    let arity = match op {
        Op::Arg | Op::Const(_) => 0,
        Op::Pointwise(op) => op.arity(),
        Op::Cast(_) | Op::Reduce(_) | Op::Softmax | Op::Argmax | Op::Dequantize => 1,
        Op::Slice { .. } | Op::Reshape { .. } => 1,
        Op::RmsNorm { .. } | Op::Linear | Op::Rope { .. } | Op::Embed => 2,
        Op::LayerNorm { .. } => 3,
        Op::Append => 4,
        Op::Attend { sinks, .. } => 3 + usize::from(*sinks),
    };
    if inputs.len() != arity {
        return Err(Diagnostic::new(
            Code::ArgCount,
            format!("`{}` takes {arity} operands, found {}", op.name(), inputs.len()),
            "",
        ));
    }
    match op {
        Op::Arg => Err(Diagnostic::new(Code::Kind, "an argument's type is declared", "")),
        Op::Const(_) => Ok(Type::tensor(DType::F32, Vec::new())),
        Op::Pointwise(_) => pointwise(op, inputs),
        Op::Cast(dtype) => {
            let (_, shape) = float(op, inputs, 0)?;
            if !dtype.is_float() {
                return Err(Diagnostic::new(
                    Code::DType,
                    format!("`to` cannot round to {dtype}"),
                    "round to f32, f16 or bf16",
                ));
            }
            Ok(Type::tensor(*dtype, shape.to_vec()))
        }
        Op::Reduce(_) => {
            let mut shape = row(op, inputs)?.to_vec();
            if let Some(last) = shape.last_mut() {
                *last = Dim::literal(1);
            }
            Ok(Type::tensor(DType::F32, shape))
        }
        Op::Softmax => Ok(Type::tensor(DType::F32, row(op, inputs)?.to_vec())),
        Op::Argmax => {
            let shape = row(op, inputs)?;
            Ok(Type::tensor(DType::I32, shape[..shape.len() - 1].to_vec()))
        }
        Op::RmsNorm { .. } => norm(op, inputs, &["weight"]),
        Op::LayerNorm { .. } => norm(op, inputs, &["weight", "bias"]),
        Op::Linear => linear(op, inputs),
        Op::Slice { start, len } => slice(op, inputs, *start, len),
        Op::Reshape { shape } => reshape(op, inputs, shape),
        Op::Rope { base, rotary, .. } => rope(op, inputs, *base, *rotary),
        Op::Append => append(op, inputs),
        Op::Attend { .. } => attend(op, inputs),
        Op::Embed => embed(op, inputs),
        Op::Dequantize => match inputs[0] {
            Type::Weight { n, k, .. } => Ok(Type::tensor(DType::F32, vec![n.clone(), k.clone()])),
            _ => Err(Diagnostic::new(Code::Kind, "`dequantize` takes a weight", "")),
        },
    }
}

fn pointwise(op: &Op, inputs: &[&Type]) -> Inferred {
    let mut shape: Shape = Vec::new();
    for index in 0..inputs.len() {
        let (_, operand) = float(op, inputs, index)?;
        shape = broadcast(&shape, operand).ok_or_else(|| {
            let wide = inputs[..index].iter().map(|ty| ty.shape()).max_by_key(|s| s.len());
            Diagnostic::new(
                Code::Shape,
                format!(
                    "shape mismatch in `{}`: {} against {}",
                    op.name(),
                    show(wide.unwrap_or(&[])),
                    show(operand)
                ),
                "dims are compared from the right; two dims fit if they are equal or one of them is 1",
            )
            .at_operand(index)
        })?;
    }
    if let Some(batch) = shape.iter().skip(1).find(|dim| dim.batch) {
        return Err(Diagnostic::new(
            Code::Batch,
            format!("`{}` has {} dims before {batch}", op.name(), shape.len() - 1),
            "the batch dim is the first of every shape",
        ));
    }
    Ok(Type::tensor(DType::F32, shape))
}

/// The shape of two shapes side by side, compared from the right.
pub(crate) fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let dim = |shape: &[Dim], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map(|i| shape[i].clone())
    };
    (0..rank)
        .map(|axis| match (dim(a, axis), dim(b, axis)) {
            (Some(x), Some(y)) if x == y => Some(if x.label.is_empty() { y } else { x }),
            (Some(x), Some(y)) if y.size == 1 && !y.batch => Some(x),
            (Some(x), Some(y)) if x.size == 1 && !x.batch => Some(y),
            (Some(_), Some(_)) => None,
            (Some(x), None) | (None, Some(x)) => Some(x),
            (None, None) => None,
        })
        .collect()
}

fn norm(op: &Op, inputs: &[&Type], names: &[&str]) -> Inferred {
    let shape = row(op, inputs)?.to_vec();
    let width = &shape[shape.len() - 1];
    for (index, name) in (1..).zip(names) {
        let (_, operand) = float(op, inputs, index)?;
        if operand.len() != 1 || operand[0] != *width {
            return Err(Diagnostic::new(
                Code::Shape,
                format!(
                    "the {name} of `{}` has shape {}, a row has {width}",
                    op.name(),
                    show(operand)
                ),
                format!("declare it as `Tensor<f32, {}>`", word(width)),
            )
            .at_operand(index));
        }
    }
    Ok(Type::tensor(DType::F32, shape))
}

fn linear(op: &Op, inputs: &[&Type]) -> Inferred {
    let mut shape = row(op, inputs)?.to_vec();
    let Type::Weight { format, n, k } = inputs[1] else {
        return Err(kind(op, 1, "a `Weight`", inputs[1]));
    };
    let width = &shape[shape.len() - 1];
    if width != k {
        let help = if width == n {
            "weights are `[out, in]`; this one looks like `[in, out]`".to_string()
        } else {
            format!("declare the weight as `Weight<{}, {}, {}>`", format.name, word(n), word(width))
        };
        return Err(Diagnostic::new(
            Code::Shape,
            format!(
                "shape mismatch in `linear`: a row of the input has {width} elements, a row of the weight {k}"
            ),
            help,
        )
        .at_operand(1));
    }
    whole_groups(format, k)?;
    let last = shape.len() - 1;
    shape[last] = n.clone();
    Ok(Type::tensor(DType::F32, shape))
}

fn slice(op: &Op, inputs: &[&Type], start: usize, len: &Dim) -> Inferred {
    let (dtype, shape) = float(op, inputs, 0)?;
    let (Some(width), end) = (shape.last(), start.checked_add(len.size)) else {
        return Err(rank(op, 0, "at least one dim", shape));
    };
    if width.batch || end.is_none_or(|end| end > width.size) || len.size == 0 {
        return Err(Diagnostic::new(
            Code::Shape,
            format!("elements {start}..{} of a row of {width}", end.unwrap_or(usize::MAX)),
            "the parts of a split add up to the row",
        ));
    }
    let mut shape = shape.to_vec();
    let last = shape.len() - 1;
    shape[last] = len.clone();
    Ok(Type::tensor(dtype, shape))
}

fn reshape(op: &Op, inputs: &[&Type], shape: &Shape) -> Inferred {
    let (dtype, from) = float(op, inputs, 0)?;
    // The batch dim keeps its place: rows of a call are not a number known at build time.
    let lead = |shape: &[Dim]| shape.first().filter(|dim| dim.batch).map(|dim| dim.size);
    let fits = lead(from) == lead(shape)
        && shape.iter().skip(1).all(|dim| !dim.batch)
        && elements(from) == elements(shape);
    if !fits {
        return Err(Diagnostic::new(
            Code::Shape,
            format!(
                "{} has {} elements, {} has {}",
                show(from),
                elements(from),
                show(shape),
                elements(shape)
            ),
            "a view keeps the number of elements, and the batch dim first",
        ));
    }
    Ok(Type::tensor(dtype, shape.clone()))
}

fn rope(op: &Op, inputs: &[&Type], base: f64, rotary: usize) -> Inferred {
    let (_, shape) = float(op, inputs, 0)?;
    let Type::Index { rows } = inputs[1] else {
        return Err(kind(op, 1, "an `Index`", inputs[1]));
    };
    if shape.len() != 3 {
        return Err(Diagnostic::new(
            Code::Rank,
            format!("`rope` rotates `[rows, heads, head_dim]`, found {}", show(shape)),
            "split the row into heads first, with `.heads(n)`",
        )
        .at_operand(0));
    }
    same_rows(op, &shape[0], rows, 1)?;
    if rotary == 0 || !rotary.is_multiple_of(2) || rotary > shape[2].size {
        return Err(Diagnostic::new(
            Code::Literal,
            format!("{rotary} rotated elements of a head of {}", shape[2]),
            "an even number, at most the head's size",
        ));
    }
    if !(base.is_finite() && base >= 1.0) {
        return Err(Diagnostic::new(
            Code::Literal,
            format!("a rotation base of {base}"),
            "the base is a finite number of at least 1, such as 10_000.0",
        ));
    }
    Ok(Type::tensor(DType::F32, shape.to_vec()))
}

fn append(op: &Op, inputs: &[&Type]) -> Inferred {
    let Type::Cache { kv_heads, head_dim, batch, .. } = inputs[0] else {
        return Err(kind(op, 0, "a `KvCache`", inputs[0]));
    };
    let Type::Index { rows } = inputs[3] else {
        return Err(kind(op, 3, "an `Index`", inputs[3]));
    };
    for index in [1, 2] {
        let (_, shape) = float(op, inputs, index)?;
        if shape.len() != 3 || shape[1] != *kv_heads || shape[2] != *head_dim {
            return Err(Diagnostic::new(
                Code::Shape,
                format!("the cache takes rows of [{kv_heads}, {head_dim}], found {}", show(shape)),
                format!("split the row with `.heads({})`", word(kv_heads)),
            )
            .at_operand(index));
        }
        same_rows(op, &shape[0], rows, index)?;
    }
    if rows.batch != batch.batch || (!rows.batch && rows.size > batch.size) {
        return Err(Diagnostic::new(
            Code::Shape,
            format!("the cache holds {batch} sequences, the call has {rows} rows"),
            "declare cache and index with the same batch dim",
        )
        .at_operand(3));
    }
    Ok(inputs[0].clone())
}

fn attend(op: &Op, inputs: &[&Type]) -> Inferred {
    let (_, shape) = float(op, inputs, 0)?;
    let Type::Cache { kv_heads, head_dim, .. } = inputs[1] else {
        return Err(kind(op, 1, "a `KvCache` after `append`", inputs[1]));
    };
    let Type::Index { rows } = inputs[2] else {
        return Err(kind(op, 2, "an `Index`", inputs[2]));
    };
    if shape.len() != 3 || shape[2] != *head_dim {
        return Err(Diagnostic::new(
            Code::Shape,
            format!(
                "queries have shape {}, the cache's heads have {head_dim} elements",
                show(shape)
            ),
            "split the row into heads first, with `.heads(n)`",
        )
        .at_operand(0));
    }
    if head_dim.size > MAX_HEAD_DIM {
        return Err(Diagnostic::new(
            Code::Shape,
            format!("heads of {head_dim} elements"),
            format!("attention takes heads of at most {MAX_HEAD_DIM} elements"),
        )
        .at_operand(0));
    }
    same_rows(op, &shape[0], rows, 2)?;
    if kv_heads.size == 0 || shape[1].size % kv_heads.size != 0 {
        return Err(Diagnostic::new(
            Code::Heads,
            format!("{} query heads do not divide among {kv_heads} key heads", shape[1]),
            "each key head serves the same number of query heads",
        )
        .at_operand(0));
    }
    if let Some(sinks) = inputs.get(3) {
        let (_, sinks) = float(op, inputs, 3).map(|_| ((), sinks.shape()))?;
        if sinks.len() != 1 || sinks[0] != shape[1] {
            return Err(Diagnostic::new(
                Code::Shape,
                format!("sinks have shape {}, there are {} query heads", show(sinks), shape[1]),
                format!("declare them as `Tensor<f32, {}>`", word(&shape[1])),
            )
            .at_operand(3));
        }
    }
    Ok(Type::tensor(DType::F32, shape.to_vec()))
}

fn embed(op: &Op, inputs: &[&Type]) -> Inferred {
    let Type::Tensor { dtype: DType::I32, shape } = inputs[0] else {
        return Err(kind(op, 0, "`Tokens`", inputs[0]));
    };
    if shape.len() != 1 {
        return Err(rank(op, 0, "one dim, a token a row", shape));
    }
    let Type::Weight { format, k, .. } = inputs[1] else {
        return Err(kind(op, 1, "a `Weight`", inputs[1]));
    };
    whole_groups(format, k)?;
    let mut shape = shape.clone();
    shape.push(k.clone());
    Ok(Type::tensor(DType::F32, shape))
}

/// Every row of a weight divides into whole groups.
fn whole_groups(format: &WeightFormat, k: &Dim) -> Result<(), Diagnostic> {
    let group = format.group_size();
    if k.size.is_multiple_of(group) {
        return Ok(());
    }
    Err(Diagnostic::new(
        Code::Group,
        format!("a row of {k} elements does not divide into `{}` groups of {group}", format.name),
        format!("choose a multiple of {group}, or a format without groups"),
    )
    .at_operand(1))
}

/// Operand `index` as a tensor of numbers.
fn float<'a>(op: &Op, inputs: &[&'a Type], index: usize) -> Result<(DType, &'a [Dim]), Diagnostic> {
    match inputs[index] {
        Type::Tensor { dtype, shape } if dtype.is_float() => Ok((*dtype, shape)),
        Type::Tensor { dtype, .. } => Err(Diagnostic::new(
            Code::DType,
            format!("`{}` does not take {dtype}", op.name()),
            "operands are f32, f16 or bf16",
        )
        .at_operand(index)),
        other => Err(kind(op, index, "a tensor", other)),
    }
}

/// The shape of operand 0, which has rows over its last axis.
fn row<'a>(op: &Op, inputs: &[&'a Type]) -> Result<&'a [Dim], Diagnostic> {
    let (_, shape) = float(op, inputs, 0)?;
    match shape.last() {
        Some(last) if !last.batch => Ok(shape),
        _ => Err(rank(op, 0, "rows over its last axis", shape)),
    }
}

fn same_rows(op: &Op, found: &Dim, expected: &Dim, index: usize) -> Result<(), Diagnostic> {
    if found == expected {
        return Ok(());
    }
    Err(Diagnostic::new(
        Code::Shape,
        format!("`{}` on {found} rows with positions for {expected}", op.name()),
        "the index has one position a row",
    )
    .at_operand(index))
}

fn kind(op: &Op, index: usize, expected: &str, found: &Type) -> Diagnostic {
    let found = match found {
        Type::Tensor { dtype: DType::I32, .. } => "`Tokens`",
        Type::Tensor { .. } => "a tensor",
        Type::Weight { .. } => "a `Weight`",
        Type::Cache { .. } => "a `KvCache`",
        Type::Index { .. } => "an `Index`",
    };
    Diagnostic::new(
        Code::Kind,
        format!("`{}` takes {expected} here, found {found}", op.name()),
        match expected {
            "a tensor" if found == "a `Weight`" => "weights are operands of `linear` and `embed`",
            "a tensor" if found == "a `KvCache`" => "caches are operands of `attend` and `append`",
            _ => "",
        },
    )
    .at_operand(index)
}

fn rank(op: &Op, index: usize, expected: &str, shape: &[Dim]) -> Diagnostic {
    Diagnostic::new(
        Code::Rank,
        format!("`{}` takes a tensor with {expected}, found {}", op.name(), show(shape)),
        "",
    )
    .at_operand(index)
}

/// A dim as the user would write it in a type.
fn word(dim: &Dim) -> String {
    match dim.label.as_ref() {
        "" => dim.size.to_string(),
        name if name.chars().all(|c| c.is_alphanumeric() || c == '_') => name.to_string(),
        expression => format!("{{ {expression} }}"),
    }
}
