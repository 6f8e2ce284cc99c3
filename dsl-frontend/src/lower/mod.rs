//! The surface tree to graphs. Calls to functions of the same module are inlined, so that they
//! are planned together with their caller.
//!
//! An expression that depends on an erroneous one is silent: [`Reported`] stands for its value.

mod functions;
mod pins;

use crate::ast::{BinaryOp, Expr, ExprKind, Function, Let, Module, Pattern};
use crate::calls;
use crate::dims::{Dims, MAX_ELEMENTS, Meaning, suggest};
use crate::errors::{Error, Errors, Extent, Reported};
use crate::methods;
use crate::prune::prune;
use crate::signature::{Host, Signature, checked_elements};
use fuseline_core::diag::{At, Code};
use fuseline_core::dtype::DType;
use fuseline_core::ir::dim::show;
use fuseline_core::ir::{Graph, Op, Pointwise, Type, ValueId};
use proc_macro2::Ident;
use std::collections::BTreeMap;
use syn::ext::IdentExt;

/// The most operations of one block, calls inlined.
const MAX_VALUES: usize = 10_000;
/// The deepest row of calls.
const MAX_CALLS: usize = 32;
/// The most multiplications of one operation: counts of them stay far from overflow.
const MAX_WORK: usize = 1 << 50;

/// The graph of every function, in the order of the module; `None` where an error was reported.
pub fn graphs(
    module: &Module,
    signatures: &[Signature],
    dims: &Dims,
    errors: &mut Errors,
) -> Vec<Option<Graph>> {
    let (order, sound) = calls::order(&module.functions, errors);
    let mut graphs: Vec<Option<Graph>> = vec![None; module.functions.len()];
    for index in order {
        let (function, signature) = (&module.functions[index], &signatures[index]);
        if !sound[index] || function.unreadable {
            continue;
        }
        let ready: Vec<bool> = graphs.iter().map(Option::is_some).collect();
        let mut lowering = Lowering {
            module,
            signatures,
            ready: &ready,
            dims,
            errors,
            graph: Graph::new(&function.name.unraw().to_string()),
            scope: Vec::new(),
            site: None,
            depth: 0,
            rounded: BTreeMap::new(),
            pinned: BTreeMap::new(),
        };
        if lowering.block(function, signature).is_ok() {
            graphs[index] = Some(lowering.graph);
        }
    }
    graphs
}

/// What a name or an expression stands for.
#[derive(Clone, Debug)]
pub enum Bound {
    /// One value.
    Value(ValueId),
    /// Several, as `split` gives.
    Tuple(Vec<ValueId>),
}

/// An operand, and the tokens that a mismatch is reported at.
pub type Operand = (Result<ValueId, Reported>, Extent);

/// One function on its way to a graph.
pub struct Lowering<'a> {
    module: &'a Module,
    signatures: &'a [Signature],
    /// Which functions can be inlined: those whose own graph is made.
    ready: &'a [bool],
    /// The names of the attribute.
    pub dims: &'a Dims,
    errors: &'a mut Errors,
    /// The graph so far.
    pub graph: Graph,
    scope: Vec<(String, Result<Bound, Reported>)>,
    /// The call in the user's function that is being inlined: errors are reported there, because
    /// the callee is right on its own.
    site: Option<Extent>,
    depth: usize,
    /// Values rounded to the operand type, so that a value with several uses is rounded once.
    rounded: BTreeMap<ValueId, ValueId>,
    /// Where the values with a pin got it: a result shows only later that it cannot have one.
    pinned: BTreeMap<ValueId, Extent>,
}

