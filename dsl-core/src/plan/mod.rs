//! The plan: which operations share a kernel, in what order kernels run, and where values lie
//! between them.
//!
//! [`compile`] is the only way to a [`Plan`], so a `&Plan` is the proof that its graph was
//! verified and that every rule of the [partition](partition) was kept. What it holds is decided:
//! back ends only carry it out.

mod bound;
mod budget;
mod buffers;
mod candidates;
mod context;
mod cost;
mod decision;
mod digest;
mod draft;
mod explain;
mod inline;
mod json;
pub mod matrix;
mod operand;
mod order;
mod partition;
pub mod passes;
pub mod rules;
pub mod schedule;
mod structure;
mod verify;

pub use budget::Budget;
pub use cost::Cost;
pub use decision::{Decision, Reason, Verdict};
pub use digest::digest;
pub use matrix::Multiply;
pub use operand::OperandPlace;
pub use passes::{CompileError, PASSES, Pass};
pub use schedule::Launch;
pub use structure::{Group, Linear, PairOrder, Rows, Segment, Structure, Template};

use crate::diag::{Code, Diagnostic};
use crate::ir::{Graph, Pin, ValueId};

/// What a program may choose about its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether operations may share kernels. Off, every operation is a kernel of its own.
    pub fusion: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { fusion: true }
    }
}

/// A checked plan for calls of up to a bucket of rows.
#[derive(Clone, Debug)]
pub struct Plan {
    graph: Graph,
    kernels: Vec<Kernel>,
    decisions: Vec<Decision>,
    notes: Vec<String>,
    places: Vec<Place>,
    scratch_bytes: usize,
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name in source and reports.
    pub name: String,
    /// The operations it computes, operands before users. Views are computed wherever they are
    /// read.
    pub members: Vec<ValueId>,
    /// What it is built around, and what runs before and after.
    pub structure: Structure,
    /// Values and arguments that it reads from memory, in order.
    pub loads: Vec<ValueId>,
    /// Members that it writes to memory, in order. An append writes to its cache.
    pub stores: Vec<ValueId>,
    /// What it moves and executes.
    pub cost: Cost,
    /// How it is launched.
    pub launch: Launch,
}

/// Where a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it is computed where it is used.
    None,
    /// It is an argument.
    Arg,
    /// It is the n-th result, in memory that the caller gives.
    Output(usize),
    /// From this byte of the scratch memory on.
    Scratch(usize),
    /// In the cache that is the n-th argument.
    Cache(usize),
}

/// Plans a graph for calls of up to as many rows as its batch dim says
/// ([`Graph::with_rows`] sets them).
///
/// # Errors
/// If the graph breaks a rule of [`Graph::verify`]. Every verified graph has a plan.
pub fn compile(graph: &Graph, options: &Options) -> Result<Plan, CompileError> {
    passes::run(graph, options)
}

/// Like [`compile`], but the expressions that linears multiply are computed at `place` wherever
/// that is legal, whatever it costs: to be measured.
///
/// # Errors
/// Those of [`compile`].
pub fn compile_at(graph: &Graph, place: OperandPlace) -> Result<Plan, CompileError> {
    passes::run_at(graph, place)
}

impl Plan {
    /// The graph that is planned.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The kernels, in launch order.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// One line for every producer→consumer edge between operations of the graph.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Further lines of the log: merges of siblings, places of operands.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where a value lies.
    pub fn place(&self, value: ValueId) -> Place {
        self.places[value.index()]
    }

    /// Bytes of scratch memory that one call needs.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// How many kernels one call launches.
    pub fn n_launches(&self) -> usize {
        self.kernels.len()
    }

    /// One error for every pin that could not be kept, with the reason: a value that is pinned
    /// inline and stored for a user, which may read it through views.
    pub fn check_pins(&self) -> Vec<Diagnostic> {
        let graph = self.graph();
        let apart = self.decisions.iter().filter_map(|decision| {
            let source = graph.base(decision.producer);
            match &decision.verdict {
                // Nothing is stored for what is not computed.
                Verdict::Apart(Reason::Dead) => None,
                Verdict::Apart(reason) if graph[source].pin == Some(Pin::Inline) => {
                    Some((source, decision.consumer, reason))
                }
                _ => None,
            }
        });
        let error = |(source, user, reason): (ValueId, ValueId, &Reason)| {
            let (value, user) = (graph.label(source), graph.label(user));
            Diagnostic::new(
                Code::Pin,
                format!("{value} cannot be computed inline in {user}: {reason}"),
                "leave `inline()` out, and the planner finds the cheapest place",
            )
        };
        apart.map(error).collect()
    }

    /// Rows of the batch dim that the plan is for: the bucket, or 1 if there is no batch dim.
    pub fn rows(&self) -> usize {
        self.graph.rows()
    }
}
