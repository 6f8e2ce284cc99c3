//! The methods of chains: one row of [`METHODS`] each, and every pointwise operation by its own
//! name.

use crate::ast::{Expr, ExprKind};
use crate::errors::{Error, Extent, Reported};
use crate::lower::{Bound, Lowering, Operand, count, describe};
use crate::signature::dtype_of;
use fuseline_core::diag::{Code, nearest};
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Op, Pairing, Pin, Pointwise, Reduction, Shape, Type};
use proc_macro2::Ident;
use std::ops::RangeInclusive;

/// A method that is not a pointwise operation.
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// What it takes, for messages.
    pub usage: &'static str,
    /// How many arguments, options not counted.
    arity: RangeInclusive<usize>,
    /// Options after the arguments, written as calls.
    options: &'static [&'static str],
    /// Adds its operations.
    lower: fn(Call<'_, '_>) -> Result<Bound, Reported>,
}

const MANY: usize = usize::MAX;

/// Every method that is not a pointwise operation.
pub const METHODS: &[Method] = &[
    row("to", "to::<bf16>()", 0..=0, &[], to),
    row("sum", "sum()", 0..=0, &[], |call| call.unary(Op::Reduce(Reduction::Sum))),
    row("mean", "mean()", 0..=0, &[], |call| call.unary(Op::Reduce(Reduction::Mean))),
    row("max", "max()` of a row, `max(b)", 0..=1, &[], max),
    row("argmax", "argmax()", 0..=0, &[], |call| call.unary(Op::Argmax)),
    row("softmax", "softmax()", 0..=0, &[], |call| call.unary(Op::Softmax)),
    row("rms_norm", "rms_norm(weight, eps)", 2..=2, &[], rms_norm),
    row("layer_norm", "layer_norm(weight, bias, eps)", 3..=3, &[], layer_norm),
    row("linear", "linear(weight)", 1..=1, &[], linear),
    row("split", "split(first, second, …)", 2..=MANY, &[], split),
    row("chunk", "chunk(n)", 1..=1, &[], chunk),
    row("view", "view(first, second, …)", 1..=MANY, &[], view),
    row("heads", "heads(n)", 1..=1, &[], heads),
    row("flatten", "flatten()", 0..=0, &[], flatten),
    row("rope", "rope(Interleaved or HalfSplit, pos, base)", 3..=3, &["rotary"], rope),
    row("append", "append(keys, values, pos)", 3..=3, &[], append),
    row("attend", "attend(cache, scale)", 2..=2, &["window", "softcap", "sinks"], attend),
    row("embed", "embed(table)", 1..=1, &[], embed),
    row("materialize", "materialize()", 0..=0, &[], |call| call.pin(Pin::Materialize)),
    row("inline", "inline()", 0..=0, &[], |call| call.pin(Pin::Inline)),
];

const fn row(
    name: &'static str,
    usage: &'static str,
    arity: RangeInclusive<usize>,
    options: &'static [&'static str],
    lower: fn(Call<'_, '_>) -> Result<Bound, Reported>,
) -> Method {
    Method { name, usage, arity, options, lower }
}

/// Whether some method has an option of that name.
pub fn is_option(name: &Ident) -> bool {
    METHODS.iter().any(|method| method.options.iter().any(|option| name == option))
}

/// One call of a method.
pub struct Call<'a, 'b> {
    lowering: &'a mut Lowering<'b>,
    name: &'a Ident,
    receiver: Operand,
    type_arg: Option<&'a Ident>,
    args: Vec<&'a Expr>,
    options: Vec<(&'a Ident, &'a [Expr])>,
}

