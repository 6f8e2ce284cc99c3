//! What goes into a function and what comes out: bodies, declared results, inlined calls.

use super::{Bound, Lowering, MAX_CALLS, Operand, count, describe};
use crate::ast::{Expr, ExprKind, Function};
use crate::dims::suggest;
use crate::errors::{Error, Extent, Reported};
use crate::signature::Signature;
use fuseline_core::diag::Code;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Op, Type, ValueId};
use proc_macro2::Ident;

impl Lowering<'_> {
    /// A result in memory of its own, of the declared type: an argument, and a value that is a
    /// result already, are copied.
    pub(super) fn as_output(
        &mut self,
        value: ValueId,
        dtype: DType,
        function: &Function,
    ) -> Result<ValueId, Reported> {
        let is_own = self.graph[value].op != Op::Arg && !self.graph.outputs.contains(&value);
        if is_own && self.graph[value].ty.dtype() == dtype {
            return Ok(value);
        }
        let place = function.last.anchor();
        if !dtype.is_float() {
            return Err(self.fail(Error::new(
                place,
                Code::Return,
                format!("{} is not computed by the block", self.graph.label(value)),
                "a block returns tokens that it computes, each once",
            )));
        }
        self.push(Op::Cast(dtype), place, vec![(Ok(value), place)])
    }

    /// The results of a function whose arguments are in scope.
    pub(super) fn body(
        &mut self,
        function: &Function,
        signature: &Signature,
    ) -> Result<Vec<ValueId>, Reported> {
        for binding in &function.lets {
            self.bind(binding);
        }
        let last = self.expr(&function.last);
        let declared = signature.results.as_ref().map_err(|reported| *reported);
        let (last, declared) = (last?, declared?);
        let values = match last {
            Bound::Value(value) => vec![value],
            Bound::Tuple(values) => values,
        };
        if values.len() != declared.len() {
            return Err(self.fail(Error::new(
                function.last.anchor(),
                Code::Return,
                format!(
                    "the signature of `{}` declares {}, the block ends with {}",
                    function.name,
                    count(declared.len(), "result"),
                    values.len()
                ),
                "the last expression is the result; several are a tuple `(a, b)`",
            )));
        }
        let places: Vec<Extent> = match &function.last.kind {
            ExprKind::Tuple(elements) => elements.iter().map(Expr::anchor).collect(),
            _ => vec![function.last.anchor(); values.len()],
        };
        let mut results = Vec::new();
        for ((value, declared), place) in values.into_iter().zip(declared).zip(places) {
            results.push(self.stored(value, &declared.ty, place).map_err(|mismatch| {
                let found = describe(&self.graph[value].ty);
                let message = format!(
                    "the signature of `{}` returns {}, the block ends with {found}",
                    function.name,
                    describe(&declared.ty)
                );
                let help = match mismatch {
                    Mismatch::Shape => "change the declared type or the last operation",
                    Mismatch::Kind => "results are tensors, or tokens where the block computes ids",
                };
                self.fail(Error::new(place, Code::Return, message, help))
            }));
        }
        results.into_iter().collect()
    }

    /// `value` as it is after being stored as a declared type, which may round it. Nothing is lost
    /// in f32, in which arithmetic is done anyway.
    fn stored(
        &mut self,
        value: ValueId,
        declared: &Type,
        place: Extent,
    ) -> Result<ValueId, Mismatch> {
        let found = &self.graph[value].ty;
        match (found, declared) {
            (
                Type::Tensor { dtype, shape },
                Type::Tensor { dtype: expected, shape: expected_shape },
            ) => {
                if dtype.is_float() != expected.is_float() {
                    return Err(Mismatch::Kind);
                }
                if shape != expected_shape {
                    return Err(Mismatch::Shape);
                }
                if dtype == expected || *expected == DType::F32 {
                    return Ok(value);
                }
                let cast = self.push(Op::Cast(*expected), place, vec![(Ok(value), place)]);
                cast.map_err(|Reported| Mismatch::Kind)
            }
            (Type::Weight { .. }, Type::Weight { .. })
            | (Type::Cache { .. }, Type::Cache { .. })
            | (Type::Index { .. }, Type::Index { .. }) => {
                if found == declared {
                    Ok(value)
                } else {
                    Err(Mismatch::Shape)
                }
            }
            (
                Type::Tensor { .. } | Type::Weight { .. } | Type::Cache { .. } | Type::Index { .. },
                _,
            ) => Err(Mismatch::Kind),
        }
    }

    /// Inlines a function of the module.
    pub(super) fn call(&mut self, name: &Ident, args: &[Expr]) -> Result<Bound, Reported> {
        let operands: Vec<Operand> =
            args.iter().map(|arg| (self.operand(arg).0, arg.extent)).collect();
        let found = self.module.functions.iter().position(|function| function.name == *name);
        let Some(index) = found else {
            let names = self.module.functions.iter().map(|function| function.name.to_string());
            let known: Vec<String> = names.collect();
            return Err(self.fail(Error::new(
                name.span(),
                Code::UnknownName,
                format!("no function `{name}` is in this module"),
                suggest(&name.to_string(), &known),
            )));
        };
        let (function, signature) = (&self.module.functions[index], &self.signatures[index]);
        if operands.len() != signature.params.len() {
            return Err(self.fail(Error::new(
                name.span(),
                Code::ArgCount,
                format!(
                    "`{name}` takes {}, found {}",
                    count(signature.params.len(), "argument"),
                    operands.len()
                ),
                format!("its arguments are {}", list_params(signature)),
            )));
        }
        if !self.ready[index] {
            return Err(Reported);
        }
        if self.depth == MAX_CALLS {
            let message = format!("calls are nested more than {MAX_CALLS} deep");
            return Err(self.fail(Error::new(name.span(), Code::Syntax, message, "")));
        }
        let mut scope = Vec::new();
        for (param, (value, place)) in signature.params.iter().zip(operands) {
            let bound = match (value, &param.declared) {
                (Ok(value), Ok(declared)) => {
                    self.argument(value, &declared.ty, &param.name, place).map(Bound::Value)
                }
                _ => Err(Reported),
            };
            scope.push((param.name.to_string(), bound));
        }
        if scope.iter().any(|(_, bound)| bound.is_err()) {
            return Err(Reported);
        }
        let caller = std::mem::replace(&mut self.scope, scope);
        let site = self.site;
        self.site = site.or(Some(name.span().into()));
        self.depth += 1;
        let results = self.body(function, signature);
        self.depth -= 1;
        self.site = site;
        self.scope = caller;
        results.map(|mut results| match results.as_slice() {
            [_] => Bound::Value(results.remove(0)),
            _ => Bound::Tuple(results),
        })
    }

    fn argument(
        &mut self,
        value: ValueId,
        declared: &Type,
        name: &Ident,
        place: Extent,
    ) -> Result<ValueId, Reported> {
        let found = self.graph[value].ty.clone();
        self.stored(value, declared, place).map_err(|mismatch| {
            let code = match mismatch {
                Mismatch::Shape => Code::Shape,
                Mismatch::Kind => Code::Kind,
            };
            self.fail(Error::new(
                place,
                code,
                format!(
                    "argument `{name}` is declared as {}, found {}",
                    describe(declared),
                    describe(&found)
                ),
                "",
            ))
        })
    }
}

/// How a value and a declared type differ.
enum Mismatch {
    Shape,
    Kind,
}

fn list_params(signature: &Signature) -> String {
    let names: Vec<String> =
        signature.params.iter().map(|param| format!("`{}`", param.name)).collect();
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}
