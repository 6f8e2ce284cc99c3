//! Which functions call which: an order with callees first, and the calls that close a circle.

use crate::ast::{Expr, ExprKind, Function};
use crate::errors::{Error, Errors};
use fuseline_core::diag::Code;
use proc_macro2::Ident;

/// An order of the functions in which callees come before callers, and whether each function is
/// free of recursion, its callees included. Calls that close a circle are reported.
pub fn order(functions: &[Function], errors: &mut Errors) -> (Vec<usize>, Vec<bool>) {
    let calls: Vec<Vec<(usize, Ident)>> = functions
        .iter()
        .map(|function| {
            let mut found = Vec::new();
            function.lets.iter().for_each(|binding| collect(&binding.value, &mut found));
            collect(&function.last, &mut found);
            let place = |name: &Ident| functions.iter().position(|f| f.name == *name);
            found.into_iter().filter_map(|name| Some((place(&name)?, name))).collect()
        })
        .collect();
    let mut sound = vec![true; functions.len()];
    let mut state = vec![State::New; functions.len()];
    let mut order = Vec::new();
    for start in 0..functions.len() {
        // Depth first with an explicit stack: a module may hold a long row of callers.
        let mut stack = Vec::new();
        if state[start] == State::New {
            state[start] = State::Open;
            stack.push((start, 0));
        }
        while let Some((function, next)) = stack.pop() {
            let Some((callee, name)) = calls[function].get(next) else {
                state[function] = State::Done;
                sound[function] &= calls[function].iter().all(|(callee, _)| sound[*callee]);
                order.push(function);
                continue;
            };
            stack.push((function, next + 1));
            match state[*callee] {
                State::New => {
                    state[*callee] = State::Open;
                    stack.push((*callee, 0));
                }
                State::Open => {
                    sound[function] = false;
                    sound[*callee] = false;
                    errors.push(Error::new(
                        name.span(),
                        Code::Recursion,
                        format!("`{}` calls itself{}", name, through(functions, *callee, function)),
                        "calls are inlined, so they cannot go in circles; repeat layers in the host program",
                    ));
                }
                State::Done => {}
            }
        }
    }
    (order, sound)
}

fn through(functions: &[Function], callee: usize, caller: usize) -> String {
    if callee == caller { String::new() } else { format!(" through `{}`", functions[caller].name) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// Names of calls in an expression. Options of methods look like calls, but are none.
fn collect(expr: &Expr, found: &mut Vec<Ident>) {
    match &expr.kind {
        ExprKind::Name(_) | ExprKind::Number { .. } | ExprKind::Invalid => {}
        ExprKind::Negate(inner, _) => collect(inner, found),
        ExprKind::Binary { left, right, .. } => {
            collect(left, found);
            collect(right, found);
        }
        ExprKind::Method { receiver, args, .. } => {
            collect(receiver, found);
            for arg in args {
                // The option itself is no call, what it takes may hold some.
                match &arg.kind {
                    ExprKind::Call { name, args } if crate::methods::is_option(name) => {
                        args.iter().for_each(|arg| collect(arg, found));
                    }
                    _ => collect(arg, found),
                }
            }
        }
        ExprKind::Call { name, args } => {
            found.push(name.clone());
            args.iter().for_each(|arg| collect(arg, found));
        }
        ExprKind::Tuple(elements) => elements.iter().for_each(|e| collect(e, found)),
    }
}
