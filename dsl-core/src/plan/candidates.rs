//! Possible merges in the order in which the [partition](super::partition) takes them: what saves
//! the most first, then the earlier producer, then the earlier consumer.
//!
//! A merge changes only what its neighbours may save. Their candidates are offered again, and
//! those offered before are left where they are: they are out of date, and dropped when their turn
//! comes or when they are most of the queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// With which of its consumers a producer becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Consumers {
    One(usize),
    /// All at once: after each alone.
    All,
}

/// A producer and consumers that may become one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// What that saves at most.
    pub steps: i64,
    pub producer: usize,
    pub consumers: Consumers,
}

/// Steps, producer, consumers, and the number of merges when it was offered.
type Entry = (i64, Reverse<usize>, Reverse<Consumers>, usize);

/// The queue.
pub(crate) struct Candidates {
    queue: BinaryHeap<Entry>,
    /// Merges so far.
    n_merges: usize,
    /// The merge that last changed each kernel.
    changed: Vec<usize>,
    /// The merge that last changed each kernel or one of its consumers.
    consumers_changed: Vec<usize>,
    /// Entries at which those that are out of date are dropped.
    crowded: usize,
}

/// Entries of which it is not worth while to drop any.
const FEW: usize = 1024;

impl Candidates {
    /// An empty queue.
    pub fn new(n_kernels: usize) -> Candidates {
        let (changed, consumers_changed) = (vec![0; n_kernels], vec![0; n_kernels]);
        let queue = BinaryHeap::new();
        Candidates { queue, n_merges: 0, changed, consumers_changed, crowded: FEW }
    }

    /// Offers a merge, unless it saves nothing.
    pub fn offer(&mut self, Candidate { steps, producer, consumers }: Candidate) {
        if steps <= 0 {
            return;
        }
        if self.queue.len() >= self.crowded {
            let (changed, consumers_changed) = (&self.changed, &self.consumers_changed);
            self.queue.retain(|entry| is_current(changed, consumers_changed, entry));
            self.crowded = (2 * self.queue.len()).max(FEW);
        }
        self.queue.push((steps, Reverse(producer), Reverse(consumers), self.n_merges));
    }

    /// The next in order.
    pub fn pop(&mut self) -> Option<Candidate> {
        loop {
            let entry = self.queue.pop()?;
            if is_current(&self.changed, &self.consumers_changed, &entry) {
                let (steps, Reverse(producer), Reverse(consumers), _) = entry;
                return Some(Candidate { steps, producer, consumers });
            }
        }
    }

    /// Every candidate with one of the set is out of date, and so is every one with all consumers
    /// of one of `producers`.
    pub fn merged(&mut self, set: &[usize], producers: &[usize]) {
        self.n_merges += 1;
        set.iter().for_each(|&kernel| self.changed[kernel] = self.n_merges);
        let near = set.iter().chain(producers);
        near.for_each(|&kernel| self.consumers_changed[kernel] = self.n_merges);
    }
}

fn is_current(changed: &[usize], consumers_changed: &[usize], entry: &Entry) -> bool {
    let &(_, Reverse(producer), Reverse(consumers), offered) = entry;
    match consumers {
        Consumers::One(consumer) => offered >= changed[producer].max(changed[consumer]),
        Consumers::All => offered >= consumers_changed[producer],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use Consumers::{All, One};

    fn candidate(steps: i64, producer: usize, consumers: Consumers) -> Candidate {
        Candidate { steps, producer, consumers }
    }

    #[test]
    fn most_steps_come_first_then_the_earlier_kernels() {
        let mut queue = Candidates::new(9);
        let expected = [
            candidate(7, 3, One(8)),
            candidate(5, 0, One(2)),
            candidate(5, 0, One(4)),
            candidate(5, 0, All),
            candidate(5, 1, One(2)),
            candidate(1, 0, One(1)),
        ];
        for index in [3, 0, 5, 1, 4, 2] {
            queue.offer(expected[index]);
        }
        queue.offer(candidate(0, 2, One(3)));
        let found: Vec<Candidate> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_merge_leaves_candidates_of_other_kernels() {
        let mut queue = Candidates::new(9);
        let near = [
            candidate(9, 1, One(2)),
            candidate(9, 0, One(1)),
            candidate(9, 2, One(5)),
            candidate(9, 0, All),
            candidate(9, 1, All),
        ];
        let far = [candidate(4, 0, One(3)), candidate(4, 4, All)];
        near.into_iter().chain(far).for_each(|candidate| queue.offer(candidate));
        queue.merged(&[1, 2], &[0]);
        queue.offer(candidate(6, 0, One(1)));
        let found: Vec<Candidate> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(found, [candidate(6, 0, One(1)), far[0], far[1]]);
    }

    /// However often candidates are offered again, the queue holds about as many as there are.
    #[test]
    fn the_queue_does_not_grow() {
        let mut rng = Rng::new(3);
        let mut queue = Candidates::new(3001);
        let mut steps = vec![0; 3001];
        for _ in 0..100 {
            queue.merged(&[0], &[]);
            for (consumer, steps) in steps.iter_mut().enumerate().skip(1) {
                *steps = 1 + rng.below(50) as i64;
                queue.offer(candidate(*steps, 0, One(consumer)));
            }
        }
        assert!(queue.queue.len() <= 3 * 3000, "{}", queue.queue.len());
        let mut expected: Vec<usize> = (1..=3000).collect();
        expected.sort_by_key(|&consumer| (Reverse(steps[consumer]), consumer));
        let found: Vec<Consumers> =
            std::iter::from_fn(|| queue.pop()).map(|candidate| candidate.consumers).collect();
        assert_eq!(found, expected.into_iter().map(One).collect::<Vec<_>>());
    }
}