impl Lowering<'_> {
    fn block(&mut self, function: &Function, signature: &Signature) -> Result<(), Reported> {
        self.graph.batch = self.dims.batch.clone();
        let mut on_device = false;
        for param in &signature.params {
            let bound = param.declared.as_ref().map_err(|reported| *reported).map(|declared| {
                on_device |= declared.host != Host::Scalar;
                let name = param.name.unraw().to_string();
                Bound::Value(self.graph.arg(&name, declared.role, declared.ty.clone()))
            });
            self.scope.push((param.name.to_string(), bound));
        }
        if !on_device && signature.params.iter().all(|param| param.declared.is_ok()) {
            return Err(self.fail(Error::new(
                function.name.span(),
                Code::Kind,
                format!("`{}` has no argument in device memory", function.name),
                "a block runs where its tensors, weights and caches are",
            )));
        }
        let outputs = self.body(function, signature)?;
        if signature.params.iter().any(|param| param.declared.is_err()) {
            return Err(Reported);
        }
        let declared = signature.results.as_ref().map_err(|reported| *reported)?;
        for (output, declared) in outputs.into_iter().zip(declared) {
            let output = self.as_output(output, declared.ty.dtype(), function)?;
            self.check_result(output, self.module.plans(function))?;
            self.graph.outputs.push(output);
        }
        prune(&mut self.graph);
        Ok(())
    }

    fn bind(&mut self, binding: &Let) {
        let value = self.expr(&binding.value);
        match &binding.pattern {
            Pattern::One(name) => self.name(name.as_ref(), value),
            Pattern::Tuple(names, extent) => {
                let parts = value.and_then(|value| {
                    let parts = match value {
                        Bound::Tuple(parts) => parts,
                        Bound::Value(value) => vec![value],
                    };
                    if parts.len() == names.len() {
                        return Ok(parts);
                    }
                    Err(self.fail(Error::new(
                        *extent,
                        Code::ArgCount,
                        format!(
                            "the pattern has {}, the expression gives {}",
                            count(names.len(), "name"),
                            count(parts.len(), "value")
                        ),
                        "write `_` for a part that is not used",
                    )))
                });
                for (index, name) in names.iter().enumerate() {
                    let part = parts.as_ref().map_err(|reported| *reported);
                    self.name(name.as_ref(), part.map(|parts| Bound::Value(parts[index])));
                }
            }
        }
    }

    fn name(&mut self, name: Option<&Ident>, value: Result<Bound, Reported>) {
        let Some(name) = name else { return };
        if let Ok(Bound::Value(value)) = value {
            self.graph.set_name(value, &name.to_string());
        }
        self.scope.push((name.to_string(), value));
    }

    /// What an expression stands for.
    pub fn expr(&mut self, expr: &Expr) -> Result<Bound, Reported> {
        if let Some(number) = expr.number() {
            return self.constant(number, expr.extent).map(Bound::Value);
        }
        match &expr.kind {
            ExprKind::Name(name) => self.lookup(name),
            ExprKind::Number { value, .. } => self.constant(*value, expr.extent).map(Bound::Value),
            ExprKind::Negate(inner, sign) => {
                let operand = self.operand(inner);
                let op = Op::Pointwise(Pointwise::Neg);
                self.push(op, Extent::from(*sign), vec![operand]).map(Bound::Value)
            }
            ExprKind::Binary { op, op_extent, left, right } => {
                let op = Op::Pointwise(match op {
                    BinaryOp::Add => Pointwise::Add,
                    BinaryOp::Sub => Pointwise::Sub,
                    BinaryOp::Mul => Pointwise::Mul,
                    BinaryOp::Div => Pointwise::Div,
                });
                let operands = vec![self.operand(left), self.operand(right)];
                self.push(op, *op_extent, operands).map(Bound::Value)
            }
            ExprKind::Method { receiver, name, type_arg, args } => {
                methods::lower(self, receiver, name, type_arg.as_ref(), args)
            }
            ExprKind::Call { name, args } => self.call(name, args),
            ExprKind::Tuple(elements) => {
                let values: Vec<_> = elements.iter().map(|e| self.operand(e).0).collect();
                values.into_iter().collect::<Result<_, _>>().map(Bound::Tuple)
            }
            ExprKind::Invalid => Err(Reported),
        }
    }

    /// An expression as one operand.
    pub fn operand(&mut self, expr: &Expr) -> Operand {
        let value = self.expr(expr).and_then(|bound| match bound {
            Bound::Value(value) => Ok(value),
            Bound::Tuple(parts) => Err(self.fail(Error::new(
                expr.anchor(),
                Code::Kind,
                format!("a tuple of {} where one value is needed", parts.len()),
                "take it apart with `let (a, b) = …`",
            ))),
        });
        (value, expr.anchor())
    }

    fn constant(&mut self, number: f64, extent: Extent) -> Result<ValueId, Reported> {
        let value = number as f32;
        if value.is_finite() {
            return self.push(Op::Const(value), extent, Vec::new());
        }
        let message = format!("{number:?} is out of the range of f32");
        Err(self.fail(Error::new(extent, Code::Literal, message, "")))
    }

    fn lookup(&mut self, name: &Ident) -> Result<Bound, Reported> {
        let text = name.to_string();
        if let Some((_, bound)) = self.scope.iter().rev().find(|(known, _)| *known == text) {
            return bound.clone();
        }
        let error = match self.dims.get(&text) {
            Some(Meaning::Size(_)) => Error::new(
                name.span(),
                Code::Kind,
                format!("`{name}` is a dim, a value is needed here"),
                "dims are arguments of `heads`, `split`, `chunk` and `view`",
            ),
            Some(Meaning::Type(_)) => Error::new(
                name.span(),
                Code::Kind,
                format!("`{name}` is a type, a value is needed here"),
                "",
            ),
            None => {
                let mut known: Vec<String> = Vec::new();
                for (name, _) in self.scope.iter().rev() {
                    if !known.contains(name) {
                        known.push(name.clone());
                    }
                }
                let message = format!("no argument or `let` is called `{name}`");
                Error::new(name.span(), Code::UnknownName, message, suggest(&text, &known))
            }
        };
        Err(self.fail(error))
    }

    /// `x` rounded to the type that the program states for operands of products.
    pub fn rounded(&mut self, x: Operand) -> Operand {
        let (Some(operand), Ok(value)) = (self.dims.operand, x.0) else { return x };
        let ty = &self.graph[value].ty;
        let is_float = matches!(ty, Type::Tensor { dtype, .. } if dtype.is_float());
        if operand == DType::F32 || ty.dtype() == operand || !is_float {
            return x;
        }
        if let Some(&known) = self.rounded.get(&value) {
            return (Ok(known), x.1);
        }
        let cast = self.push(Op::Cast(operand), x.1, vec![x]);
        if let Ok(cast) = cast {
            self.rounded.insert(value, cast);
        }
        (cast, x.1)
    }

    /// Adds an operation. A mismatch is reported at `place` or at an operand's tokens.
    pub fn push(
        &mut self,
        op: Op,
        place: Extent,
        operands: Vec<Operand>,
    ) -> Result<ValueId, Reported> {
        let inputs: Vec<ValueId> =
            operands.iter().map(|(value, _)| *value).collect::<Result<_, _>>()?;
        if self.graph.values.len() >= MAX_VALUES {
            let message = format!("the block has more than {MAX_VALUES} operations");
            let help = "split it into several blocks";
            return Err(self.fail(Error::new(place, Code::Syntax, message, help)));
        }
        if let Op::Reshape { shape } = &op {
            self.check_elements(shape.iter().map(|dim| dim.size), place)?;
        }
        let factor = match &op {
            Op::Linear => self.graph[inputs[1]].ty.clone(),
            Op::Attend { .. } => self.graph[inputs[1]].ty.clone(),
            _ => Type::tensor(DType::F32, Vec::new()),
        };
        let value = self.graph.push(op, inputs).map_err(|diagnostic| {
            let extent = match diagnostic.at {
                At::Op => place,
                At::Operand(index) => operands.get(index).map_or(place, |(_, extent)| *extent),
            };
            self.fail(Error { diagnostic, extent })
        })?;
        let sizes: Vec<usize> = self.graph[value].ty.shape().iter().map(|dim| dim.size).collect();
        self.check_elements(sizes.into_iter(), place)?;
        let per_element = match &factor {
            Type::Weight { k, .. } => k.size,
            Type::Cache { capacity, .. } => capacity.size,
            Type::Tensor { .. } | Type::Index { .. } => 1,
        };
        let work = self.graph[value].ty.elements().checked_mul(per_element);
        if work.is_none_or(|work| work > MAX_WORK) {
            let message = format!("an operation of more than {MAX_WORK} multiplications");
            return Err(self.fail(Error::new(place, Code::Dim, message, "")));
        }
        Ok(value)
    }

    fn check_elements(
        &mut self,
        sizes: impl Iterator<Item = usize>,
        place: Extent,
    ) -> Result<(), Reported> {
        match checked_elements(&sizes.collect::<Vec<_>>()) {
            Some(_) => Ok(()),
            None => {
                let message = format!("a value of more than {MAX_ELEMENTS} elements");
                Err(self.fail(Error::new(place, Code::Dim, message, "no device holds it")))
            }
        }
    }

    /// Reports an error, inside an inlined function at the user's call.
    pub fn fail(&mut self, mut error: Error) -> Reported {
        if let Some(site) = self.site {
            error.extent = site;
        }
        self.errors.push(error)
    }

    /// Reports a diagnostic at `place`.
    pub fn keep<T>(&mut self, result: Result<T, Error>) -> Result<T, Reported> {
        result.map_err(|error| self.fail(error))
    }
}

/// A type in messages: `f32 [B = 1, D = 576]`.
pub fn describe(ty: &Type) -> String {
    match ty {
        Type::Tensor { dtype, shape } if shape.is_empty() => format!("one {dtype}"),
        Type::Tensor { dtype, shape } => format!("{dtype} {}", show(shape)),
        Type::Weight { format, n, k } => {
            format!("a `{}` weight [{n}, {k}]", format.name)
        }
        Type::Cache { dtype, batch, kv_heads, head_dim, capacity } => {
            format!("a {dtype} cache [{batch}, {kv_heads}, {head_dim}, {capacity}]")
        }
        Type::Index { rows } => format!("an index of {rows} rows"),
    }
}

/// `1 argument`, `2 arguments`.
pub fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
