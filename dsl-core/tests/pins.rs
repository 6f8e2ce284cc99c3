//! Pins: their text form, where they are legal, and that they are part of a block's digest.

use fuseline_core::ir::{Graph, Pin, ValueId};
use fuseline_core::plan::{Options, Place, Plan, compile, digest};
use fuseline_core::random::{GraphOptions, Rng, random_graph};

/// One of each kind of operation; `{N}` is where value N's pin goes.
const BLOCK: &str = "\
block b
batch B 1..=4
arg %0 x input f32[B<=4, D:64]{0}
arg %1 w weight Q4_1{D:64, D:64}{1}
arg %2 kv cache cache f32[B<=4, 2, 16, 8]{2}
arg %3 pos input index[B<=4]{3}
%4 = linear %0 %1 : f32[B<=4, D:64]{4}
%5 = const value=2.0 : f32[]{5}
%6 h = mul %4 %5 : f32[B<=4, D:64]{6}
%7 = to %6 dtype=bf16 : bf16[B<=4, D:64]{7}
%8 = slice %7 start=0 len=32 : bf16[B<=4, 32]{8}
%9 = reshape %8 shape=[B<=4, 2, 16] : bf16[B<=4, 2, 16]{9}
%10 = append %2 %9 %9 %3 : cache f32[B<=4, 2, 16, 8]{10}
%11 = attend %9 %10 %3 scale=0.25 : f32[B<=4, 2, 16]{11}
%12 = row_sum %7 : f32[B<=4, 1]{12}
%13 = exp %12 : f32[B<=4, 1]{13}
%14 = neg %11 : f32[B<=4, 2, 16]{14}
return %14 %13
";

/// [`BLOCK`] with these pins' text after these values.
fn block(pins: &[(u32, &str)]) -> String {
    let mut text = BLOCK.to_string();
    for (value, pin) in pins {
        text = text.replace(&format!("{{{value}}}"), pin);
    }
    (0..15).fold(text, |text, value| text.replace(&format!("{{{value}}}"), ""))
}

fn parse(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn text_says_the_pin_after_the_type() {
    let text = block(&[(4, " !materialize"), (6, " !inline")]);
    assert!(text.contains("%4 = linear %0 %1 : f32[B<=4, D:64] !materialize\n"), "{text}");
    let graph = parse(&text);
    let pins: Vec<Option<Pin>> = graph.values.iter().map(|value| value.pin).collect();
    let mut expected = vec![None; 15];
    expected[4] = Some(Pin::Materialize);
    expected[6] = Some(Pin::Inline);
    assert_eq!(pins, expected);
    assert_eq!(graph.to_text(), text);
}

#[test]
fn setting_a_pin_is_reading_it() {
    let mut graph = parse(&block(&[]));
    graph.set_pin(ValueId(6), Some(Pin::Inline));
    assert_eq!(graph, parse(&block(&[(6, " !inline")])));
    assert_eq!(graph.with_rows(2)[ValueId(6)].pin, Some(Pin::Inline));
    graph.set_pin(ValueId(6), None);
    assert_eq!(graph, parse(&block(&[])));
}

/// Legal or not, on arguments of every kind too.
#[test]
fn pins_of_random_graphs_round_trip() {
    for seed in 0..200 {
        let mut graph = random_graph(seed, GraphOptions::default());
        let mut rng = Rng::new(seed);
        for id in graph.ids() {
            graph.set_pin(id, rng.pick(&[None, Some(Pin::Materialize), Some(Pin::Inline)]));
        }
        let text = graph.to_text();
        assert_eq!(parse(&text), graph, "seed {seed}\n{text}");
    }
}

#[test]
fn other_words_after_a_type_are_refused() {
    for (pin, part) in [
        (" !inlined", "expected `!materialize` or `!inline`, found `!inlined`"),
        (" !", "expected `!materialize` or `!inline`, found `!`"),
        (" !inline !inline", "found `!inline !inline`"),
        (" ! materialize x", "found `! materialize x`"),
        (" inline", "expected `[dims]`"),
    ] {
        let error = Graph::parse(&block(&[(6, pin)])).unwrap_err();
        assert_eq!(error.line, 9, "{pin}: {error}");
        assert!(error.message.contains(part), "{pin}: {error}");
    }
    let error = Graph::parse(&block(&[(0, " !inlined")])).unwrap_err();
    assert_eq!(error.line, 3, "{error}");
}

/// What `verify` says to the block with one pin.
fn refusals(value: u32, pin: &str) -> Vec<(ValueId, String)> {
    let graph = parse(&block(&[(value, pin)]));
    let errors = graph.verify().err().unwrap_or_default();
    errors.into_iter().map(|error| (error.value, error.message)).collect()
}

#[test]
fn verify_knows_what_has_memory_of_its_own() {
    for (value, part) in [
        (0, "`arg` cannot be pinned `materialize`: an argument is in memory already"),
        (1, "an argument is in memory already"),
        (2, "an argument is in memory already"),
        (3, "an argument is in memory already"),
        (5, "`const` cannot be pinned `materialize`: a number is part of the kernels"),
        (8, "`slice` cannot be pinned `materialize`: a view has no memory of its own"),
        (9, "`reshape` cannot be pinned `materialize`: a view has no memory of its own"),
        (10, "`append` cannot be pinned `materialize`: a cache is changed where it is"),
    ] {
        let errors = refusals(value, " !materialize");
        assert_eq!(errors.len(), 1, "%{value}: {errors:?}");
        assert_eq!(errors[0].0, ValueId(value));
        assert!(errors[0].1.contains(part), "%{value}: {errors:?}");
    }
    // A result is stored anyway.
    for value in [4, 6, 7, 11, 12, 13, 14] {
        assert_eq!(refusals(value, " !materialize"), [], "%{value}");
    }
}

#[test]
fn verify_knows_what_is_element_wise() {
    for value in [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12] {
        let errors = refusals(value, " !inline");
        assert_eq!(errors.len(), 1, "%{value}: {errors:?}");
        assert_eq!(errors[0].0, ValueId(value));
        let part = "cannot be pinned `inline`: only pointwise operations and casts";
        assert!(errors[0].1.contains(part), "%{value}: {errors:?}");
    }
    assert_eq!(refusals(6, " !inline"), []);
    assert_eq!(refusals(7, " !inline"), []);
}

#[test]
fn results_are_not_inlined() {
    let errors = refusals(13, " !inline");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, ValueId(13));
    assert!(errors[0].1.contains("a result is stored"), "{errors:?}");
    // %9 is a view of a part of %7.
    let text = block(&[(7, " !inline")]).replace("return %14", "return %9");
    let errors = parse(&text).verify().unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].value, ValueId(9));
    assert!(errors[0].message.contains("a result is stored"), "{errors:?}");
}

