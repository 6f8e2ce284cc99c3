//! A launch passes a bounded number of parameters, so a chain that reads very many arguments
//! becomes several kernels.

use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Graph, Op, Pointwise, Role, Type, ValueId};
use fuseline_core::plan::{Options, Reason, Verdict, compile};

/// 4 KiB of pointers, less what a kernel knows about its rows.
const MAX_POINTERS: usize = 500;

#[test]
fn a_chain_that_reads_199_arguments_is_several_kernels() {
    // Two further arguments an operation: few enough operations for one kernel.
    const N_ARGS: usize = 199;
    let mut graph = Graph::new("bounds");
    let ty = Type::tensor(DType::F32, vec![Dim::literal(1), Dim::named(33, "D")]);
    let args: Vec<ValueId> =
        (0..N_ARGS).map(|index| graph.arg(&format!("x{index}"), Role::Input, ty.clone())).collect();
    let clamp = Op::Pointwise(Pointwise::Clamp);
    let mut x = args[0];
    for bounds in args[1..].chunks_exact(2) {
        x = graph.push(clamp.clone(), vec![x, bounds[0], bounds[1]]).unwrap();
    }
    graph.outputs.push(x);
    let plan = compile(&graph, &Options::default()).unwrap();

    for kernel in plan.kernels() {
        let n_pointers = kernel.loads.len() + kernel.stores.len();
        assert!(n_pointers <= MAX_POINTERS, "{} passes {n_pointers} pointers", kernel.name);
    }
    // A greedy partition leaves no two neighbours that one launch could pass.
    let n_launches = plan.n_launches();
    assert!((2..=N_ARGS * 3 / MAX_POINTERS + 4).contains(&n_launches), "{n_launches} launches");
    let apart: Vec<&Reason> = plan
        .decisions()
        .iter()
        .filter_map(|decision| match &decision.verdict {
            Verdict::Apart(reason) => Some(reason),
            Verdict::Fused { .. } | Verdict::View => None,
        })
        .collect();
    assert_eq!(apart.len(), n_launches - 1);
    for reason in apart {
        assert!(matches!(reason, Reason::Parameters { .. }), "{reason}");
        assert!(reason.to_string().starts_with("parameters: "), "{reason}");
    }
}
