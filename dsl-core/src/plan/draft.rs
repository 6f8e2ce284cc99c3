//! A kernel while it may still grow: what it computes, in which shape, and what that costs.

use super::context::Context;
use super::cost::{self, Cost};
use super::decision::Reason;
use super::operand::{self, OperandPlace};
use super::structure::{Structure, structure};
use crate::ir::ValueId;
use crate::target::Target;

/// A kernel that may still grow.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// The operations that it computes, ascending.
    pub members: Vec<ValueId>,
    pub structure: Structure,
    /// What it reads from memory, ascending.
    pub loads: Vec<ValueId>,
    /// Members that it writes to memory, ascending.
    pub stores: Vec<ValueId>,
    pub cost: Cost,
}

/// Parameters that a launch passes at most: 4 KiB of pointers on every driver.
const MAX_PARAMETERS: usize = 500;

impl Draft {
    /// The kernel of these members (ascending), or why there is none. An operand is computed where
    /// it is cheapest, or where it is `wanted`.
    pub fn new(
        cx: &Context<'_>,
        members: Vec<ValueId>,
        target: &Target,
        wanted: Option<OperandPlace>,
    ) -> Result<Draft, Reason> {
        let (loads, stores) = cost::traffic(cx, &members);
        // A weight or cache passes up to three pointers.
        let n_parameters = 3 * loads.len() + 2 * stores.len() + 1;
        if n_parameters > MAX_PARAMETERS {
            return Err(Reason::Parameters { n_parameters, limit: MAX_PARAMETERS });
        }
        let structure = structure(cx, &members)?;
        let traffic = (&loads[..], &stores[..]);
        let (structure, cost) = operand::cheapest(cx, &members, structure, traffic, target, wanted);
        Ok(Draft { members, structure, loads, stores, cost })
    }
}
