//! Leaves out values that no result and no cache depends on.

use fuseline_core::ir::{Graph, Op, ValueId};

/// Removes dead values and numbers the others anew. Arguments and appends stay.
pub fn prune(graph: &mut Graph) {
    let mut live = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|output| live[output.index()] = true);
    for id in graph.ids().rev() {
        live[id.index()] |= matches!(graph[id].op, Op::Arg | Op::Append);
        if live[id.index()] {
            graph.values[id.index()].inputs.iter().for_each(|input| live[input.index()] = true);
        }
    }
    let mut kept = 0;
    let renamed: Vec<ValueId> = live
        .iter()
        .map(|&live| {
            let id = ValueId(kept);
            kept += u32::from(live);
            id
        })
        .collect();
    let rename = |id: &mut ValueId| *id = renamed[id.index()];
    let mut index = 0;
    graph.values.retain(|_| {
        index += 1;
        live[index - 1]
    });
    graph.values.iter_mut().flat_map(|value| &mut value.inputs).for_each(rename);
    graph.args.iter_mut().map(|arg| &mut arg.value).for_each(rename);
    graph.outputs.iter_mut().for_each(rename);
}
