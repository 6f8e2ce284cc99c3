//! The driver of the passes shows a watcher what each of them made.

use fuseline_core::ir::Graph;
use fuseline_core::plan::passes::run_watched;
use fuseline_core::plan::{Options, PASSES};

#[test]
fn a_watcher_sees_every_pass_in_order_and_which_changed_nothing() {
    let text =
        "block f\narg %0 x input f32[4]\n%1 = exp %0 : f32[4]\n%2 = neg %1 : f32[4]\nreturn %2\n";
    let mut seen = Vec::new();
    let graph = Graph::parse(text).unwrap();
    run_watched(&graph, &Options::default(), &mut |pass, dump| {
        seen.push((pass.name, dump.to_string()));
    })
    .unwrap();
    let names: Vec<&str> = seen.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, PASSES.iter().map(|pass| pass.name).collect::<Vec<_>>());
    let dumps: Vec<&str> = seen.iter().map(|(_, dump)| dump.as_str()).collect();
    let one = "0 pointwise %1 %2";
    let expected =
        ["(unchanged)", &format!("{one}\n"), "(unchanged)", &format!("{one}  1 x 256\n")];
    assert_eq!(dumps, expected);
}
