//! What the kernel of a producer and one of its consumers costs at least, told from the two alone.
//!
//! The [partition](super::partition) asks it of every possible merge, again after each merge
//! nearby, and asks for a structure only where this promises the most. So it looks at what the
//! consumer reads, and at nothing that grows with the graph.
//!
//! Bytes are exact. Instructions are exact where thousands of consumers may each be merged with a
//! producer whose value is stored for the others: element-wise work and reductions among each
//! other, and element-wise work on what a product, an attention or a gather gives. If they were
//! not, all of those consumers would be weighed after each merge. Elsewhere they count as none.

use super::context::Context;
use super::cost::Cost;
use super::draft::Draft;
use super::structure::{Rows, Template, work_elements};
use crate::ir::{Graph, Type, ValueId};
use crate::target::Target;

/// Of each element of a pointwise kernel, as [`cost`](super::cost::cost) counts: index, store,
/// branch.
const FIXED_INSTRUCTIONS: usize = 4;
/// Of each load of such an element: address, load, widening.
const LOAD_INSTRUCTIONS: usize = 4;

/// What the kernel of a producer and one of its consumers costs at least, if there is one.
pub(crate) fn at_least(
    cx: &Context<'_>,
    producer: &Draft,
    consumer: &Draft,
    target: &Target,
) -> Cost {
    let (p, c) = (&producer.cost, &consumer.cost);
    let Some(joint) = Joint::of(cx, producer, consumer) else { return a_launch(target) };
    let read_bytes = p.read_bytes.saturating_add(c.read_bytes).saturating_sub(joint.read_bytes);
    let write_bytes = p.write_bytes.saturating_add(c.write_bytes).saturating_sub(joint.write_bytes);
    let instructions = instructions(cx, producer, consumer, &joint).unwrap_or(0);
    on(target, read_bytes, write_bytes, instructions)
}

/// What every kernel costs at least.
pub(crate) fn a_launch(target: &Target) -> Cost {
    on(target, 0, 0, 0)
}

fn on(target: &Target, read_bytes: usize, write_bytes: usize, instructions: usize) -> Cost {
    let move_ns = read_bytes.saturating_add(write_bytes) as f64 / target.dram_bytes_per_ns;
    let issue_ns = instructions as f64 / target.instructions_per_ns;
    Cost { read_bytes, write_bytes, instructions, ns: move_ns.max(issue_ns) + target.launch_ns }
}

/// What two kernels do twice and one kernel of both does not.
#[derive(Default)]
struct Joint {
    /// The consumer's loads of what the producer computes or loads too.
    n_loads: usize,
    /// The bytes of these.
    read_bytes: usize,
    /// The bytes of `gone`.
    write_bytes: usize,
    /// What the consumer reads from the producer.
    computed: Vec<ValueId>,
    /// Those of them that need not be stored any more.
    gone: Vec<ValueId>,
}

impl Joint {
    /// None if both read a weight or cache: how much is read of these depends on all members.
    fn of(cx: &Context<'_>, producer: &Draft, consumer: &Draft) -> Option<Joint> {
        let graph = cx.graph;
        let n_members = producer.members.len() + consumer.members.len();
        let inside = |id: &ValueId| {
            producer.members.binary_search(id).is_ok() || consumer.members.binary_search(id).is_ok()
        };
        let mut joint = Joint::default();
        for &id in &consumer.loads {
            let is_computed = producer.members.binary_search(&id).is_ok();
            if !is_computed && producer.loads.binary_search(&id).is_err() {
                continue;
            }
            if !matches!(graph[id].ty, Type::Tensor { .. } | Type::Index { .. }) {
                return None;
            }
            let bytes = graph[id].ty.bytes();
            joint.n_loads += 1;
            joint.read_bytes += bytes;
            if !is_computed {
                continue;
            }
            joint.computed.push(id);
            let users = cx.member_users(id);
            // More users than members are not all inside.
            let stays = cx.is_output(id) || users.len() > n_members || !users.iter().all(inside);
            if !stays {
                joint.gone.push(id);
                joint.write_bytes += bytes;
            }
        }
        Some(joint)
    }
}