/// Adds the operations of `receiver.name::<type_arg>(args)`.
pub fn lower(
    lowering: &mut Lowering<'_>,
    receiver: &Expr,
    name: &Ident,
    type_arg: Option<&Ident>,
    args: &[Expr],
) -> Result<Bound, Reported> {
    let receiver = lowering.operand(receiver);
    let text = name.to_string();
    let method = METHODS.iter().find(|method| method.name == text);
    let pointwise = Pointwise::from_name(&text);
    let (usage, arity, options) = match (method, pointwise) {
        (Some(method), _) => (method.usage.to_string(), method.arity.clone(), method.options),
        (None, Some(op)) => {
            let n_args = op.arity() - 1;
            let usage = format!("{text}({})", ["", "b", "b, c"][n_args.min(2)]);
            (usage, n_args..=n_args, [].as_slice())
        }
        (None, None) => return Err(unknown(lowering, name)),
    };
    let (mut positional, mut found): (Vec<&Expr>, Vec<(&Ident, &[Expr])>) = Default::default();
    for arg in args {
        match &arg.kind {
            ExprKind::Call { name, args } if options.iter().any(|option| name == option) => {
                found.push((name, args));
            }
            _ => positional.push(arg),
        }
    }
    if !arity.contains(&positional.len()) {
        let expected = match (*arity.start(), *arity.end()) {
            (least, MANY) => format!("at least {}", count(least, "argument")),
            (least, most) if least == most => count(least, "argument"),
            (least, most) => format!("{least} to {}", count(most, "argument")),
        };
        let options: Vec<String> = options.iter().map(|o| format!("`{o}(…)`")).collect();
        let help = match options.is_empty() {
            true => format!("it is written `{usage}`"),
            false => format!("it is written `{usage}`, with options {}", options.join(", ")),
        };
        return Err(lowering.fail(Error::new(
            name.span(),
            Code::ArgCount,
            format!("`{name}` takes {expected}, found {}", positional.len()),
            help,
        )));
    }
    if let Some(type_arg) = type_arg
        && text != "to"
    {
        return Err(lowering.fail(Error::new(
            type_arg.span(),
            Code::ArgCount,
            format!("`{name}` takes no type"),
            "only `to::<bf16>()` does",
        )));
    }
    let call = Call { lowering, name, receiver, type_arg, args: positional, options: found };
    match (method, pointwise) {
        (Some(method), _) => (method.lower)(call),
        (None, Some(op)) => call.pointwise(op),
        (None, None) => Err(Reported),
    }
}

fn unknown(lowering: &mut Lowering<'_>, name: &Ident) -> Reported {
    let known: Vec<&str> = METHODS
        .iter()
        .map(|method| method.name)
        .chain(Pointwise::ALL.iter().filter(|op| **op != Pointwise::Max).map(|op| op.name()))
        .collect();
    let help = match nearest(&name.to_string(), known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("methods are {}", known.join(", ")),
    };
    let message = format!("chains have no method `{name}`");
    lowering.fail(Error::new(name.span(), Code::UnknownMethod, message, help))
}

impl Call<'_, '_> {
    fn place(&self) -> Extent {
        self.name.span().into()
    }

    /// Argument `index` as a value; mismatches point at the whole argument.
    fn value(&mut self, index: usize) -> Operand {
        (self.lowering.operand(self.args[index]).0, self.args[index].extent)
    }

    fn dim(&mut self, expr: &Expr) -> Result<Dim, Reported> {
        let dim = self.lowering.dims.eval(expr);
        self.lowering.keep(dim)
    }

    /// A size that is known at build time: no batch dim.
    fn size(&mut self, expr: &Expr) -> Result<usize, Reported> {
        let dim = self.dim(expr)?;
        if dim.batch {
            return Err(self.lowering.fail(Error::new(
                expr.extent,
                Code::Batch,
                format!("`{}` is a number of rows that each call chooses", dim.label),
                "a number or a dim of one size is needed here",
            )));
        }
        Ok(dim.size)
    }

    /// A literal number that `accepts` takes.
    fn number(&mut self, expr: &Expr, rule: &Rule) -> Result<f64, Reported> {
        let found = match expr.number() {
            Some(number) if (rule.accepts)(number) && (number as f32).is_finite() => {
                return Ok(number);
            }
            Some(number) => format!("{number:?}"),
            None => format!("`{}`", expr.arithmetic_text()),
        };
        Err(self.lowering.fail(Error::new(
            expr.extent,
            Code::Literal,
            format!("the {} of `{}` is {}, found {found}", rule.what, self.name, rule.range),
            "it is written as a literal, and has no default",
        )))
    }

