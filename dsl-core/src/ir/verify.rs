//! What every graph keeps to, checked after parsing and after each pass.
//!
//! - Operands come before users.
//! - Every value's type is what [`infer`](super::infer) says.
//! - Arguments are the values of [`Op::Arg`], each once, before all other values.
//! - A cache is appended to once at most, and attended to only through that append.
//! - A pin is one that its operation can have ([`Pin::check`]), and what is inlined is neither a
//!   result nor viewed by one.
//! - Results exist, are computed tensors, and are each given once.

use super::{Graph, Op, Pin, Type, ValueId, infer};
use std::fmt;

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The value at which it shows.
    pub value: ValueId,
    /// Which rule.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.value, self.message)
    }
}

impl std::error::Error for VerifyError {}

impl Graph {
    /// Checks the graph's rules.
    ///
    /// # Errors
    /// Every broken rule, in the order of the values.
    pub fn verify(&self) -> Result<(), Vec<VerifyError>> {
        let mut errors = Vec::new();
        let mut appended = Vec::new();
        // Like `Graph::base`, for operands that may be missing or out of order.
        let mut bases: Vec<ValueId> = Vec::new();
        for id in self.ids() {
            let mut fail = |message: String| errors.push(VerifyError { value: id, message });
            let value = &self[id];
            let viewed = value.inputs.first().filter(|_| value.op.is_view());
            let base = viewed.and_then(|input| bases.get(input.index()).copied());
            bases.push(base.unwrap_or(id));
            if let Some(pin) = value.pin
                && let Err(reason) = pin.check(&value.op)
            {
                fail(format!("`{}` cannot be pinned `{}`: {reason}", value.op.name(), pin.name()));
            }
            if let Some(late) = value.inputs.iter().find(|input| **input >= id) {
                fail(format!("operand {late} does not come before its user"));
                continue;
            }
            if value.op == Op::Arg {
                if self.args.get(id.index()).is_none_or(|arg| arg.value != id) {
                    fail(format!("argument {} is not this value", id.index()));
                }
                continue;
            }
            let types: Vec<&Type> = value.inputs.iter().map(|&input| &self[input].ty).collect();
            match infer(&value.op, &types) {
                Ok(ty) if ty == value.ty => {}
                Ok(_) => fail(format!("`{}` makes another type of its operands", value.op.name())),
                Err(diagnostic) => {
                    fail(diagnostic.message);
                    continue;
                }
            }
            match value.op {
                Op::Append if appended.contains(&value.inputs[0]) => {
                    fail("a cache is appended to twice".to_string());
                }
                Op::Append if self[value.inputs[0]].op != Op::Arg => {
                    fail("only a cache that is an argument can be appended to".to_string());
                }
                Op::Append => appended.push(value.inputs[0]),
                Op::Attend { .. } if self[value.inputs[1]].op != Op::Append => {
                    fail("a cache is attended to before it is appended to".to_string());
                }
                _ => {}
            }
        }
        for (index, &output) in self.outputs.iter().enumerate() {
            if self.outputs[..index].contains(&output) {
                let message = "a result is given twice".to_string();
                errors.push(VerifyError { value: output, message });
            }
            let ok = self.values.get(output.index()).is_some_and(|value| {
                matches!(value.ty, Type::Tensor { .. })
                    && !matches!(value.op, Op::Arg | Op::Const(_))
            });
            if !ok {
                let message = "a result is a computed tensor".to_string();
                errors.push(VerifyError { value: output, message });
            }
            let base = bases.get(output.index()).and_then(|base| self.values.get(base.index()));
            if base.is_some_and(|base| base.pin == Some(Pin::Inline)) {
                let message = "a result is stored, and cannot be pinned `inline`".to_string();
                errors.push(VerifyError { value: output, message });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}