/// The instructions of the kernel of both at least; none where nothing is known of them.
fn instructions(
    cx: &Context<'_>,
    producer: &Draft,
    consumer: &Draft,
    joint: &Joint,
) -> Option<usize> {
    let graph = cx.graph;
    match (&producer.structure.template, &consumer.structure.template) {
        (Template::Pointwise, Template::Pointwise) => {
            let each = each(graph, producer)? + each(graph, consumer)?;
            let n_loads = producer.loads.len() + consumer.loads.len() - joint.n_loads;
            Some((fixed(n_loads) + each).saturating_mul(elements(graph, consumer)?))
        }
        (Template::Rows(rows), Template::Pointwise)
        | (Template::Pointwise, Template::Rows(rows)) => {
            rows_instructions(graph, producer, consumer, joint, (rows, rows.row_ops.len()))
        }
        (Template::Rows(rows), Template::Rows(others)) => {
            let n_row_ops = rows.row_ops.len() + others.row_ops.len();
            rows_instructions(graph, producer, consumer, joint, (rows, n_row_ops))
        }
        (Template::Attend { .. } | Template::Gather { .. }, Template::Pointwise) => {
            Some(producer.cost.instructions.saturating_add(epilogue(cx, consumer, joint)))
        }
        // The same parts of the products are computed in the same blocks if the consumer works on
        // one stored value: it can only join its group. An operand that is computed inline or
        // shared, whichever costs less, might change its place.
        (Template::Linear(linear), Template::Pointwise) => {
            let is_one = joint.computed.len() == 1 && joint.gone.is_empty();
            let has_place = producer.structure.prologue.is_empty() || !linear.row_ops.is_empty();
            let same = is_one && has_place;
            same.then(|| producer.cost.instructions.saturating_add(epilogue(cx, consumer, joint)))
        }
        _ => None,
    }
}

fn fixed(n_loads: usize) -> usize {
    FIXED_INSTRUCTIONS + LOAD_INSTRUCTIONS * n_loads
}

/// Elements that a pointwise kernel works on: of each of its stored values.
fn elements(graph: &Graph, draft: &Draft) -> Option<usize> {
    draft.stores.first().map(|&id| work_elements(graph, id))
}

/// Passes over the rows: one for each reduction, and one if anything is stored along them.
fn passes<'d>(
    graph: &Graph,
    n_row_ops: usize,
    n_rows: usize,
    mut stores: impl Iterator<Item = &'d ValueId>,
) -> usize {
    n_row_ops + usize::from(stores.any(|&id| work_elements(graph, id) > n_rows))
}

/// Instructions of all members for one element of a kernel of elements or rows.
fn each(graph: &Graph, draft: &Draft) -> Option<usize> {
    let instructions = draft.cost.instructions;
    match &draft.structure.template {
        Template::Pointwise => {
            instructions.checked_div(elements(graph, draft)?)?.checked_sub(fixed(draft.loads.len()))
        }
        Template::Rows(rows) => {
            let passes = passes(graph, rows.row_ops.len(), rows.n_rows, draft.stores.iter());
            instructions.checked_div(rows.n_rows * rows.width * passes)
        }
        Template::Linear(_) | Template::Attend { .. } | Template::Gather { .. } => None,
    }
}

/// Of a kernel of rows, which both kernels have or take part in.
fn rows_instructions(
    graph: &Graph,
    producer: &Draft,
    consumer: &Draft,
    joint: &Joint,
    (rows, n_row_ops): (&Rows, usize),
) -> Option<usize> {
    let each = each(graph, producer)? + each(graph, consumer)?;
    let kept = producer.stores.iter().filter(|id| !joint.gone.contains(id));
    let passes = passes(graph, n_row_ops, rows.n_rows, consumer.stores.iter().chain(kept));
    Some(each.saturating_mul(rows.n_rows * rows.width * passes))
}

