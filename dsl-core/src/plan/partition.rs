//! The partition: which operations share a kernel.
//!
//! It starts with one kernel an operation and merges siblings first. Then it takes, again and
//! again, the merge along an edge that saves the most time among those that some
//! [rule](super::rules) matches and [`structure`](super::structure) finds legal, until none saves
//! any. Gains are compared in steps of [`GAIN_STEP_NS`], since no estimate is finer; ties go to the
//! earlier producer, so that work is done where its operand is made, then to the earlier consumer.
//!
//! A linear whose outputs are split among several consumers is also tried with all of them at
//! once: with one of them alone, the others would still need the whole product stored.
//!
//! A possible merge waits in a [queue](Candidates) with what it saves at most, which
//! [`bound::at_least`] tells without asking for a structure. It is weighed when its turn comes: if
//! it saves as much, nothing that waits saves more. After a merge only the neighbours are offered
//! again, so the search takes time in proportion to the graph.

use super::bound;
use super::candidates::{Candidate, Candidates, Consumers};
use super::context::Context;
use super::cost::Cost;
use super::decision::{Decision, Reason, Verdict};
use super::draft::Draft;
use super::operand::{self, OperandPlace};
use super::order::Order;
use super::rules::{RULES, Rule, sibling_linear};
use super::structure::Template;
use crate::ir::{Op, Pin, ValueId};
use crate::target::Target;
use std::collections::{BTreeMap, BTreeSet};

/// The kernels in launch order, one decision an edge, and further lines of the log.
pub(crate) struct Partition {
    pub kernels: Vec<Draft>,
    pub decisions: Vec<Decision>,
    pub notes: Vec<String>,
}

/// A merge that a rule matches and that has a structure.
struct Merge {
    rule: &'static Rule,
    draft: Draft,
    gain_ns: f64,
}

struct Search<'a> {
    cx: &'a Context<'a>,
    target: &'a Target,
    /// Where operands of linears are computed whatever it costs.
    wanted: Option<OperandPlace>,
    /// Grown kernels; `None` where one was merged into another.
    drafts: Vec<Option<Draft>>,
    /// The kernel of each value.
    kernel_of: Vec<Option<usize>>,
    /// Which kernels read from which.
    order: Order,
    /// Merges that may be the next.
    candidates: Candidates,
    /// Producers and consumers that had another kernel between them when they were offered.
    around: BTreeSet<(usize, usize)>,
    /// The rule that joined an edge.
    joined: BTreeMap<(ValueId, ValueId), &'static str>,
    notes: Vec<String>,
}

/// Operations of a kernel at most: the field's cap of an expression.
const MAX_MEMBERS: usize = 100;

/// Gains that differ by less are equal.
const GAIN_STEP_NS: f64 = 10.0;

/// What a merge counts as that puts an operand where it is wanted: more than any saves, so that the
/// search goes where it would not go otherwise.
const WANTED_GAIN_NS: f64 = 1e9;

/// Partitions the live operations of a graph.
pub(crate) fn partition(
    cx: &Context<'_>,
    target: &Target,
    fusion: bool,
    wanted: Option<OperandPlace>,
) -> Partition {
    let mut search = Search::new(cx, target, wanted);
    if fusion {
        search.merge_inlined();
        search.merge_siblings();
        search.offer_everything();
        while search.merge_best() {}
    }
    let decisions = search.decisions(fusion);
    let order = search.order.launch_order(|index| search.drafts[index].is_some());
    let mut drafts = search.drafts;
    let kernels = order.into_iter().filter_map(|index| drafts[index].take()).collect();
    Partition { kernels, decisions, notes: search.notes }
}