    fn push(&mut self, op: Op, operands: Vec<Operand>) -> Result<Bound, Reported> {
        self.lowering.push(op, self.place(), operands).map(Bound::Value)
    }

    fn unary(mut self, op: Op) -> Result<Bound, Reported> {
        self.push(op, vec![self.receiver])
    }

    fn pin(self, pin: Pin) -> Result<Bound, Reported> {
        self.lowering.pin(pin, self.receiver, self.name.span().into()).map(Bound::Value)
    }

    fn pointwise(mut self, op: Pointwise) -> Result<Bound, Reported> {
        let mut operands = vec![self.receiver];
        for index in 0..self.args.len() {
            operands.push(self.value(index));
        }
        self.push(Op::Pointwise(op), operands)
    }

    fn fail(&mut self, code: Code, message: String, help: impl Into<String>) -> Reported {
        let error = Error::new(self.name.span(), code, message, help);
        self.lowering.fail(error)
    }

    /// The receiver's shape, if it is a tensor of at least `rank` dims whose last is not the
    /// batch dim.
    fn shape(&mut self, rank: usize) -> Result<Shape, Reported> {
        let (receiver, extent) = self.receiver;
        let ty = self.lowering.graph[receiver?].ty.clone();
        let Type::Tensor { shape, .. } = ty else {
            let message = format!("`{}` takes a tensor, found {}", self.name, describe(&ty));
            return Err(self.lowering.fail(Error::new(extent, Code::Kind, message, "")));
        };
        let has_row = shape.last().is_some_and(|last| !last.batch);
        if shape.len() < rank || !has_row {
            let message = format!(
                "`{}` takes at least {rank} dims, the last one not the batch dim, found {}",
                self.name,
                fuseline_core::ir::dim::show(&shape)
            );
            return Err(self.lowering.fail(Error::new(extent, Code::Rank, message, "")));
        }
        Ok(shape)
    }

    /// The receiver's last axis in parts of these sizes, which add up to it.
    fn parts(self, sizes: Vec<Dim>) -> Result<Bound, Reported> {
        let mut start = 0;
        let mut parts = Vec::new();
        for len in sizes {
            let size = len.size;
            let op = Op::Slice { start, len };
            parts.push(self.lowering.push(op, self.name.span().into(), vec![self.receiver])?);
            start += size;
        }
        self.receiver.0.map(|_| Bound::Tuple(parts))
    }
}

/// Which numbers an argument may be.
struct Rule {
    what: &'static str,
    range: &'static str,
    accepts: fn(f64) -> bool,
}

const EPS: Rule = Rule { what: "eps", range: "a number of at least 0", accepts: |n| n >= 0.0 };
const BASE: Rule = Rule { what: "base", range: "a number above 0", accepts: |n| n > 0.0 };
const SCALE: Rule = Rule { what: "scale", range: "a number", accepts: |_| true };
const SOFTCAP: Rule = Rule { what: "softcap", range: "a number above 0", accepts: |n| n > 0.0 };

fn to(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let Some(name) = call.type_arg else {
        let message = "`to` needs an element type".to_string();
        return Err(call.fail(Code::ArgCount, message, "it is written `to::<bf16>()`"));
    };
    match dtype_of(&call.lowering.dims.type_name(name)) {
        Some(dtype) if dtype.is_float() => call.unary(Op::Cast(dtype)),
        found => {
            let code = if found.is_some() { Code::DType } else { Code::UnknownType };
            Err(call.lowering.fail(Error::new(
                name.span(),
                code,
                format!("`to` does not round to `{name}`"),
                "element types are f32, f16 and bf16",
            )))
        }
    }
}

fn max(call: Call<'_, '_>) -> Result<Bound, Reported> {
    match call.args.len() {
        0 => call.unary(Op::Reduce(Reduction::Max)),
        _ => call.pointwise(Pointwise::Max),
    }
}

fn rms_norm(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let weight = call.value(0);
    let eps = call.number(call.args[1], &EPS)?;
    call.push(Op::RmsNorm { eps: eps as f32 }, vec![call.receiver, weight])
}

