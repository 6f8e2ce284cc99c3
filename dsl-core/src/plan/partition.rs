//! The partition: which operations share a kernel.
//!
//! It starts with one kernel an operation and merges siblings first. Then it takes, again and
//! again, the merge along an edge that saves the most time among those that some
//! [rule](super::rules) matches and [`structure`] finds legal, until none saves any. Gains are
//! compared in steps of [`GAIN_STEP_NS`], since no estimate is finer; ties go to the earlier
//! producer, so that work is done where its operand is made, then to the earlier consumer.

use super::cost::{self, Cost};
use super::decision::{Decision, Reason, Verdict};
use super::rules::{RULES, Rule, sibling_linear};
use super::structure::{Context, Structure, structure};
use crate::ir::{Op, ValueId};
use crate::target::Target;
use std::collections::BTreeMap;

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

/// The verdict on one possible merge.
#[derive(Clone, Debug)]
enum Merge {
    Legal { rule: &'static Rule, draft: Draft, gain_ns: f64 },
    Not(Reason),
}

struct Search<'a> {
    cx: &'a Context<'a>,
    target: &'a Target,
    /// Grown kernels; `None` where one was merged into another.
    drafts: Vec<Option<Draft>>,
    /// The kernel of each value.
    kernel_of: Vec<Option<usize>>,
    /// The rule that joined an edge.
    joined: BTreeMap<(ValueId, ValueId), &'static str>,
    /// Verdicts that still hold, by producer and consumer kernel.
    known: BTreeMap<(usize, usize), Merge>,
    notes: Vec<String>,
}

/// Parameters that a launch passes at most: 4 KiB of pointers on every driver.
const MAX_PARAMETERS: usize = 500;

/// Gains that differ by less are equal.
const GAIN_STEP_NS: f64 = 10.0;

/// Partitions the live operations of a graph.
pub(crate) fn partition(cx: &Context<'_>, target: &Target, fusion: bool) -> Partition {
    let mut search = Search::new(cx, target);
    if fusion {
        search.merge_siblings();
        while search.merge_best() {}
    }
    let decisions = search.decisions(fusion);
    let order = search.launch_order();
    let mut drafts = search.drafts;
    let kernels = order.into_iter().filter_map(|index| drafts[index].take()).collect();
    Partition { kernels, decisions, notes: search.notes }
}

