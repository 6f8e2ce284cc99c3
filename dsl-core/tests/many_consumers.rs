//! A kernel that many others read is weighed with each of them, and a linear with all of them.

use fuseline_core::ir::{Graph, ValueId};
use fuseline_core::plan::{Options, Place, Plan, Reason, Verdict, compile};

fn plan(text: &str) -> Plan {
    let graph = Graph::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    compile(&graph, &Options::default()).unwrap()
}

fn verdict(plan: &Plan, producer: u32, consumer: u32) -> &Verdict {
    let edge = (ValueId(producer), ValueId(consumer));
    let decision = plan.decisions().iter().find(|line| (line.producer, line.consumer) == edge);
    &decision.unwrap_or_else(|| panic!("no decision on {edge:?}\n{}", plan.explain())).verdict
}

/// A norm, 99 linears that read a part of it each, and element-wise work on all of it. A linear
/// cannot have the norm as its prologue, since the others need it too.
#[test]
fn the_last_of_a_hundred_consumers_is_merged() {
    let mut text = "block b
arg %0 x input f32[1, D:256]
arg %1 g weight f32[D:256]
arg %2 w weight Q8_0{N:40, K:64}
%3 = rms_norm %0 %1 eps=0.00001 : f32[1, D:256]
"
    .to_string();
    let mut outputs = String::new();
    for linear in 0..99 {
        let (part, product) = (4 + 2 * linear, 5 + 2 * linear);
        text += &format!("%{part} = slice %3 start={linear} len=64 : f32[1, 64]\n");
        text += &format!("%{product} = linear %{part} %2 : f32[1, N:40]\n");
        outputs += &format!(" %{product}");
    }
    text += &format!("%202 = tanh %3 : f32[1, D:256]\nreturn{outputs} %202\n");
    let plan = plan(&text);
    assert_eq!(*verdict(&plan, 3, 202), Verdict::Fused { rule: "row_epilogue" });
    for linear in 0..99 {
        let found = verdict(&plan, 4 + 2 * linear, 5 + 2 * linear);
        assert_eq!(*found, Verdict::Apart(Reason::SecondUse { n_uses: 100 }), "{linear}");
    }
    assert_eq!(plan.n_launches(), 100);
}

/// Chains of two that read one softmax become one kernel each before the softmax has its turn: which
/// consumers are weighed does not depend on that.
#[test]
fn consumers_that_merge_hide_no_other() {
    // Rows of another width than the norm's, so none of them can be merged with it.
    let mut text = "block b
arg %0 x input f32[8, D:64]
%1 = softmax %0 : f32[8, D:64]
"
    .to_string();
    let mut outputs = String::new();
    for chain in 0..99 {
        let [part, max, exp] = [2 + 3 * chain, 3 + 3 * chain, 4 + 3 * chain];
        text += &format!("%{part} = reshape %1 shape=[4, 128] : f32[4, 128]\n");
        text += &format!("%{max} = row_max %{part} : f32[4, 1]\n");
        text += &format!("%{exp} = exp %{max} : f32[4, 1]\n");
        outputs += &format!(" %{exp}");
    }
    text += &format!("%299 = tanh %1 : f32[8, D:64]\nreturn{outputs} %299\n");
    let plan = plan(&text);
    assert_eq!(*verdict(&plan, 1, 299), Verdict::Fused { rule: "row_epilogue" });
    for chain in 0..99 {
        let found = verdict(&plan, 3 + 3 * chain, 4 + 3 * chain);
        assert!(matches!(found, Verdict::Fused { .. }), "{found:?}");
    }
}

/// With one of its consumers alone, a product that is split would be stored for the others.
#[test]
fn a_linear_is_merged_with_all_of_its_seventy_consumers() {
    let mut text = "block b
arg %0 x input f32[2, K:64]
arg %1 w weight Q8_0{N:560, K:64}
%2 = linear %0 %1 : f32[2, N:560]
"
    .to_string();
    let mut outputs = String::new();
    for consumer in 0..70 {
        let (part, tanh) = (3 + 2 * consumer, 4 + 2 * consumer);
        text += &format!("%{part} = slice %2 start={} len=8 : f32[2, 8]\n", 8 * consumer);
        text += &format!("%{tanh} = tanh %{part} : f32[2, 8]\n");
        outputs += &format!(" %{tanh}");
    }
    let plan = plan(&format!("{text}return{outputs}\n"));
    assert_eq!(plan.n_launches(), 1, "{}", plan.explain());
    assert_eq!(plan.place(ValueId(2)), Place::None);
    assert_eq!(plan.scratch_bytes(), 0);
}