fn layer_norm(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let (weight, bias) = (call.value(0), call.value(1));
    let eps = call.number(call.args[2], &EPS)?;
    call.push(Op::LayerNorm { eps: eps as f32 }, vec![call.receiver, weight, bias])
}

fn linear(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let weight = call.value(0);
    let x = call.lowering.rounded(call.receiver);
    call.push(Op::Linear, vec![x, weight])
}

fn embed(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let table = call.value(0);
    call.push(Op::Embed, vec![call.receiver, table])
}

fn append(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let operands = vec![call.receiver, call.value(0), call.value(1), call.value(2)];
    if let (Ok(cache), place) = call.receiver {
        let graph = &call.lowering.graph;
        let is_cache = matches!(graph[cache].ty, Type::Cache { .. });
        let again = graph.values.iter().any(|v| v.op == Op::Append && v.inputs[0] == cache);
        if is_cache && (again || graph[cache].op != Op::Arg) {
            return Err(call.lowering.fail(Error::new(
                place,
                Code::Cache,
                "this cache is appended to twice in one block",
                "append once, and attend to what `append` gives",
            )));
        }
    }
    call.push(Op::Append, operands)
}

fn attend(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let cache = call.value(0);
    let scale = call.number(call.args[1], &SCALE);
    let (mut window, mut softcap, mut sinks) = (None, None, None);
    let options = std::mem::take(&mut call.options);
    for (index, (name, args)) in options.iter().copied().enumerate() {
        if options[..index].iter().any(|(earlier, _)| *earlier == name) {
            let message = format!("`{name}` is given twice");
            let error = Error::new(name.span(), Code::ArgCount, message, "");
            return Err(call.lowering.fail(error));
        }
        let [arg] = args else {
            return Err(call.lowering.fail(Error::new(
                name.span(),
                Code::ArgCount,
                format!("`{name}` takes 1 argument, found {}", args.len()),
                "",
            )));
        };
        match name.to_string().as_str() {
            "window" => window = Some(call.size(arg)?),
            "softcap" => softcap = Some(call.number(arg, &SOFTCAP)? as f32),
            _ => sinks = Some((call.lowering.operand(arg).0, arg.extent)),
        }
    }
    let (q, place) = (call.receiver, call.place());
    let (cache_value, scale) = (cache.0?, scale?);
    let graph = &call.lowering.graph;
    let pos = match graph[cache_value].op {
        Op::Append => graph[cache_value].inputs[3],
        _ if matches!(graph[cache_value].ty, Type::Cache { .. }) => {
            return Err(call.lowering.fail(Error::new(
                cache.1,
                Code::Cache,
                "this cache is attended to before it is appended to",
                "attend to what `append` gives: `q.attend(kv.append(k, v, pos), scale)`",
            )));
        }
        // Not a cache: inference says what it is.
        _ => cache_value,
    };
    let op = Op::Attend {
        scale: scale as f32,
        window,
        softcap,
        sinks: sinks.is_some(),
        operand: call.lowering.dims.operand.unwrap_or(DType::F32),
    };
    let mut operands = vec![q, cache, (Ok(pos), place)];
    operands.extend(sinks);
    call.push(op, operands)
}

fn rope(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let (pairing, pos, base) =
        (pairing(&mut call), call.value(1), call.number(call.args[2], &BASE));
    let options = std::mem::take(&mut call.options);
    let rotary = match options.as_slice() {
        [] => None,
        [(_, [rotary])] => Some(call.size(rotary)?),
        [(name, _), ..] => {
            return Err(call.lowering.fail(Error::new(
                name.span(),
                Code::ArgCount,
                "`rotary` is given once, with one number",
                "it is written `rotary(32)`",
            )));
        }
    };
    let (pairing, base, receiver) = (pairing?, base?, call.receiver.0?);
    // Inference reports a receiver without dims.
    let head_dim = call.lowering.graph[receiver].ty.shape().last().map_or(0, |dim| dim.size);
    let op = Op::Rope { pairing, base, rotary: rotary.unwrap_or(head_dim) };
    call.push(op, vec![call.receiver, pos])
}

