//! The partition: which operations share a kernel.
//!
//! It starts with one kernel an operation and merges siblings first. Then it takes, again and
//! again, the merge along an edge that saves the most time among those that some
//! [rule](super::rules) matches and [`structure`] finds legal, until none saves any. Gains are
//! compared in steps of [`GAIN_STEP_NS`], since no estimate is finer; ties go to the earlier
//! producer, so that work is done where its operand is made, then to the earlier consumer.
//!
//! A linear whose outputs are split among several consumers is also tried with all of them at
//! once: with one of them alone, the others would still need the whole product stored.

use super::context::Context;
use super::cost::{self, Cost};
use super::decision::{Decision, Reason, Verdict};
use super::operand::{self, OperandPlace};
use super::order::Order;
use super::rules::{RULES, Rule, sibling_linear};
use super::structure::{Structure, Template, structure};
use crate::ir::{Op, Pin, ValueId};
use crate::target::Target;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A kernel that may still grow.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub members: Vec<ValueId>,
    pub structure: Structure,
    pub cost: Cost,
}

/// The kernels in launch order, one decision an edge, and further lines of the log.
pub(crate) struct Partition {
    pub kernels: Vec<Draft>,
    pub decisions: Vec<Decision>,
    pub notes: Vec<String>,
}

/// Kernels that may become one: a producer, and one or all of its consumers.
type Set = Vec<usize>;

/// The verdict on one possible merge.
#[derive(Clone, Debug)]
enum Merge {
    Legal { rule: &'static Rule, draft: Draft, gain_ns: f64 },
    Not(Reason),
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
    /// Kernels that read what each kernel computes, ascending.
    consumers: Vec<Vec<usize>>,
    /// Kernels whose values each kernel reads, ascending.
    producers: Vec<Vec<usize>>,
    /// Kernels so that producers come before consumers.
    order: Order,
    /// The rule that joined an edge.
    joined: BTreeMap<(ValueId, ValueId), &'static str>,
    /// Verdicts that still hold, by producer and consumers.
    known: BTreeMap<Set, Merge>,
    /// The sets of `known` in which each kernel is.
    sets_of: Vec<BTreeSet<Set>>,
    /// Merges that save time, the best one first.
    queue: BTreeSet<Candidate>,
    notes: Vec<String>,
    /// Whether verdicts are kept.
    is_searching: bool,
}

/// A merge that saves time, ordered: the most time first, in steps; then by the earlier producer,
/// one consumer before all, and the earlier consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    saved_steps: Reverse<i64>,
    producer: usize,
    is_whole: bool,
    set: Set,
}

impl Candidate {
    fn of(set: &Set, verdict: &Merge) -> Option<Candidate> {
        let Merge::Legal { gain_ns, .. } = verdict else { return None };
        let steps = (gain_ns / GAIN_STEP_NS).round() as i64;
        let candidate = || Candidate {
            saved_steps: Reverse(steps),
            producer: set[0],
            is_whole: set.len() > 2,
            set: set.clone(),
        };
        (steps > 0).then(candidate)
    }
}

/// Parameters that a launch passes at most: 4 KiB of pointers on every driver.
const MAX_PARAMETERS: usize = 500;

/// Operations of a kernel at most: the field's cap of an expression.
const MAX_MEMBERS: usize = 100;

/// Consumers of one kernel that are weighed with it at a time: the first ones. A merge changes what
/// all others would give, so that weighing thousands after each would take time in their square.
const MAX_CONSUMERS: usize = 64;

/// Gains that differ by less are equal.
const GAIN_STEP_NS: f64 = 10.0;

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
        search.is_searching = true;
        search.weigh_all();
        while search.merge_best() {}
    }
    let decisions = search.decisions(fusion);
    let order = search.launch_order();
    let mut drafts = search.drafts;
    let kernels = order.into_iter().filter_map(|index| drafts[index].take()).collect();
    Partition { kernels, decisions, notes: search.notes }
}