impl<'a> Search<'a> {
    fn new(cx: &'a Context<'a>, target: &'a Target, wanted: Option<OperandPlace>) -> Search<'a> {
        let mut drafts = Vec::new();
        let mut kernel_of = vec![None; cx.graph.values.len()];
        let members: Vec<ValueId> = cx.graph.ids().filter(|&id| cx.is_member(id)).collect();
        for &id in &members {
            // An operation alone always has a structure: it is its own template.
            match Draft::new(cx, vec![id], target, wanted) {
                Ok(draft) => {
                    kernel_of[id.index()] = Some(drafts.len());
                    drafts.push(Some(draft));
                }
                Err(reason) => {
                    panic!("internal error in pass \"partition\": {id}: {reason}\n{}", cx.graph)
                }
            }
        }
        let kernel = |user: &ValueId| kernel_of[user.index()];
        let consumers = members.iter().map(|&id| cx.member_users(id).iter().filter_map(kernel));
        Search {
            cx,
            target,
            wanted,
            order: Order::new(consumers.map(Iterator::collect).collect()),
            candidates: Candidates::new(drafts.len()),
            drafts,
            kernel_of,
            around: BTreeSet::new(),
            joined: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Why a set cannot become one kernel whatever its structure: limits that need no more than
    /// the members of its kernels. It is asked for every set, and before anything else is.
    fn refusal(&self, set: &[usize]) -> Option<Reason> {
        let n_members = set.iter().map(|&index| self.members(index).len()).sum();
        (n_members > MAX_MEMBERS).then_some(Reason::Members { n_members, limit: MAX_MEMBERS })
    }

    /// The kernel of any set.
    fn merged(&mut self, set: &[usize]) -> Result<Draft, Reason> {
        match self.refusal(set) {
            Some(reason) => Err(reason),
            None if self.order.leaves_and_returns(set) => Err(Reason::Cycle),
            None => self.together(set),
        }
    }

    /// The kernel of a set that was not refused and that no other kernel lies between.
    fn together(&self, set: &[usize]) -> Result<Draft, Reason> {
        let mut all: Vec<ValueId> =
            set.iter().flat_map(|&index| self.members(index)).copied().collect();
        all.sort_unstable();
        let graph = self.cx.graph;
        // The other way around, a value that thousands read would be asked about each of them.
        let reads_pinned = |input: &ValueId| {
            let source = self.cx.source(*input);
            graph[source].pin == Some(Pin::Materialize) && all.binary_search(&source).is_ok()
        };
        if all.iter().flat_map(|&user| &graph[user].inputs).any(reads_pinned) {
            return Err(Reason::Pinned(Pin::Materialize));
        }
        Draft::new(self.cx, all, self.target, self.wanted)
    }

    fn members(&self, index: usize) -> &[ValueId] {
        self.drafts[index].as_ref().map_or(&[], |draft| &draft.members)
    }

    /// Puts every value that is pinned inline into its user's kernel, users first, so that what is
    /// inlined into an inlined value comes along.
    fn merge_inlined(&mut self) {
        for id in self.cx.graph.ids().rev() {
            if self.cx.graph[id].pin != Some(Pin::Inline) {
                continue;
            }
            let users = self.cx.member_users(id).to_vec();
            for user in users {
                let (Some(own), Some(other)) =
                    (self.kernel_of[id.index()], self.kernel_of[user.index()])
                else {
                    continue;
                };
                if own == other {
                    continue;
                }
                // What cannot be joined is left apart, and the plan says why.
                if let Ok(draft) = self.merged(&[own, other]) {
                    self.replace(&[own, other], draft, "inline");
                }
            }
        }
    }

    fn merge_siblings(&mut self) {
        for (a, b) in sibling_linear::pairs(self.cx.graph) {
            let (Some(ka), Some(kb)) = (self.kernel_of[a.index()], self.kernel_of[b.index()])
            else {
                continue;
            };
            if ka == kb {
                continue;
            }
            match self.merged(&[ka, kb]) {
                Ok(draft) => {
                    let apart_ns = self.cost_ns(ka) + self.cost_ns(kb);
                    self.notes.push(format!(
                        "merge {a} | {b}  {}: one launch reads {} once, {:.0} ns instead of {:.0} ns",
                        sibling_linear::NAME,
                        self.cx.graph[a].inputs[0],
                        draft.cost.ns,
                        apart_ns,
                    ));
                    self.replace(&[ka, kb], draft, sibling_linear::NAME);
                }
                Err(reason) => {
                    self.notes.push(format!("apart {a} | {b}  {}: {reason}", sibling_linear::NAME));
                }
            }
        }
    }

    fn cost_ns(&self, index: usize) -> f64 {
        self.drafts[index].as_ref().map_or(0.0, |draft| draft.cost.ns)
    }

    /// Offers every possible merge.
    fn offer_everything(&mut self) {
        for producer in 0..self.drafts.len() {
            for consumer in self.order.consumers(producer).to_vec() {
                self.offer_one(producer, consumer);
            }
            self.offer_all(producer);
        }
    }

    /// Offers every possible merge that a merge has changed.
    fn offer_near(&mut self, kernel: usize) {
        for producer in self.order.producers(kernel).to_vec() {
            self.offer_one(producer, kernel);
            self.offer_all(producer);
        }
        for consumer in self.order.consumers(kernel).to_vec() {
            self.offer_one(kernel, consumer);
        }
        self.offer_all(kernel);
    }

    /// Offers a producer with one of its consumers.
    fn offer_one(&mut self, producer: usize, consumer: usize) {
        let set = [producer, consumer];
        self.around.remove(&(producer, consumer));
        if self.refusal(&set).is_some() {
            return;
        }
        if self.order.leaves_and_returns(&set) {
            self.around.insert((producer, consumer));
            return;
        }
        let (Some(p), Some(c)) = (&self.drafts[producer], &self.drafts[consumer]) else { return };
        if let Some(rule) = find_rule(p, [c]) {
            let least = bound::at_least(self.cx, p, c, self.target);
            let gain_ns = self.gain_at_most(rule, &[p, c], &least);
            let consumers = Consumers::One(consumer);
            self.candidates.offer(Candidate { steps: steps(gain_ns), producer, consumers });
        }
    }

    /// Offers a linear with all of its consumers.
    fn offer_all(&mut self, producer: usize) {
        let Some(draft) = &self.drafts[producer] else { return };
        let n_consumers = self.order.consumers(producer).len();
        // Each has a member at least.
        let is_some = (2..MAX_MEMBERS).contains(&n_consumers);
        if !is_some || !matches!(draft.structure.template, Template::Linear(_)) {
            return;
        }
        let set = self.set(producer, Consumers::All);
        if self.refusal(&set).is_some() {
            return;
        }
        let drafts = self.drafts_of(&set);
        if let Some(rule) = find_rule(draft, drafts[1..].iter().copied()) {
            // A launch, whatever it moves: these sets are few, so each may well be weighed.
            let gain_ns = self.gain_at_most(rule, &drafts, &bound::a_launch(self.target));
            let consumers = Consumers::All;
            self.candidates.offer(Candidate { steps: steps(gain_ns), producer, consumers });
        }
    }

    /// What a merge saves at most whose kernel costs `least` at least.
    fn gain_at_most(&self, rule: &Rule, set: &[&Draft], least: &Cost) -> f64 {
        let before: Vec<&Cost> = set.iter().map(|draft| &draft.cost).collect();
        let gain_ns = (rule.gain_ns)(&before, least);
        // The operand of a consumer, or the one that the producer computes already.
        let is_linear = |draft: &&Draft| matches!(draft.structure.template, Template::Linear(_));
        let has_operand = set[1..].iter().any(is_linear)
            || set.iter().any(|draft| operand::place_of(&draft.structure).is_some());
        match self.wanted {
            Some(OperandPlace::Inline | OperandPlace::Shared) if has_operand => {
                gain_ns.max(WANTED_GAIN_NS)
            }
            Some(_) | None => gain_ns,
        }
    }

    fn drafts_of(&self, set: &[usize]) -> Vec<&Draft> {
        set.iter().filter_map(|&index| self.drafts[index].as_ref()).collect()
    }

    /// The producer with one of its consumers, or with all of them.
    fn set(&self, producer: usize, consumers: Consumers) -> Vec<usize> {
        match consumers {
            Consumers::One(consumer) => vec![producer, consumer],
            Consumers::All => [&[producer], self.order.consumers(producer)].concat(),
        }
    }

    /// Makes the merge that saves the most; false if none saves any.
    fn merge_best(&mut self) -> bool {
        while let Some(candidate) = self.candidates.pop() {
            let set = self.set(candidate.producer, candidate.consumers);
            // Merges elsewhere may have made a way around since it was offered. Only merges of its
            // own kernels can close that again, and these offer it anew.
            if self.order.leaves_and_returns(&set) {
                continue;
            }
            let Ok(Merge { rule, draft, gain_ns }) = self.weigh(&set) else { continue };
            let steps = steps(gain_ns);
            debug_assert!(steps <= candidate.steps, "{set:?} saves more than was thought");
            if steps == candidate.steps {
                let kernel = self.replace(&set, draft, rule.name);
                self.offer_near(kernel);
                return true;
            }
            self.candidates.offer(Candidate { steps, ..candidate });
        }
        false
    }

    /// Whether a producer and consumers that were not refused and that no other kernel lies
    /// between can become one, and what that saves.
    fn weigh(&self, set: &[usize]) -> Result<Merge, Reason> {
        let draft = self.together(set)?;
        let drafts = self.drafts_of(set);
        let Some((producer, consumers)) = drafts.split_first() else {
            return Err(Reason::Cycle);
        };
        let Some(rule) = find_rule(producer, consumers.iter().copied()) else {
            return Err(Reason::TwoTemplates {
                producer: producer.structure.template.name(),
                consumer: consumers.first().map_or("", |c| c.structure.template.name()),
            });
        };
        let before: Vec<&Cost> = drafts.iter().map(|draft| &draft.cost).collect();
        let gain_ns = match (self.wanted, operand::place_of(&draft.structure)) {
            (Some(OperandPlace::Scratch), Some(_)) => f64::NEG_INFINITY,
            (Some(place), Some(found)) if place == found => WANTED_GAIN_NS,
            _ => (rule.gain_ns)(&before, &draft.cost),
        };
        Ok(Merge { rule, draft, gain_ns })
    }

    /// Puts `draft` in the place of the kernels of a set, and returns its number.
    fn replace(&mut self, set: &[usize], draft: Draft, rule: &'static str) -> usize {
        for &user in &draft.members {
            for &input in &self.cx.graph[user].inputs {
                let id = self.cx.source(input);
                let across = draft.members.binary_search(&id).is_ok()
                    && self.kernel_of[id.index()] != self.kernel_of[user.index()];
                if across {
                    self.joined.insert((id, user), rule);
                }
            }
        }
        // Kernels stay in the order of their first operations.
        let keep = self.order.merge(set);
        for &id in &draft.members {
            self.kernel_of[id.index()] = Some(keep);
        }
        set.iter().for_each(|&index| self.drafts[index] = None);
        self.drafts[keep] = Some(draft);
        self.candidates.merged(set, self.order.producers(keep));
        keep
    }

    /// One line for every edge between operations of the user's graph.
    fn decisions(&mut self, fusion: bool) -> Vec<Decision> {
        let graph = self.cx.graph;
        let mut decisions = Vec::new();
        // Several edges may lead from one kernel to another.
        let mut apart: BTreeMap<(usize, usize), Reason> = BTreeMap::new();
        for consumer in graph.ids() {
            let mut inputs = graph[consumer].inputs.clone();
            inputs.sort_unstable();
            inputs.dedup();
            for producer in inputs {
                if matches!(graph[producer].op, Op::Arg | Op::Const(_)) {
                    continue;
                }
                let verdict = match self.kernels_of(producer, consumer) {
                    Err(verdict) => verdict,
                    Ok(_) if !fusion => Verdict::Apart(Reason::Off),
                    Ok((p, c)) => {
                        let reason =
                            apart.entry((p, c)).or_insert_with(|| self.why_apart(p, c)).clone();
                        Verdict::Apart(reason)
                    }
                };
                decisions.push(Decision { producer, consumer, verdict });
            }
        }
        decisions
    }

    /// The two kernels that an edge lies between, or the verdict on one that does not.
    fn kernels_of(&self, producer: ValueId, consumer: ValueId) -> Result<(usize, usize), Verdict> {
        let cx = self.cx;
        if !cx.live[consumer.index()] {
            return Err(Verdict::Apart(Reason::Dead));
        }
        if cx.is_free_view(consumer) {
            return Err(Verdict::View);
        }
        let source = cx.source(producer);
        let (Some(p), Some(c)) = (self.kernel_of[source.index()], self.kernel_of[consumer.index()])
        else {
            return Err(Verdict::View); // a view of an argument
        };
        if p == c {
            let rule = self.joined.get(&(source, consumer)).copied();
            return Err(Verdict::Fused { rule: rule.unwrap_or("same_kernel") });
        }
        Ok((p, c))
    }

    /// Why a producer and a consumer that are left did not become one.
    fn why_apart(&self, producer: usize, consumer: usize) -> Reason {
        let set = [producer, consumer];
        if let Some(reason) = self.refusal(&set) {
            return reason;
        }
        if self.around.contains(&(producer, consumer)) {
            return Reason::Cycle;
        }
        match self.weigh(&set) {
            Err(reason) => reason,
            // It was not made when its turn came, since another kernel lay between by then.
            Ok(Merge { gain_ns, .. }) if steps(gain_ns) > 0 => Reason::Cycle,
            Ok(Merge { draft, .. }) => {
                let saved_ns = self.target.launch_ns;
                let before_ns = self.cost_ns(producer) + self.cost_ns(consumer);
                let cost_ns = saved_ns + draft.cost.ns - before_ns;
                Reason::NoGain { saved_ns, cost_ns: cost_ns.max(0.0) }
            }
        }
    }
}

/// The first rule that joins a producer with each of the consumers.
fn find_rule<'d>(
    producer: &Draft,
    consumers: impl IntoIterator<Item = &'d Draft> + Clone,
) -> Option<&'static Rule> {
    let template = &producer.structure.template;
    let joins = |rule: &&&Rule| {
        consumers.clone().into_iter().all(|c| (rule.matches)(template, &c.structure.template))
    };
    RULES.iter().find(joins).copied()
}

/// A gain in the steps that gains are compared in.
fn steps(gain_ns: f64) -> i64 {
    (gain_ns / GAIN_STEP_NS).round() as i64
}
