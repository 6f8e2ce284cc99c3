//! `materialize()` and `inline()`: which values they apply to, in the user's own terms.

use super::{Lowering, Operand};
use crate::errors::{Error, Extent, Reported};
use fuseline_core::diag::Code;
use fuseline_core::ir::{Op, Pin, ValueId};

impl Lowering<'_> {
    /// Pins the value that the receiver computes; `place` is the method's name.
    pub fn pin(&mut self, pin: Pin, receiver: Operand, place: Extent) -> Result<ValueId, Reported> {
        let value = receiver.0?;
        if pin.check(&self.graph[value].op).is_err() {
            let (what, help) = self.refusal(pin, value);
            return Err(self.refuse(pin, place, &what, help));
        }
        match self.graph[value].pin {
            Some(known) if known != pin => {
                let what = format!("a value that `{}()` pins already", known.name());
                let help = "a value lives in one place: leave out one of the two";
                return Err(self.refuse(pin, place, &what, help.to_string()));
            }
            Some(_) => {}
            None => {
                self.graph.set_pin(value, Some(pin));
                self.pinned.insert(value, self.site.unwrap_or(place));
            }
        }
        Ok(value)
    }

    /// Checks the pin of what a result stores. A function without a plan of its own loses the pin:
    /// the result is stored or not where the function is inlined.
    pub(super) fn check_result(&mut self, output: ValueId, planned: bool) -> Result<(), Reported> {
        let stored = self.graph.base(output);
        if self.graph[stored].pin != Some(Pin::Inline) {
            return Ok(());
        }
        match self.pinned.get(&stored).copied() {
            Some(place) if planned => {
                let help = "results are stored for the caller: leave out `inline()`";
                Err(self.refuse(Pin::Inline, place, "a result of the block", help.to_string()))
            }
            _ => {
                self.graph.set_pin(stored, None);
                Ok(())
            }
        }
    }

    fn refuse(&mut self, pin: Pin, place: Extent, what: &str, help: String) -> Reported {
        let message = format!("`{}()` does not apply to {what}", pin.name());
        self.fail(Error::new(place, Code::Pin, message, help))
    }

    /// What a value is that cannot have this pin, and what to do about it.
    fn refusal(&self, pin: Pin, value: ValueId) -> (String, String) {
        let (what, help) = match &self.graph[value].op {
            Op::Arg => {
                let label = self.graph.label(value);
                return (format!("the argument {label}"), format!("{label} is in memory already"));
            }
            Op::Const(_) => ("a number", "a number is part of the kernels that use it"),
            Op::Append => ("a cache", "`append` changes the memory of the cache itself"),
            Op::Slice { .. } | Op::Reshape { .. } => match pin {
                Pin::Materialize => {
                    ("a view", "a view has no memory of its own: write it on what is viewed")
                }
                Pin::Inline => {
                    ("a view", "a view moves no data: write it on the expression that is viewed")
                }
            },
            op => {
                let name = match op {
                    Op::Reduce(reduction) => reduction.name(),
                    op => op.name(),
                };
                let help = format!(
                    "`inline()` needs an element-wise expression, `{name}` is computed once"
                );
                return (format!("the result of `{name}`"), help);
            }
        };
        (what.to_string(), help.to_string())
    }
}
