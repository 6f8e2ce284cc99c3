//! The passes, as data, and the one driver that runs them.

use super::context::Context;
use super::draft::Draft;
use super::structure::Template;
use super::{
    Decision, Kernel, OperandPlace, Options, Place, Plan, buffers, cost, inline, operand,
    partition, schedule,
};
use crate::ir::{Graph, VerifyError};
use crate::target::{REFERENCE, family_shared_bytes};
use std::fmt;

/// One step from a graph to a plan.
pub struct Pass {
    /// The name in messages and dumps.
    pub name: &'static str,
    /// What it relies on.
    pub needs: &'static str,
    /// What it adds.
    pub gives: &'static str,
    run: fn(&mut State<'_>) -> Result<(), CompileError>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.name, self.needs, self.gives)
    }
}

/// Every pass, in order.
pub static PASSES: &[Pass] = &[
    Pass {
        name: "verify",
        needs: "a graph",
        gives: "operands before users, inferred types, caches appended to once",
        run: verify,
    },
    Pass {
        name: "partition",
        needs: "a verified graph",
        gives: "every live operation in one kernel, one decision an edge",
        run: partition,
    },
    Pass {
        name: "place",
        needs: "kernels in launch order",
        gives: "memory for every value that is stored",
        run: place,
    },
    Pass {
        name: "schedule",
        needs: "kernels with their structure",
        gives: "a launch for every kernel",
        run: schedule,
    },
];

/// Why a graph has no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It breaks rules of [`Graph::verify`].
    Graph(Vec<VerifyError>),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Graph(errors) => {
                let lines: Vec<String> = errors.iter().map(VerifyError::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for CompileError {}

struct State<'a> {
    cx: Context<'a>,
    options: Options,
    wanted: Option<OperandPlace>,
    drafts: Vec<Draft>,
    decisions: Vec<Decision>,
    notes: Vec<String>,
    places: Vec<Place>,
    scratch_bytes: usize,
    kernels: Vec<Kernel>,
}

/// What a watcher of [`run_watched`] sees after each pass.
pub type Watcher<'w> = dyn FnMut(&Pass, &str) + 'w;

pub(crate) fn run(graph: &Graph, options: &Options) -> Result<Plan, CompileError> {
    run_watched(graph, options, &mut |_, _| {})
}

pub(crate) fn run_at(graph: &Graph, place: OperandPlace) -> Result<Plan, CompileError> {
    run_passes(graph, &Options::default(), Some(place), &mut |_, _| {})
}

/// Plans a graph and shows `watch` what each pass made of it: the text of the kernels, or
/// `(unchanged)`.
///
/// # Errors
/// Like [`compile`](super::compile).
pub fn run_watched(
    graph: &Graph,
    options: &Options,
    watch: &mut Watcher<'_>,
) -> Result<Plan, CompileError> {
    run_passes(graph, options, None, watch)
}

fn run_passes(
    graph: &Graph,
    options: &Options,
    wanted: Option<OperandPlace>,
    watch: &mut Watcher<'_>,
) -> Result<Plan, CompileError> {
    // Copies are made of a graph that is in order only; `verify` refuses the others.
    let expanded = graph.verify().ok().and_then(|()| inline::expanded(graph));
    let graph = expanded.as_ref().unwrap_or(graph);
    let mut state = State {
        // Unverified operands may be out of order, so the context waits for `verify`.
        cx: Context::empty(graph, family_shared_bytes()),
        options: *options,
        wanted,
        drafts: Vec::new(),
        decisions: Vec::new(),
        notes: Vec::new(),
        places: Vec::new(),
        scratch_bytes: 0,
        kernels: Vec::new(),
    };
    let mut before = String::new();
    for pass in PASSES {
        (pass.run)(&mut state)?;
        let after = state.dump();
        watch(pass, if after == before { "(unchanged)" } else { &after });
        before = after;
    }
    let plan = Plan {
        graph: graph.clone(),
        kernels: state.kernels,
        decisions: state.decisions,
        notes: state.notes,
        places: state.places,
        scratch_bytes: state.scratch_bytes,
    };
    if let Err(fault) = plan.verify() {
        panic!("internal error in the planner: {fault}\n{graph}");
    }
    Ok(plan)
}

impl State<'_> {
    fn dump(&self) -> String {
        let mut text = String::new();
        for (index, draft) in self.drafts.iter().enumerate() {
            let members: Vec<String> = draft.members.iter().map(|id| id.to_string()).collect();
            let template = draft.structure.template.name();
            text += &format!("{index} {template} {}", members.join(" "));
            if let Some(kernel) = self.kernels.get(index) {
                let launch = &kernel.launch;
                text += &format!("  {} x {}", launch.n_blocks, launch.n_threads);
            }
            text.push('\n');
        }
        text
    }
}

fn verify(state: &mut State<'_>) -> Result<(), CompileError> {
    let graph = state.cx.graph;
    graph.verify().map_err(CompileError::Graph)?;
    state.cx = Context::new(graph, state.cx.shared_bytes);
    Ok(())
}

fn partition(state: &mut State<'_>) -> Result<(), CompileError> {
    let partition = partition::partition(&state.cx, REFERENCE, state.options.fusion, state.wanted);
    state.drafts = partition.kernels;
    state.decisions = partition.decisions;
    state.notes = partition.notes;
    for draft in &state.drafts {
        let Template::Linear(linear) = &draft.structure.template else { continue };
        if draft.structure.prologue.is_empty() {
            continue;
        }
        let (n_ops, n_reads) = cost::expression_size(&state.cx, &draft.structure.prologue);
        let estimates = operand::estimates(&state.cx, &draft.members, &draft.structure, REFERENCE);
        let estimates: Vec<String> =
            estimates.iter().map(|(place, ns)| format!("{place} {:.2} us", ns / 1000.0)).collect();
        let chosen = operand::place_of(&draft.structure).map_or("", OperandPlace::name);
        state.notes.push(format!(
            "place {}  {chosen}: {n_ops} operations, {n_reads} reads; {}",
            linear.x,
            estimates.join(", ")
        ));
    }
    Ok(())
}

fn place(state: &mut State<'_>) -> Result<(), CompileError> {
    (state.places, state.scratch_bytes) = buffers::place(&state.cx, &state.drafts);
    Ok(())
}

fn schedule(state: &mut State<'_>) -> Result<(), CompileError> {
    let graph = state.cx.graph;
    // Variants for different row counts stand in one source.
    let ascii = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = graph.name.chars().map(ascii).collect();
    let prefix = match &graph.batch {
        Some(_) => format!("{name}_b{}", graph.rows()),
        None => name,
    };
    state.kernels = state
        .drafts
        .iter()
        .enumerate()
        .map(|(index, draft)| {
            let values = [&draft.loads[..], &draft.stores].concat();
            Kernel {
                name: format!("{prefix}_{index}"),
                members: draft.members.clone(),
                launch: schedule::launch(graph, &draft.structure, &values),
                structure: draft.structure.clone(),
                loads: draft.loads.clone(),
                stores: draft.stores.clone(),
                cost: draft.cost,
            }
        })
        .collect();
    Ok(())
}
