//! Planning takes time in proportion to a graph's size.

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, Plan, compile};
use std::time::Instant;

fn parse(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Operations one after the other.
fn chain(n: usize) -> Graph {
    let mut text = "block chain\narg %0 x input f32[1, D:256]\n".to_string();
    for i in 0..n {
        let op = ["neg", "tanh", "relu"][i % 3];
        text += &format!("%{} = {op} %{i} : f32[1, D:256]\n", i + 1);
    }
    parse(&(text + &format!("return %{n}\n")))
}

/// Layers of nine operations: norm, gate, up, down, and a residual.
fn layers(n: usize) -> Graph {
    let mut text = "block layers\narg %0 x input f32[1, D:64]\narg %1 g weight f32[D:64]
arg %2 gate weight Q8_0{F:96, D:64}\narg %3 up weight Q8_0{F:96, D:64}
arg %4 down weight Q8_0{D:64, F:96}\n"
        .to_string();
    let mut x = 0;
    for layer in 0..n.div_ceil(9) {
        let v = 5 + 9 * layer;
        text += &format!(
            "%{v} = rms_norm %{x} %1 eps=0.00001 : f32[1, D:64]
%{} = linear %{v} %2 : f32[1, F:96]
%{} = linear %{v} %3 : f32[1, F:96]
%{} = silu %{} : f32[1, F:96]
%{} = mul %{} %{} : f32[1, F:96]
%{} = linear %{} %4 : f32[1, D:64]
%{} = add %{} %{x} : f32[1, D:64]
%{} = tanh %{} : f32[1, D:64]
%{} = add %{} %{} : f32[1, D:64]\n",
            v + 1,
            v + 2,
            v + 3,
            v + 1,
            v + 4,
            v + 3,
            v + 2,
            v + 5,
            v + 4,
            v + 6,
            v + 5,
            v + 7,
            v + 6,
            v + 8,
            v + 7,
            v + 6,
        );
        x = v + 8;
    }
    parse(&(text + &format!("return %{x}\n")))
}

/// Many chains of five operations that have nothing to do with each other.
fn islands(n: usize) -> Graph {
    let n_chains = n.div_ceil(5);
    let mut text = "block islands\narg %0 x input f32[1, D:64]\n".to_string();
    let mut outputs = String::new();
    for chain in 0..n_chains {
        let mut from = 0;
        for i in 0..5 {
            let to = 1 + 5 * chain + i;
            let op = ["neg", "tanh", "row_sum", "exp", "relu"][i];
            let width = if i < 2 { "D:64" } else { "1" };
            text += &format!("%{to} = {op} %{from} : f32[1, {width}]\n");
            from = to;
        }
        outputs += &format!(" %{from}");
    }
    parse(&(text + "return" + &outputs + "\n"))
}

/// One value that every other operation reads.
fn fan_out(n: usize) -> Graph {
    let mut text = "block fan_out\narg %0 x input f32[1, D:64]\n".to_string();
    text += "%1 = tanh %0 : f32[1, D:64]\n";
    let mut outputs = String::new();
    for i in 2..=n {
        text += &format!("%{i} = neg %1 : f32[1, D:64]\n");
        outputs += &format!(" %{i}");
    }
    parse(&(text + "return" + &outputs + "\n"))
}

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
    for (name, graphs) in [
        ("chain", [1_000, 10_000].map(chain)),
        ("layers", [1_000, 10_000].map(layers)),
        ("islands", [1_000, 10_000].map(islands)),
        ("fan-out", [1_000, 10_000].map(fan_out)),
    ] {
        let (small, _) = seconds(&graphs[0]);
        let (large, plan) = seconds(&graphs[1]);
        println!("{name}: {:.1} ms for 1,000, {:.1} ms for 10,000", small * 1e3, large * 1e3);
        assert!(plan.kernels().iter().all(|kernel| kernel.members.len() <= 100));
        // Less than 1 s on two cores; a busy machine gets time.
        assert!(large < 4.0, "{name}: {large} s");
        assert!(large < 60.0 * small, "{name}: {small} s, then {large} s");
    }
}
