//! Planning takes time in proportion to a graph's size: less than a second for ten thousand
//! operations, whoever reads what.

mod generated;

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, Plan, compile};
use std::time::Instant;

/// Operations of a small graph and of a large one. Without optimization less is planned.
const SIZES: [usize; 2] = if cfg!(debug_assertions) { [200, 2_000] } else { [1_000, 10_000] };

/// Seconds for the large one, on a machine that does nothing else but this.
const LIMIT: f64 = if cfg!(debug_assertions) { 20.0 } else { 1.0 };

/// The shorter of two runs, so that a busy machine disturbs little.
fn seconds(graph: &Graph) -> (f64, Plan) {
    let run = || {
        let start = Instant::now();
        let plan = compile(graph, &Options::default()).unwrap();
        (start.elapsed().as_secs_f64(), plan)
    };
    let (first, plan) = run();
    let (second, again) = run();
    // The same decisions in every run.
    assert!(plan.explain() == again.explain());
    (second.min(first), plan)
}

#[test]
fn ten_thousand_operations_are_planned_in_a_second() {
    let mut slow = Vec::new();
    for (name, generate) in generated::KINDS {
        let [(small, _), (large, plan)] = SIZES.map(|n_ops| seconds(&generate(n_ops)));
        println!("{name:<28} {SIZES:?} operations: {:.1} ms, {:.1} ms", small * 1e3, large * 1e3);
        assert!(plan.kernels().iter().all(|kernel| kernel.members.len() <= 100));
        // Some of what is done once is quadratic, with a small factor: sets of ancestors.
        if large > LIMIT || large > 60.0 * small {
            slow.push(format!("{name}: {small} s, then {large} s"));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