impl<'a> Search<'a> {
    fn new(cx: &'a Context<'a>, target: &'a Target, wanted: Option<OperandPlace>) -> Search<'a> {
        let mut search = Search {
            cx,
            target,
            wanted,
            drafts: Vec::new(),
            kernel_of: vec![None; cx.graph.values.len()],
            consumers: Vec::new(),
            producers: Vec::new(),
            order: Order::default(),
            joined: BTreeMap::new(),
            known: BTreeMap::new(),
            sets_of: Vec::new(),
            queue: BTreeSet::new(),
            notes: Vec::new(),
            is_searching: false,
        };
        for id in cx.graph.ids().filter(|&id| cx.is_member(id)) {
            // An operation alone always has a structure: it is its own template.
            match search.draft(vec![id]) {
                Ok(draft) => {
                    search.kernel_of[id.index()] = Some(search.drafts.len());
                    search.drafts.push(Some(draft));
                }
                Err(reason) => {
                    panic!("internal error in pass \"partition\": {id}: {reason}\n{}", cx.graph)
                }
            }
        }
        let n = search.drafts.len();
        search.consumers = (0..n).map(|index| search.find_consumers(index)).collect();
        search.producers = vec![Vec::new(); n];
        for (index, consumers) in search.consumers.iter().enumerate() {
            consumers.iter().for_each(|&consumer| search.producers[consumer].push(index));
        }
        search.order = Order::new(&search.consumers);
        search.sets_of = vec![BTreeSet::new(); n];
        search
    }

    fn draft(&self, members: Vec<ValueId>) -> Result<Draft, Reason> {
        let structure = structure(self.cx, &members)?;
        let (loads, stores) = cost::traffic(self.cx, &members);
        // A weight or cache passes up to three pointers.
        let n_parameters = 3 * loads.len() + 2 * stores.len() + 1;
        if n_parameters > MAX_PARAMETERS {
            return Err(Reason::Parameters { n_parameters, limit: MAX_PARAMETERS });
        }
        let (structure, cost) =
            operand::cheapest(self.cx, &members, structure, self.target, self.wanted);
        Ok(Draft { members, structure, cost })
    }

    fn merged(&self, set: &[usize]) -> Result<Draft, Reason> {
        let n_members = set.iter().map(|&index| self.n_members(index)).sum();
        if n_members > MAX_MEMBERS {
            return Err(Reason::Members { n_members, limit: MAX_MEMBERS });
        }
        if self.order.leaves_and_returns(set, &self.producers, &self.consumers) {
            return Err(Reason::Cycle);
        }
        let members = |&index: &usize| self.drafts[index].iter().flat_map(|d| &d.members);
        let mut all: Vec<ValueId> = set.iter().flat_map(members).copied().collect();
        all.sort_unstable();
        let is_split = |&id: &ValueId| {
            let inside = |user: &ValueId| all.binary_search(user).is_ok();
            self.cx.graph[id].pin == Some(Pin::Materialize)
                && self.cx.member_users(id).iter().any(inside)
        };
        if all.iter().any(is_split) {
            return Err(Reason::Pinned(Pin::Materialize));
        }
        self.draft(all)
    }

    fn find_consumers(&self, index: usize) -> Vec<usize> {
        let Some(draft) = &self.drafts[index] else { return Vec::new() };
        let users = draft.members.iter().flat_map(|&id| self.cx.member_users(id));
        let mut kernels: Vec<usize> =
            users.filter_map(|user| self.kernel_of[user.index()]).filter(|&k| k != index).collect();
        kernels.sort_unstable();
        kernels.dedup();
        kernels
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

    fn n_members(&self, index: usize) -> usize {
        self.drafts[index].as_ref().map_or(0, |draft| draft.members.len())
    }

    fn cost_ns(&self, index: usize) -> f64 {
        self.drafts[index].as_ref().map_or(0.0, |draft| draft.cost.ns)
    }

    /// Weighs every merge.
    fn weigh_all(&mut self) {
        for producer in 0..self.drafts.len() {
            for set in self.sets(producer) {
                self.remember(set);
            }
        }
    }

    /// Weighs a merge, unless its verdict is known, and queues it if it saves time.
    fn remember(&mut self, set: Set) {
        if self.known.contains_key(&set) {
            return;
        }
        let verdict = self.weigh(&set);
        if let Some(candidate) = Candidate::of(&set, &verdict) {
            self.queue.insert(candidate);
        }
        for &index in &set {
            self.sets_of[index].insert(set.clone());
        }
        self.known.insert(set, verdict);
    }

    fn merge_best(&mut self) -> bool {
        while let Some(candidate) = self.queue.pop_first() {
            let set = candidate.set;
            // Other merges may have made a way around since it was weighed. Only merges of its own
            // kernels can close that again, and these weigh it anew.
            if self.order.leaves_and_returns(&set, &self.producers, &self.consumers) {
                self.known.insert(set, Merge::Not(Reason::Cycle));
                continue;
            }
            if let Some(Merge::Legal { rule, draft, .. }) = self.known.remove(&set) {
                self.replace(&set, draft, rule.name);
                return true;
            }
        }
        false
    }

    /// The producer with each of its first consumers; a linear also with all of them.
    fn sets(&self, producer: usize) -> Vec<Set> {
        let consumers = self.consumers[producer].iter().take(MAX_CONSUMERS);
        let mut sets: Vec<Set> = consumers.map(|&consumer| vec![producer, consumer]).collect();
        sets.extend(self.whole_set(producer));
        sets
    }

    /// A linear with all of its consumers, if there are several and not too many.
    fn whole_set(&self, producer: usize) -> Option<Set> {
        let consumers = &self.consumers[producer];
        let template = self.drafts[producer].as_ref().map(|draft| &draft.structure.template);
        let is_some = (2..=MAX_CONSUMERS).contains(&consumers.len());
        let is_whole = is_some && matches!(template, Some(Template::Linear(_)));
        is_whole.then(|| [&[producer], &consumers[..]].concat())
    }

    /// Whether a producer and consumers can become one, and what that saves.
    fn weigh(&self, set: &[usize]) -> Merge {
        let drafts: Vec<&Draft> =
            set.iter().filter_map(|&index| self.drafts[index].as_ref()).collect();
        let Some((producer, consumers)) = drafts.split_first() else {
            return Merge::Not(Reason::Cycle);
        };
        let draft = match self.merged(set) {
            Ok(draft) => draft,
            Err(reason) => return Merge::Not(reason),
        };
        let template = &producer.structure.template;
        let joins = |rule: &&&Rule| {
            consumers.iter().all(|c| (rule.matches)(template, &c.structure.template))
        };
        match RULES.iter().find(joins) {
            Some(rule) => {
                let before: Vec<&Cost> = drafts.iter().map(|draft| &draft.cost).collect();
                let gain_ns = match (self.wanted, operand::place_of(&draft.structure)) {
                    (Some(OperandPlace::Scratch), Some(_)) => f64::NEG_INFINITY,
                    // Also where the greedy search would not go.
                    (Some(place), Some(found)) if place == found => 1e9,
                    _ => (rule.gain_ns)(&before, &draft.cost),
                };
                Merge::Legal { rule, draft, gain_ns }
            }
            None => Merge::Not(Reason::TwoTemplates {
                producer: template.name(),
                consumer: consumers.first().map_or("", |c| c.structure.template.name()),
            }),
        }
    }

    /// Puts `draft` in the place of the kernels of a set.
    fn replace(&mut self, set: &[usize], draft: Draft, rule: &'static str) {
        for &id in &draft.members {
            for &user in self.cx.member_users(id) {
                let across = draft.members.binary_search(&user).is_ok()
                    && self.kernel_of[id.index()] != self.kernel_of[user.index()];
                if across {
                    self.joined.insert((id, user), rule);
                }
            }
        }
        // Kernels stay in the order of their first operations.
        let keep = set.iter().copied().min().unwrap_or(0);
        for &id in &draft.members {
            self.kernel_of[id.index()] = Some(keep);
        }
        set.iter().for_each(|&index| self.drafts[index] = None);
        self.drafts[keep] = Some(draft);
        self.forget(set);
        self.connect(set, keep);
        self.order.contract(set, keep, &self.consumers);
        if self.is_searching {
            for set in self.sets(keep) {
                self.remember(set);
            }
            for producer in self.producers[keep].clone() {
                if self.consumers[producer].iter().take(MAX_CONSUMERS).any(|&c| c == keep) {
                    self.remember(vec![producer, keep]);
                }
                if let Some(set) = self.whole_set(producer) {
                    self.remember(set);
                }
            }
        }
    }

    /// Drops all verdicts about kernels that are no more.
    fn forget(&mut self, set: &[usize]) {
        for &index in set {
            for known in std::mem::take(&mut self.sets_of[index]) {
                for &other in &known {
                    self.sets_of[other].remove(&known);
                }
                if let Some(verdict) = self.known.remove(&known)
                    && let Some(candidate) = Candidate::of(&known, &verdict)
                {
                    self.queue.remove(&candidate);
                }
            }
        }
    }

    /// Gives `keep` the producers and consumers of a set that it stands for.
    fn connect(&mut self, set: &[usize], keep: usize) {
        let outside = |lists: &[Vec<usize>]| -> Vec<usize> {
            let all: BTreeSet<usize> =
                set.iter().flat_map(|&index| lists[index].iter().copied()).collect();
            all.into_iter().filter(|index| !set.contains(index)).collect()
        };
        let (producers, consumers) = (outside(&self.producers), outside(&self.consumers));
        for &index in set {
            self.producers[index].clear();
            self.consumers[index].clear();
        }
        let renamed = |list: &mut Vec<usize>| {
            list.retain(|index| !set.contains(index));
            let at = list.partition_point(|&index| index < keep);
            list.insert(at, keep);
        };
        producers.iter().for_each(|&producer| renamed(&mut self.consumers[producer]));
        consumers.iter().for_each(|&consumer| renamed(&mut self.producers[consumer]));
        (self.producers[keep], self.consumers[keep]) = (producers, consumers);
    }

    /// One line for every edge between operations of the user's graph.
    fn decisions(&mut self, fusion: bool) -> Vec<Decision> {
        let graph = self.cx.graph;
        let mut decisions = Vec::new();
        for consumer in graph.ids() {
            let mut inputs = graph[consumer].inputs.clone();
            inputs.sort_unstable();
            inputs.dedup();
            for producer in inputs {
                if matches!(graph[producer].op, Op::Arg | Op::Const(_)) {
                    continue;
                }
                let verdict = self.verdict(producer, consumer, fusion);
                decisions.push(Decision { producer, consumer, verdict });
            }
        }
        decisions
    }

    fn verdict(&self, producer: ValueId, consumer: ValueId, fusion: bool) -> Verdict {
        let cx = self.cx;
        if !cx.live[consumer.index()] {
            return Verdict::Apart(Reason::Dead);
        }
        if cx.is_free_view(consumer) {
            return Verdict::View;
        }
        let source = cx.source(producer);
        let (Some(p), Some(c)) = (self.kernel_of[source.index()], self.kernel_of[consumer.index()])
        else {
            return Verdict::View; // a view of an argument
        };
        if p == c {
            let rule = self.joined.get(&(source, consumer)).copied();
            return Verdict::Fused { rule: rule.unwrap_or("same_kernel") };
        }
        if !fusion {
            return Verdict::Apart(Reason::Off);
        }
        let pair = vec![p, c];
        match self.known.get(&pair).cloned().unwrap_or_else(|| self.weigh(&pair)) {
            Merge::Not(reason) => Verdict::Apart(reason),
            Merge::Legal { draft, .. } => {
                let saved_ns = self.target.launch_ns;
                let cost_ns = saved_ns + draft.cost.ns - self.cost_ns(p) - self.cost_ns(c);
                Verdict::Apart(Reason::NoGain { saved_ns, cost_ns: cost_ns.max(0.0) })
            }
        }
    }

    /// Kernels so that producers come before consumers; among those that are ready, the one
    /// whose first operation the user wrote first.
    fn launch_order(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = self.producers.iter().map(Vec::len).collect();
        let first = |index: usize| self.drafts[index].as_ref().map(|draft| draft.members[0]);
        let is_ready = |index: &usize| self.drafts[*index].is_some() && waiting[*index] == 0;
        let mut ready: BTreeSet<(Option<ValueId>, usize)> =
            (0..self.drafts.len()).filter(is_ready).map(|index| (first(index), index)).collect();
        let mut order = Vec::new();
        while let Some((_, next)) = ready.pop_first() {
            for &consumer in &self.consumers[next] {
                waiting[consumer] -= 1;
                if waiting[consumer] == 0 {
                    ready.insert((first(consumer), consumer));
                }
            }
            order.push(next);
        }
        order
    }
}