/// A view without an operand, or of a later one, is refused and no crash.
#[test]
fn damaged_views_are_refused() {
    let mut graph = parse(&block(&[(7, " !inline")]));
    graph.values[9].inputs.clear();
    graph.values[8].inputs[0] = ValueId(9);
    graph.outputs = vec![ValueId(8), ValueId(9)];
    assert!(graph.verify().is_err());
}

#[test]
fn a_pin_is_part_of_the_digest() {
    let texts = ["", " !materialize", " !inline"].map(|pin| block(&[(6, pin)]));
    let [none, materialize, inline] = texts.map(|text| digest(&parse(&text).to_text(), &[]));
    assert_ne!(none, materialize);
    assert_ne!(none, inline);
    assert_ne!(materialize, inline);
}

/// More operations than a kernel is given.
#[test]
fn a_pin_that_cannot_be_kept_is_an_error_with_its_reason() {
    let mut text = "block long\narg %0 x input f32[D:64]\n".to_string();
    for i in 0..120 {
        text += &format!("%{} = neg %{i} : f32[D:64] !inline\n", i + 1);
    }
    text += "%121 y = row_sum %120 : f32[1]\nreturn %121\n";
    let graph = Graph::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let plan = compile(&graph, &Options::default()).unwrap();
    let errors = plan.check_pins();
    assert_eq!(errors.len(), 1, "{}", plan.explain());
    let message = "`neg` (%21) cannot be computed inline in `neg` (%22): \
                   members: 121 operations, a kernel has up to 100";
    assert_eq!(errors[0].message, message);
    let free = Graph::parse(&text.replace(" !inline", "")).unwrap();
    assert!(compile(&free, &Options::default()).unwrap().check_pins().is_empty());
}

fn plan(text: &str) -> Plan {
    compile(&parse(text), &Options::default()).unwrap()
}

/// Kernels that compute a value with this name.
fn n_computed(plan: &Plan, name: &str) -> usize {
    let members = |kernel: usize| plan.kernels()[kernel].members.iter();
    let is_named = |id: &ValueId| plan.graph()[*id].name.as_deref() == Some(name);
    (0..plan.n_launches()).filter(|&kernel| members(kernel).any(is_named)).count()
}

