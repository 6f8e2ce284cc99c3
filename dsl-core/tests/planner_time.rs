//! Planning takes time in proportion to a graph's size: less than a second for ten thousand
//! operations, whoever reads what.

mod generated;

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, Plan, compile};
use std::time::Instant;

/// Seconds of an optimized planner. Without optimization it is about ten times as slow.
const LIMIT: f64 = if cfg!(debug_assertions) { 60.0 } else { 1.0 };

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
        let (small, _) = seconds(&generate(1_000));
        let (large, plan) = seconds(&generate(10_000));
        println!("{name:<28} {:>8.1} ms for 1,000 {:>8.1} ms for 10,000", small * 1e3, large * 1e3);
        assert!(plan.kernels().iter().all(|kernel| kernel.members.len() <= 100));
        // Some of what is done once is quadratic, with a small factor: sets of ancestors.
        if large > LIMIT || large > 60.0 * small {
            slow.push(format!("{name}: {small} s, then {large} s"));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
