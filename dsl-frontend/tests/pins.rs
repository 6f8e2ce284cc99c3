//! `materialize()` and `inline()` in programs: the values that carry them in the graph.

mod source;

use fuseline_core::ir::{Graph, Op, Pin};
use source::{errors, graphs, pointed_at};

/// A block `f` with this body, private functions before it.
fn program(functions: &str, body: &str) -> String {
    format!(
        "#[decode(B in 1..=4, D = 64, F = 96, operand = bf16)]
pub mod m {{
    {functions}
    pub fn f(
        x: Tensor<f32, B, D>, gate: Weight<Q4_1, F, D>, up: Weight<Q4_1, F, D>,
        down: Weight<f16, D, F>,
    ) -> Tensor<f32, B, D> {{
        {body}
    }}
}}"
    )
}

/// The graph of `f`, which is one that `verify` takes.
fn graph(functions: &str, body: &str) -> Graph {
    let texts = graphs(&program(functions, body));
    let graph = Graph::parse(texts.last().expect("the graph of `f`")).expect("the text form");
    graph.verify().unwrap_or_else(|errors| panic!("{errors:?}\n{graph}"));
    graph
}

/// The operations that have a pin, as `name op pin`.
fn pins(graph: &Graph) -> Vec<String> {
    let pinned = graph.values.iter().filter_map(|value| Some((value, value.pin?)));
    pinned
        .map(|(value, pin)| {
            format!("{} {} {}", value.name.as_deref().unwrap_or("-"), value.op.name(), pin.name())
        })
        .collect()
}

#[test]
fn methods_pin_what_the_expression_computes() {
    let body = "let g = x.linear(gate).materialize();
        let h = (g.silu().inline() * x.linear(up)).materialize();
        x + h.linear(down)";
    let found = graph("", body);
    assert_eq!(pins(&found), ["g linear materialize", "- silu inline", "h mul materialize"]);
    // The pin adds no operation.
    let plain = graph("", &body.replace(".materialize()", "").replace(".inline()", ""));
    let ops = |graph: &Graph| graph.values.iter().map(|v| v.op.clone()).collect::<Vec<Op>>();
    assert_eq!(ops(&found), ops(&plain));
    assert_eq!(pins(&plain), [""; 0]);
}

#[test]
fn the_text_has_the_pin_at_the_line_of_its_value() {
    let texts = graphs(&program("", "let h = (x.silu() + x).inline(); h * h.sum()"));
    let line = "%5 h = add %4 %0 : f32[B<=4, D:64] !inline";
    assert!(texts[0].lines().any(|found| found == line), "{}", texts[0]);
}

#[test]
fn a_pin_reaches_the_value_through_names_and_may_be_repeated() {
    let found = graph("", "let a = x.exp(); let b = a; let c = b.inline().inline(); a + c.sum()");
    assert_eq!(pins(&found), ["a exp inline"]);
}

#[test]
fn casts_are_pinned_and_the_rounding_of_operands_is_not() {
    let found = graph("", "let h = x.to::<f16>().inline(); h.linear(gate).linear(down)");
    assert_eq!(pins(&found), ["h to inline"]);
    let n_casts = found.values.iter().filter(|value| matches!(value.op, Op::Cast(_))).count();
    assert_eq!(n_casts, 3, "the program's own, and one an operand\n{found}");
}

#[test]
fn equal_expressions_are_pinned_each_for_itself() {
    let found = graph("", "let a = x.silu().inline(); let b = x.silu().materialize(); a + b");
    assert_eq!(pins(&found), ["a silu inline", "b silu materialize"]);
}

#[test]
fn what_nothing_uses_takes_its_pin_along() {
    assert_eq!(pins(&graph("", "let a = x.exp().inline(); x.silu()")), [""; 0]);
}

/// A result of a private function is stored only if its caller stores it.
#[test]
fn pins_of_inlined_functions_are_the_callers() {
    let act = "fn act(g: Tensor<f32, B, F>, u: Tensor<f32, B, F>) -> Tensor<f32, B, F> {
        (g.silu() * u).inline()
    }";
    let found = graph(act, "act(x.linear(gate), x.linear(up)).linear(down)");
    assert_eq!(pins(&found), ["- mul inline"]);
    let twice = graph(
        act,
        "act(x.linear(gate), x.linear(up)).linear(down) + act(x.linear(up), x.linear(up)).linear(down)",
    );
    assert_eq!(pins(&twice), ["- mul inline", "- mul inline"]);
    // The private function's own graph keeps to the rules too.
    let texts = graphs(&program(act, "x.exp()"));
    let own = Graph::parse(&texts[0]).expect("the text form");
    assert!(own.values.iter().all(|value| value.pin != Some(Pin::Inline)), "{own}");
    own.verify().expect("a graph that keeps to the rules");
}

#[test]
fn a_caller_that_returns_an_inlined_value_is_told_at_its_call() {
    let twice = "fn act(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { (x + x).inline() }";
    let program = program(twice, "act(x)");
    let errors = errors(&program);
    let [error] = errors.list() else { panic!("{}", source::show(&errors)) };
    assert_eq!(error.diagnostic.message, "`inline()` does not apply to a result of the block");
    assert_eq!(pointed_at(&program, error), "act");
}
