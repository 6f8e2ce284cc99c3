//! Why two operations share a kernel or do not, as a value that explains itself.

use crate::ir::{Pin, ValueId};
use std::fmt;

/// Why a producer and a consumer are in kernels of their own.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The consumer needs elements that other blocks of the producer's kernel compute.
    GridDependency {
        /// Elements that one of the consumer's results needs.
        n_elements: usize,
    },
    /// Both are what a kernel is built around.
    TwoTemplates {
        /// The producer's.
        producer: &'static str,
        /// The consumer's.
        consumer: &'static str,
    },
    /// The value is needed outside the kernel too, where its blocks would compute it many times.
    SecondUse {
        /// Its uses.
        n_uses: usize,
    },
    /// The operand would not fit into a block's shared memory.
    SharedMemory {
        /// What it takes.
        need_bytes: usize,
        /// What a block has on every target.
        have_bytes: usize,
    },
    /// A view between them takes elements apart that the kernel computes together.
    View,
    /// The value has fewer elements than its user, so it would be computed several times.
    Broadcast {
        /// Elements of the value.
        n_elements: usize,
        /// Elements of its user.
        n_user_elements: usize,
    },
    /// The parts of a product that are used overlap, or rotate in different pairs.
    Segments,
    /// One kernel would wait for another that waits for it.
    Cycle,
    /// The value is computed from rows that the kernel does not hold.
    Rows,
    /// The kernel would have more parameters than a launch can pass.
    Parameters {
        /// Its parameters.
        n_parameters: usize,
        /// The most that a launch passes.
        limit: usize,
    },
    /// The kernel would have more operations than one is given: source and compile time grow with
    /// them, and registers run out.
    Members {
        /// Its operations.
        n_members: usize,
        /// The most of a kernel.
        limit: usize,
    },
    /// It would take longer.
    NoGain {
        /// Time that one kernel less and its traffic save.
        saved_ns: f64,
        /// Time that the work done more than once costs.
        cost_ns: f64,
    },
    /// The program pins the value.
    Pinned(Pin),
    /// Fusion is switched off.
    Off,
    /// Nothing needs the consumer.
    Dead,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::GridDependency { n_elements } => {
                write!(f, "grid dependency: needs {n_elements} elements that other blocks compute")
            }
            Reason::TwoTemplates { producer, consumer } => {
                write!(f, "two templates: {producer} and {consumer}")
            }
            Reason::SecondUse { n_uses } => {
                write!(f, "second use: {n_uses} uses, stored once instead")
            }
            Reason::SharedMemory { need_bytes, have_bytes } => {
                write!(f, "shared memory: needs {need_bytes} B, a block has {have_bytes} B")
            }
            Reason::View => f.write_str("view: elements of one block are not together"),
            Reason::Broadcast { n_elements, n_user_elements } => {
                write!(f, "broadcast: {n_elements} elements for {n_user_elements}")
            }
            Reason::Segments => f.write_str("segments: the used parts of the product overlap"),
            Reason::Cycle => f.write_str("cycle: the kernels would wait for each other"),
            Reason::Rows => f.write_str("rows: the kernel does not hold these rows"),
            Reason::Parameters { n_parameters, limit } => {
                write!(f, "parameters: {n_parameters}, a launch passes {limit}")
            }
            Reason::Members { n_members, limit } => {
                write!(f, "members: {n_members} operations, a kernel has up to {limit}")
            }
            Reason::NoGain { saved_ns, cost_ns } => {
                write!(f, "no gain: saves {saved_ns:.0} ns, costs {cost_ns:.0} ns")
            }
            Reason::Pinned(pin) => write!(f, "pinned: the program says `{}()`", pin.name()),
            Reason::Off => f.write_str("fusion is off"),
            Reason::Dead => f.write_str("dead: nothing needs the consumer"),
        }
    }
}

impl Reason {
    /// The first words of every reason, for the test that each appears in a golden file.
    pub const NAMES: &[&str] = &[
        "grid dependency",
        "two templates",
        "second use",
        "shared memory",
        "view",
        "broadcast",
        "segments",
        "cycle",
        "rows",
        "parameters",
        "members",
        "no gain",
        "pinned",
        "fusion is off",
        "dead",
    ];
}

/// What became of a producer→consumer edge of the user's graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// One kernel computes both.
    Fused {
        /// The rule that brought them together.
        rule: &'static str,
    },
    /// The consumer only renames the producer's elements.
    View,
    /// The value is stored in between.
    Apart(Reason),
}

/// One line of the decision log.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The value that is computed.
    pub producer: ValueId,
    /// The value that is computed from it.
    pub consumer: ValueId,
    /// What became of the edge.
    pub verdict: Verdict,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { producer, consumer, verdict } = self;
        let edge = format!("{producer} -> {consumer}");
        match verdict {
            Verdict::Fused { rule } => write!(f, "fuse  {edge:<12} {rule}"),
            Verdict::View => write!(f, "view  {edge:<12} moves no data"),
            Verdict::Apart(reason) => write!(f, "apart {edge:<12} {reason}"),
        }
    }
}