impl<'a> Search<'a> {
    fn new(cx: &'a Context<'a>, target: &'a Target) -> Search<'a> {
        let mut search = Search {
            cx,
            target,
            drafts: Vec::new(),
            kernel_of: vec![None; cx.graph.values.len()],
            joined: BTreeMap::new(),
            known: BTreeMap::new(),
            notes: Vec::new(),
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
        let cost = cost::cost(self.cx, &members, &structure, self.target);
        Ok(Draft { members, structure, cost })
    }

    fn merged(&self, a: usize, b: usize) -> Result<Draft, Reason> {
        let members = |index: usize| self.drafts[index].iter().flat_map(|d| d.members.clone());
        let mut all: Vec<ValueId> = members(a).chain(members(b)).collect();
        all.sort_unstable();
        if self.reaches_outside(a, b) || self.reaches_outside(b, a) {
            return Err(Reason::Cycle);
        }
        self.draft(all)
    }

    /// Kernels that read what kernel `index` computes.
    fn consumers(&self, index: usize) -> Vec<usize> {
        let Some(draft) = &self.drafts[index] else { return Vec::new() };
        let users = draft.members.iter().flat_map(|&id| self.cx.member_users(id));
        let mut kernels: Vec<usize> =
            users.filter_map(|user| self.kernel_of[user.index()]).filter(|&k| k != index).collect();
        kernels.sort_unstable();
        kernels.dedup();
        kernels
    }

    /// Whether a third kernel lies on a way from `from` to `to`.
    fn reaches_outside(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.drafts.len()];
        let mut todo: Vec<usize> =
            self.consumers(from).into_iter().filter(|&k| k != to).collect();
        while let Some(kernel) = todo.pop() {
            if kernel == to {
                return true;
            }
            if !std::mem::replace(&mut seen[kernel], true) {
                todo.extend(self.consumers(kernel));
            }
        }
        false
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
            match self.merged(ka, kb) {
                Ok(draft) => {
                    let apart_ns = self.cost_ns(ka) + self.cost_ns(kb);
                    self.notes.push(format!(
                        "merge {a} | {b}  {}: one launch reads {} once, {:.0} ns instead of {:.0} ns",
                        sibling_linear::NAME,
                        self.cx.graph[a].inputs[0],
                        draft.cost.ns,
                        apart_ns,
                    ));
                    self.replace(ka, kb, draft, sibling_linear::NAME);
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

    fn merge_best(&mut self) -> bool {
        let mut best: Option<(i64, usize, usize)> = None;
        for producer in 0..self.drafts.len() {
            for consumer in self.consumers(producer) {
                if !self.known.contains_key(&(producer, consumer)) {
                    let verdict = self.weigh(producer, consumer);
                    self.known.insert((producer, consumer), verdict);
                }
                let Some(Merge::Legal { gain_ns, .. }) = self.known.get(&(producer, consumer))
                else {
                    continue;
                };
                let steps = (*gain_ns / GAIN_STEP_NS).round() as i64;
                if steps > 0 && best.is_none_or(|(most, ..)| steps > most) {
                    best = Some((steps, producer, consumer));
                }
            }
        }
        let Some((_, producer, consumer)) = best else { return false };
        if let Some(Merge::Legal { rule, draft, .. }) = self.known.remove(&(producer, consumer)) {
            self.replace(producer, consumer, draft, rule.name);
        }
        true
    }

    /// Whether two kernels can become one, and what that saves.
    fn weigh(&self, producer: usize, consumer: usize) -> Merge {
        let (Some(p), Some(c)) = (&self.drafts[producer], &self.drafts[consumer]) else {
            return Merge::Not(Reason::Cycle);
        };
        let draft = match self.merged(producer, consumer) {
            Ok(draft) => draft,
            Err(reason) => return Merge::Not(reason),
        };
        let templates = (&p.structure.template, &c.structure.template);
        match RULES.iter().find(|rule| (rule.matches)(templates.0, templates.1)) {
            Some(rule) => {
                let gain_ns = (rule.gain_ns)(&p.cost, &c.cost, &draft.cost);
                Merge::Legal { rule, draft, gain_ns }
            }
            None => Merge::Not(Reason::TwoTemplates {
                producer: templates.0.name(),
                consumer: templates.1.name(),
            }),
        }
    }

    /// Puts `draft` in the place of kernels `a` and `b`.
    fn replace(&mut self, a: usize, b: usize, draft: Draft, rule: &'static str) {
        for &id in &draft.members {
            for user in self.cx.member_users(id) {
                let across = draft.members.contains(&user)
                    && self.kernel_of[id.index()] != self.kernel_of[user.index()];
                if across {
                    self.joined.insert((id, user), rule);
                }
            }
        }
        // Kernels stay in the order of their first operations.
        let (keep, drop) = (a.min(b), a.max(b));
        for &id in &draft.members {
            self.kernel_of[id.index()] = Some(keep);
        }
        self.drafts[keep] = Some(draft);
        self.drafts[drop] = None;
        // A merge changes the ways between other kernels too, so only legality that failed for
        // its own reasons is kept: everything near the merge, and every cycle, is asked again.
        self.known.retain(|&(p, c), verdict| {
            let near = [a, b].contains(&p) || [a, b].contains(&c);
            !near && !matches!(verdict, Merge::Not(Reason::Cycle))
        });
        let legal: Vec<(usize, usize)> = self
            .known
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Merge::Legal { .. }))
            .map(|(&pair, _)| pair)
            .collect();
        for (p, c) in legal {
            if self.reaches_outside(p, c) {
                self.known.insert((p, c), Merge::Not(Reason::Cycle));
            }
        }
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
        match self.known.get(&(p, c)).cloned().unwrap_or_else(|| self.weigh(p, c)) {
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
        let mut waiting = vec![0; self.drafts.len()];
        for index in 0..self.drafts.len() {
            for consumer in self.consumers(index) {
                waiting[consumer] += 1;
            }
        }
        let mut left: Vec<usize> =
            (0..self.drafts.len()).filter(|&index| self.drafts[index].is_some()).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let ready = left.iter().copied().filter(|&index| waiting[index] == 0);
            let first = |index: &usize| self.drafts[*index].as_ref().map(|d| d.members[0]);
            let Some(next) = ready.min_by_key(first) else {
                panic!("internal error in pass \"partition\": cycle\n{}", self.cx.graph)
            };
            left.retain(|&index| index != next);
            for consumer in self.consumers(next) {
                waiting[consumer] -= 1;
            }
            order.push(next);
        }
        order
    }
}
