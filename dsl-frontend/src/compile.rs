//! Graphs to blocks: a plan for every bucket of rows, their text, and whether they keep to a
//! budget.

use fuseline_core::diag::Diagnostic;
use fuseline_core::ir::Graph;
pub use fuseline_core::plan::Budget;
use fuseline_core::plan::{Options, Plan, compile, digest};

/// A planned block, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledBlock {
    /// The modules that it is in, and its name, outermost first.
    pub path: Vec<String>,
    /// The graph.
    pub ir: String,
    /// The CUDA source of all its buckets.
    pub cuda: String,
    /// What the planner decided, for people.
    pub explain: String,
    /// The same as a JSON array, one object a bucket.
    pub explain_json: String,
    /// Names graph and plans.
    pub digest: u64,
}

/// Plans a graph. The second part says where the plans exceed the budget.
///
/// # Panics
/// If the planner refuses a graph that this crate made: that is a fault of the compiler, and the
/// text is its test case.
pub fn block(
    graph: &Graph,
    path: Vec<String>,
    budget: Option<&Budget>,
) -> (CompiledBlock, Vec<Diagnostic>) {
    let ir = graph.to_text();
    let buckets = graph.batch.as_ref().map_or(Vec::new(), |batch| batch.buckets());
    let variants: Vec<Graph> = match buckets.is_empty() {
        true => vec![graph.clone()],
        false => buckets.into_iter().map(|rows| graph.with_rows(rows)).collect(),
    };
    let plans: Vec<Plan> = variants
        .iter()
        .map(|graph| match compile(graph, &Options::default()) {
            Ok(plan) => plan,
            Err(error) => panic!("internal error in the planner: {error}\n{ir}"),
        })
        .collect();
    let errors = |plan: &Plan| {
        let mut errors = plan.check_pins();
        errors.extend(budget.iter().flat_map(|budget| plan.check_budget(budget)));
        errors
    };
    let exceeded = plans.iter().map(errors).find(|errors| !errors.is_empty());
    let explains: Vec<String> = plans.iter().map(Plan::explain).collect();
    let jsons: Vec<String> = plans.iter().map(Plan::explain_json).collect();
    let block = CompiledBlock {
        path,
        cuda: fuseline_cuda::emit::source(&plans),
        explain: explains.join("\n"),
        explain_json: format!("[{}]", jsons.join(",")),
        digest: digest(&ir, &plans),
        ir,
    };
    (block, exceeded.unwrap_or_default())
}