fn pairing(call: &mut Call<'_, '_>) -> Result<Pairing, Reported> {
    let expr = call.args[0];
    let found = match &expr.kind {
        ExprKind::Name(name) => Pairing::ALL.into_iter().find(|p| name == p.name()),
        _ => None,
    };
    found.ok_or_else(|| {
        call.lowering.fail(Error::new(
            expr.extent,
            Code::Literal,
            "the first argument of `rope` says which elements rotate together",
            "`Interleaved`: elements 2i and 2i + 1; `HalfSplit`: elements i and i + rotary / 2",
        ))
    })
}

fn split(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let args = std::mem::take(&mut call.args);
    let sizes: Vec<_> = args.into_iter().map(|arg| call.dim(arg)).collect();
    let sizes: Vec<Dim> = sizes.into_iter().collect::<Result<_, _>>()?;
    let shape = call.shape(1)?;
    let Some(row) = shape.last() else { return Err(Reported) };
    if let Some(batch) = sizes.iter().find(|dim| dim.batch) {
        let message = format!("the batch dim `{}` is no part of a row", batch.label);
        return Err(call.fail(Code::Batch, message, "parts have sizes known at build time"));
    }
    let sum = sizes.iter().try_fold(0usize, |sum, dim| sum.checked_add(dim.size));
    if sum != Some(row.size) {
        let parts: Vec<String> = sizes.iter().map(Dim::to_string).collect();
        let sum = sum.map_or("too much".to_string(), |sum| sum.to_string());
        let message =
            format!("the parts of `split` add up to {sum} ({}), a row has {row}", parts.join(", "));
        return Err(call.fail(Code::Shape, message, "the parts cover the whole row"));
    }
    call.parts(sizes)
}

fn chunk(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let n = call.dim(call.args[0]);
    let (shape, n) = (call.shape(1)?, n?);
    let Some(row) = shape.last() else { return Err(Reported) };
    if n.batch || n.size < 2 || row.size % n.size != 0 || n.size > 64 {
        let message = format!("a row of {row} does not divide into {n} chunks");
        return Err(call.fail(Code::Shape, message, "from 2 to 64 chunks of equal size"));
    }
    let size = row.size / n.size;
    let len = match row.label.is_empty() {
        true => Dim::literal(size),
        false => Dim::named(size, &format!("{} / {}", factor(&row.label), n.size)),
    };
    call.parts(vec![len; n.size])
}

fn view(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let args = std::mem::take(&mut call.args);
    let shape: Vec<_> = args.into_iter().map(|arg| call.dim(arg)).collect();
    let shape: Shape = shape.into_iter().collect::<Result<_, _>>()?;
    call.unary(Op::Reshape { shape })
}

fn heads(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let n = call.dim(call.args[0]);
    let (mut shape, n) = (call.shape(1)?, n?);
    let Some(row) = shape.pop() else { return Err(Reported) };
    if n.batch || row.size % n.size != 0 {
        let message = format!("a row of {row} elements does not divide into {n} heads");
        return Err(call.fail(Code::Heads, message, "heads are of equal size"));
    }
    let size = row.size / n.size;
    // Of `H * HD` in `H` heads, each has `HD`.
    let label = row.label.strip_prefix(&format!("{} * ", factor(&n.label))).unwrap_or("");
    shape.push(n);
    shape.push(Dim::named(size, label));
    call.unary(Op::Reshape { shape })
}

fn flatten(mut call: Call<'_, '_>) -> Result<Bound, Reported> {
    let shape = call.shape(2)?;
    let mut dims = shape.into_iter();
    let Some(first) = dims.next() else { return Err(Reported) };
    let inner = dims.reduce(|a, b| {
        let label = match a.label.is_empty() || b.label.is_empty() {
            true => String::new(),
            false => format!("{} * {}", factor(&a.label), factor(&b.label)),
        };
        Dim::named(a.size.saturating_mul(b.size), &label)
    });
    call.unary(Op::Reshape { shape: std::iter::once(first).chain(inner).collect() })
}

/// A label as a factor of a product: a sum gets parentheses.
fn factor(label: &str) -> String {
    let is_sum = label.contains(" + ") || label.contains(" - ");
    if is_sum { format!("({label})") } else { label.to_string() }
}