/// The values with this name are in no memory.
fn is_nowhere(plan: &Plan, name: &str) -> bool {
    let graph = plan.graph();
    let mut named = graph.ids().filter(|&id| graph[id].name.as_deref() == Some(name));
    named.all(|id| plan.place(id) == Place::None)
}

#[test]
fn every_user_behind_a_view_computes_an_inlined_value() {
    let plan = plan(
        "block b
arg %0 x input f32[4, D:66]
arg %1 y input f32[4, D:66]
%2 s = add %0 %1 : f32[4, D:66] !inline
%3 = reshape %2 shape=[8, 33] : f32[8, 33]
%4 = row_max %3 : f32[8, 1]
%5 = row_sum %2 : f32[4, 1]
%6 = slice %2 start=3 len=32 : f32[4, 32]
%7 = reshape %6 shape=[2, 64] : f32[2, 64]
%8 = row_sum %7 : f32[2, 1]
return %4 %5 %8
",
    );
    assert_eq!(plan.check_pins(), []);
    assert_eq!(n_computed(&plan, "s"), 3, "{}", plan.explain());
    assert!(is_nowhere(&plan, "s"), "{}", plan.explain());
    assert_eq!(plan.scratch_bytes(), 0);
}

/// Two reductions read one view, and one operation reads two.
#[test]
fn a_view_with_several_users_and_two_views_of_one_user() {
    let plan = plan(
        "block b
arg %0 x input f32[3, D:64]
%1 s = exp %0 : f32[3, D:64] !inline
%2 = slice %1 start=0 len=32 : f32[3, 32]
%3 = slice %1 start=32 len=32 : f32[3, 32]
%4 = mul %2 %3 : f32[3, 32]
%5 = reshape %2 shape=[6, 16] : f32[6, 16]
%6 = row_max %5 : f32[6, 1]
%7 = softmax %2 : f32[3, 32]
return %4 %6 %7
",
    );
    assert_eq!(plan.check_pins(), []);
    assert_eq!(n_computed(&plan, "s"), 3, "{}", plan.explain());
    assert!(is_nowhere(&plan, "s"), "{}", plan.explain());
    let copies = plan.graph().values.iter().filter(|value| value.name.as_deref() == Some("s"));
    assert_eq!(copies.count(), 3, "{}", plan.graph());
}

/// What is inlined into an inlined value is copied with it, the view between them too.
#[test]
fn views_between_inlined_values_are_copied() {
    let plan = plan(
        "block b
arg %0 x input f32[2, D:64]
%1 s = exp %0 : f32[2, D:64] !inline
%2 = reshape %1 shape=[4, 32] : f32[4, 32]
%3 t = tanh %2 : f32[4, 32] !inline
%4 = row_max %3 : f32[4, 1]
%5 = reshape %3 shape=[2, 64] : f32[2, 64]
%6 = row_sum %5 : f32[2, 1]
return %4 %6
",
    );
    assert_eq!(plan.check_pins(), []);
    for name in ["s", "t"] {
        assert_eq!(n_computed(&plan, name), 2, "{}", plan.explain());
        assert!(is_nowhere(&plan, name), "{}", plan.explain());
    }
}

/// The error names the value, and not the view that its user reads it through.
#[test]
fn a_pin_that_cannot_be_kept_behind_a_view_is_an_error() {
    let mut text = "block long\narg %0 x input f32[2, D:64]\n".to_string();
    for i in 0..21 {
        text += &format!("%{} = neg %{i} : f32[2, D:64] !inline\n", i + 1);
    }
    text += "%22 = reshape %21 shape=[128] : f32[128]\n";
    for i in 22..121 {
        text += &format!("%{} = neg %{i} : f32[128] !inline\n", i + 1);
    }
    text += "%122 y = row_sum %121 : f32[1]\nreturn %122\n";
    let plan = plan(&text);
    let errors = plan.check_pins();
    assert_eq!(errors.len(), 1, "{}", plan.explain());
    let message = "`neg` (%21) cannot be computed inline in `neg` (%23): \
                   members: 121 operations, a kernel has up to 100";
    assert_eq!(errors[0].message, message);
}

/// Nothing is computed for a user that no result needs.
#[test]
fn users_that_nothing_needs_are_no_errors() {
    let plan = plan(
        "block b
arg %0 x input f32[2, D:64]
%1 s = exp %0 : f32[2, D:64] !inline
%2 = row_max %1 : f32[2, 1]
%3 = reshape %1 shape=[4, 32] : f32[4, 32]
%4 = row_sum %3 : f32[4, 1]
return %2
",
    );
    assert_eq!(plan.check_pins(), []);
    assert_eq!(plan.n_launches(), 1, "{}", plan.explain());
}
