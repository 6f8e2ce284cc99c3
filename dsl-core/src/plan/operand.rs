//! Where the expression that a linear multiplies by a weight is computed.
//!
//! | place | what happens |
//! |---|---|
//! | inline | every output computes every element where it multiplies it |
//! | shared | every block computes the rows once, and keeps them in shared memory |
//! | scratch | a kernel of its own computes the rows and stores them, `M · K` elements |
//! | epilogue | the kernel that makes what the expression reads computes and stores it |
//!
//! No place holds `N · K` elements: neither the products nor the decoded weight are ever stored.
//!
//! The count of operations decides only whether *inline* is considered at all
//! ([`Target::max_inline_ops`]): text and registers grow with it. Among the places that are legal,
//! estimated time decides; the log shows the estimate of each.

use super::context::Context;
use super::cost::{self, Cost};
use super::matrix::Multiply;
use super::structure::{Linear, Structure, Template, structure};
use crate::ir::{Pin, ValueId};
use crate::target::Target;
use std::fmt;

/// Where a linear's operand is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperandPlace {
    /// By every output, where it is multiplied.
    Inline,
    /// Once a block, in shared memory.
    Shared,
    /// By a kernel of its own, in scratch memory.
    Scratch,
}

impl OperandPlace {
    /// Each of them.
    pub const ALL: [OperandPlace; 3] =
        [OperandPlace::Inline, OperandPlace::Shared, OperandPlace::Scratch];

    /// The name in the log.
    pub fn name(self) -> &'static str {
        match self {
            OperandPlace::Inline => "inline",
            OperandPlace::Shared => "shared",
            OperandPlace::Scratch => "scratch",
        }
    }
}

impl fmt::Display for OperandPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of the operand that a structure has: none if it computes no operand.
pub(crate) fn place_of(structure: &Structure) -> Option<OperandPlace> {
    match &structure.template {
        Template::Linear(_) if structure.prologue.is_empty() => None,
        Template::Linear(linear) if linear.staged => Some(OperandPlace::Shared),
        Template::Linear(_) => Some(OperandPlace::Inline),
        _ => None,
    }
}

/// The same kernel with its operand inline: none if it computes no operand, if the operand is
/// reduced over its rows, or if it counts too many operations.
fn inlined(cx: &Context<'_>, structure: &Structure, target: &Target) -> Option<Structure> {
    let Template::Linear(linear) = &structure.template else { return None };
    let (n_ops, _) = cost::expression_size(cx, &structure.prologue);
    let legal = !structure.prologue.is_empty()
        && linear.row_ops.is_empty()
        && (n_ops <= target.max_inline_ops || is_pinned_inline(cx, linear));
    let inlined = || {
        let mut structure = structure.clone();
        if let Template::Linear(linear) = &mut structure.template {
            linear.staged = false;
            linear.multiply = Multiply::Lanes;
        }
        structure
    };
    legal.then(inlined)
}

/// Whether the program says that the operand is computed inline.
pub(crate) fn is_pinned_inline(cx: &Context<'_>, linear: &Linear) -> bool {
    cx.graph[cx.source(linear.x)].pin == Some(Pin::Inline)
}

/// The cheapest way to run a kernel with this structure and [`traffic`](cost::traffic), or the one
/// that is wanted.
pub(crate) fn cheapest(
    cx: &Context<'_>,
    members: &[ValueId],
    structure: Structure,
    traffic: (&[ValueId], &[ValueId]),
    target: &Target,
    wanted: Option<OperandPlace>,
) -> (Structure, Cost) {
    let cost_of = |structure: &Structure| cost::cost(cx, members, structure, traffic, target);
    let shared = cost_of(&structure);
    let Some(other) = inlined(cx, &structure, target) else { return (structure, shared) };
    let is_pinned = match &structure.template {
        Template::Linear(linear) => is_pinned_inline(cx, linear),
        _ => false,
    };
    let inline = cost_of(&other);
    let is_inline = match wanted {
        _ if is_pinned => true,
        Some(place) => place == OperandPlace::Inline,
        None => inline.ns < shared.ns,
    };
    if is_inline { (other, inline) } else { (structure, shared) }
}

/// The time of a linear kernel's operand, and of the kernel itself, with the operand at each place
/// that is legal, in the order of [`OperandPlace::ALL`].
pub(crate) fn estimates(
    cx: &Context<'_>,
    members: &[ValueId],
    chosen: &Structure,
    target: &Target,
) -> Vec<(OperandPlace, f64)> {
    let ns = |members: &[ValueId], structure: &Structure| {
        let (loads, stores) = cost::traffic(cx, members);
        cost::cost(cx, members, structure, (&loads, &stores), target).ns
    };
    let mut list = Vec::new();
    if let Ok(shared) = structure(cx, members) {
        if let Some(inline) = inlined(cx, &shared, target) {
            list.push((OperandPlace::Inline, ns(members, &inline)));
        }
        if place_of(&shared) == Some(OperandPlace::Shared) {
            list.push((OperandPlace::Shared, ns(members, &shared)));
        }
    }
    let prologue = &chosen.prologue;
    let rest: Vec<ValueId> = members.iter().copied().filter(|id| !prologue.contains(id)).collect();
    if let (Ok(alone), Ok(linear)) = (structure(cx, prologue), structure(cx, &rest)) {
        list.push((OperandPlace::Scratch, ns(prologue, &alone) + ns(&rest, &linear)));
    }
    list
}
