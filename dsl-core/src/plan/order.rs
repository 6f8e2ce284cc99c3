//! Kernels in an order in which producers come before consumers, kept while kernels merge. Each
//! merge moves only the kernels between those that merge, so a search takes time in proportion to
//! what it merges.

use std::collections::BTreeSet;

/// Kernels by place, and the place of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// A place may be empty once its kernel was merged into another.
    kernels: Vec<Option<usize>>,
    places: Vec<usize>,
}

impl Order {
    /// An order of kernels with these consumers.
    pub fn new(consumers: &[Vec<usize>]) -> Order {
        let mut waiting = vec![0; consumers.len()];
        consumers.iter().flatten().for_each(|&consumer| waiting[consumer] += 1);
        let mut ready: Vec<usize> =
            (0..consumers.len()).filter(|&index| waiting[index] == 0).collect();
        let mut order = Order { kernels: Vec::new(), places: vec![0; consumers.len()] };
        while let Some(index) = ready.pop() {
            order.places[index] = order.kernels.len();
            order.kernels.push(Some(index));
            for &consumer in &consumers[index] {
                waiting[consumer] -= 1;
                if waiting[consumer] == 0 {
                    ready.push(consumer);
                }
            }
        }
        order
    }

    /// Whether another kernel lies on a way from one of the set to one of the set.
    pub fn leaves_and_returns(
        &self,
        set: &[usize],
        producers: &[Vec<usize>],
        consumers: &[Vec<usize>],
    ) -> bool {
        let n_neighbours =
            |lists: &[Vec<usize>]| set.iter().map(|&index| lists[index].len()).sum::<usize>();
        match n_neighbours(producers) < n_neighbours(consumers) {
            true => self.is_reached_again(set, producers),
            false => self.comes_back(set, consumers),
        }
    }

    /// The same, walked against the ways: for sets that much reads.
    fn is_reached_again(&self, set: &[usize], producers: &[Vec<usize>]) -> bool {
        let first = set.iter().map(|&index| self.places[index]).min().unwrap_or(0);
        let mut todo: Vec<usize> = Vec::new();
        for &index in set {
            let behind = producers[index].iter().filter(|&&kernel| self.places[kernel] > first);
            todo.extend(behind.filter(|kernel| !set.contains(kernel)));
        }
        let mut seen = BTreeSet::new();
        while let Some(kernel) = todo.pop() {
            if !seen.insert(kernel) {
                continue;
            }
            for &producer in &producers[kernel] {
                if set.contains(&producer) {
                    return true;
                }
                if self.places[producer] > first {
                    todo.push(producer);
                }
            }
        }
        false
    }

    /// The same, walked along the ways.
    fn comes_back(&self, set: &[usize], consumers: &[Vec<usize>]) -> bool {
        // No way returns from behind the last of them.
        let last = set.iter().map(|&index| self.places[index]).max().unwrap_or(0);
        let mut todo: Vec<usize> = Vec::new();
        for &index in set {
            let before = consumers[index].iter().filter(|&&kernel| self.places[kernel] < last);
            todo.extend(before.filter(|kernel| !set.contains(kernel)));
        }
        let mut seen = BTreeSet::new();
        while let Some(kernel) = todo.pop() {
            if !seen.insert(kernel) {
                continue;
            }
            for &consumer in &consumers[kernel] {
                if set.contains(&consumer) {
                    return true;
                }
                if self.places[consumer] < last {
                    todo.push(consumer);
                }
            }
        }
        false
    }

    /// Puts `keep` in the place of a set that no way leaves and returns to; `consumers` are those
    /// after the merge.
    pub fn contract(&mut self, set: &[usize], keep: usize, consumers: &[Vec<usize>]) {
        let places = || set.iter().map(|&index| self.places[index]);
        let (first, last) = (places().min().unwrap_or(0), places().max().unwrap_or(0));
        // What the merged kernel leads to goes behind it, all else stays before.
        let mut behind = BTreeSet::new();
        let mut todo = vec![keep];
        while let Some(kernel) = todo.pop() {
            for &consumer in &consumers[kernel] {
                if self.places[consumer] <= last && behind.insert(consumer) {
                    todo.push(consumer);
                }
            }
        }
        let region: Vec<usize> = self.kernels[first..=last]
            .iter()
            .flatten()
            .copied()
            .filter(|kernel| !set.contains(kernel))
            .collect();
        let (after, before): (Vec<usize>, Vec<usize>) =
            region.into_iter().partition(|kernel| behind.contains(kernel));
        let mut at = first;
        for kernel in before.into_iter().chain([keep]).chain(after) {
            self.kernels[at] = Some(kernel);
            self.places[kernel] = at;
            at += 1;
        }
        self.kernels[at..=last].fill(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether every kernel comes before its consumers.
    fn holds(order: &Order, consumers: &[Vec<usize>], alive: &BTreeSet<usize>) -> bool {
        alive.iter().all(|&kernel| {
            order.kernels[order.places[kernel]] == Some(kernel)
                && consumers[kernel].iter().all(|&c| order.places[kernel] < order.places[c])
        })
    }

    /// Random graphs, contracted edge by edge where that makes no cycle.
    #[test]
    fn merges_keep_the_order() {
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..200 {
            let n = 2 + below(30);
            let mut consumers = vec![BTreeSet::new(); n];
            for to in 1..n {
                for _ in 0..=below(3) {
                    consumers[below(to)].insert(to);
                }
            }
            let list = |sets: &[BTreeSet<usize>]| -> Vec<Vec<usize>> {
                sets.iter().map(|set| set.iter().copied().collect()).collect()
            };
            let mut alive: BTreeSet<usize> = (0..n).collect();
            let mut order = Order::new(&list(&consumers));
            for _ in 0..2 * n {
                let from = below(n);
                let Some(&to) = consumers[from].iter().next_back() else { continue };
                let set = [from, to];
                // By hand: another consumer of `from` that leads to `to`.
                let mut reach: Vec<usize> =
                    consumers[from].iter().copied().filter(|&c| c != to).collect();
                let mut around = false;
                while let Some(kernel) = reach.pop() {
                    around |= kernel == to;
                    reach.extend(&consumers[kernel]);
                }
                let lists = list(&consumers);
                assert_eq!(order.comes_back(&set, &lists), around);
                let mut producers = vec![Vec::new(); n];
                for (kernel, list) in lists.iter().enumerate() {
                    list.iter().for_each(|&consumer| producers[consumer].push(kernel));
                }
                assert_eq!(order.is_reached_again(&set, &producers), around);
                if around {
                    continue;
                }
                let keep = from.min(to);
                let gone = from.max(to);
                let merged: BTreeSet<usize> = consumers[from]
                    .union(&consumers[to])
                    .copied()
                    .filter(|kernel| !set.contains(kernel))
                    .collect();
                for other in &mut consumers {
                    if other.remove(&gone) {
                        other.insert(keep);
                    }
                }
                consumers[gone].clear();
                consumers[keep] = merged;
                alive.remove(&gone);
                order.contract(&set, keep, &list(&consumers));
                assert!(holds(&order, &list(&consumers), &alive));
            }
        }
    }
}