/// Of a pointwise consumer that works on a producer's results element by element. What does not
/// depend on them is not counted there, so this is nothing where some of it does not.
fn epilogue(cx: &Context<'_>, consumer: &Draft, joint: &Joint) -> usize {
    let graph = cx.graph;
    let Some(n_elements) = elements(graph, consumer) else { return 0 };
    let is_after =
        |&id: &ValueId| work_elements(graph, id) == n_elements && cx.depends(id, &joint.computed);
    match each(graph, consumer) {
        Some(each) if consumer.members.iter().all(is_after) => each.saturating_mul(n_elements),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::order::Order;
    use crate::random::{GraphOptions, Rng, random_graph};
    use crate::target::{REFERENCE, family_shared_bytes};
    use std::collections::BTreeMap;

    /// How many kernels of two there were by their templates, and of how many the cost was known.
    type Counts = BTreeMap<(&'static str, &'static str, bool), (usize, usize)>;

    /// Compares [`at_least`] with every kernel of two, while random ones are merged.
    fn check_least(graph: &Graph, rng: &mut Rng, counts: &mut Counts) {
        let cx = Context::new(graph, family_shared_bytes());
        let draft = |members| Draft::new(&cx, members, REFERENCE, None);
        let members: Vec<ValueId> = graph.ids().filter(|&id| cx.is_member(id)).collect();
        let index_of = |user: &ValueId| members.binary_search(user).unwrap();
        let consumers =
            members.iter().map(|&id| cx.member_users(id).iter().map(index_of).collect());
        let mut order = Order::new(consumers.collect());
        let alone = members.iter().map(|&id| Some(draft(vec![id]).unwrap()));
        let mut drafts: Vec<Option<Draft>> = alone.collect();
        loop {
            let mut sets = Vec::new();
            for producer in 0..drafts.len() {
                for consumer in order.consumers(producer).to_vec() {
                    let set = [producer, consumer];
                    let [Some(p), Some(c)] = set.map(|index| drafts[index].as_ref()) else {
                        panic!("{set:?} are no kernels\n{graph}")
                    };
                    let mut all = [&p.members[..], &c.members].concat();
                    all.sort_unstable();
                    if order.leaves_and_returns(&set) {
                        continue;
                    }
                    let Ok(merged) = draft(all) else { continue };
                    let (least, cost) = (at_least(&cx, p, c, REFERENCE), merged.cost);
                    let context = || format!("{:?}\n{graph}", merged.members);
                    assert!(least.read_bytes <= cost.read_bytes, "reads of {}", context());
                    assert!(least.write_bytes <= cost.write_bytes, "writes of {}", context());
                    assert!(
                        least.instructions <= cost.instructions,
                        "instructions of {}",
                        context()
                    );
                    assert!(least.ns <= cost.ns, "time of {}", context());
                    let [a, b] = [p, c].map(|draft| draft.structure.template.name());
                    let is_kept = p.stores.iter().all(|id| merged.stores.contains(id));
                    let count = counts.entry((a, b, is_kept)).or_default();
                    count.0 += 1;
                    count.1 += usize::from(least == cost);
                    sets.push((set, merged));
                }
            }
            if sets.is_empty() {
                return;
            }
            let (set, merged) = sets.swap_remove(rng.below(sets.len()));
            set.iter().for_each(|&index| drafts[index] = None);
            drafts[order.merge(&set)] = Some(merged);
        }
    }

    /// An attention whose result two operations read, element by element.
    const ATTENTION: &str = "block attention
arg %0 q input f32[3, 4, 16]
arg %1 kv cache cache f32[3, 2, 16, 8]
arg %2 pos input index[3]
%3 = attend %0 %1 %2 scale=0.25 : f32[3, 4, 16]
%4 = tanh %3 : f32[3, 4, 16]
%5 = exp %4 : f32[3, 4, 16]
%6 = neg %3 : f32[3, 4, 16]
return %5 %6
";

    #[test]
    fn no_kernel_of_two_costs_less_than_the_least() {
        let mut counts = Counts::new();
        for seed in 0..300 {
            let options = GraphOptions { steps: 12, ..GraphOptions::default() };
            check_least(&random_graph(seed, options), &mut Rng::new(seed), &mut counts);
        }
        let attention = Graph::parse(ATTENTION).unwrap();
        (0..9).for_each(|seed| check_least(&attention, &mut Rng::new(seed), &mut counts));
        // Where all that the producer stores is stored still, the rest of the consumers may be
        // thousands.
        for (producer, consumer, least) in [
            ("pointwise", "pointwise", 100),
            ("pointwise", "rows", 100),
            ("rows", "pointwise", 100),
            ("rows", "rows", 100),
            ("linear", "pointwise", 95),
            ("gather", "pointwise", 95),
            ("attend", "pointwise", 100),
        ] {
            let (n, n_exact) = counts[&(producer, consumer, true)];
            assert!(
                n > 5 && 100 * n_exact >= least * n,
                "{producer}, {consumer}: {n_exact} of {n}"
            );
        }
    }
}
