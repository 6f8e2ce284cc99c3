//! Which kernels read what others compute, in an order in which producers come first, kept up to
//! date while kernels become one.
//!
//! A merge changes little: the kernels whose lists name one of the set, and the places of those
//! that lie between the first and the last of it and on a way from or to it. Nothing else is
//! looked at, so that a search over thousands of kernels does not begin anew after each merge.

use std::collections::BTreeSet;

/// Kernels by number, with their neighbours and an order.
pub(crate) struct Order {
    /// Kernels that read what each kernel computes, ascending.
    consumers: Vec<Vec<usize>>,
    /// Kernels that compute what each kernel reads, ascending.
    producers: Vec<Vec<usize>>,
    /// Numbers that are greater in a kernel's consumers; each is the number of one kernel.
    position: Vec<usize>,
    /// Which walk met each kernel last.
    met: Vec<usize>,
    /// Walks so far.
    n_walks: usize,
}

/// Along which edges a walk goes.
#[derive(Clone, Copy)]
enum Way {
    ToConsumers,
    ToProducers,
}

/// A walk that is under way, nearest kernels first.
struct Walk {
    way: Way,
    /// What it leaves in [`Order::met`].
    mark: usize,
    /// The set, and every kernel outside of it that was met.
    met: Vec<usize>,
    /// Kernels of those whose edges are all taken.
    n_done: usize,
    /// Edges of the next that are taken.
    n_taken: usize,
    /// The position beyond which nothing leads back to the set.
    bound: usize,
}

/// Kernels that most walks do not meet more of.
const FEW: usize = 30;

/// What one step of a walk comes to.
enum Step {
    /// An edge from a kernel to one that the walk had not met.
    New(usize, usize),
    /// No edge is left there, or one to a kernel that it had met or that lies beyond the bound.
    Nothing,
    End,
}

impl Order {
    /// Kernels, each with those that read what it computes: ascending, and all after itself.
    pub fn new(consumers: Vec<Vec<usize>>) -> Order {
        let n_kernels = consumers.len();
        let mut producers = vec![Vec::new(); n_kernels];
        for (producer, list) in consumers.iter().enumerate() {
            debug_assert!(list.iter().all(|&consumer| consumer > producer));
            list.iter().for_each(|&consumer| producers[consumer].push(producer));
        }
        let (position, met) = ((0..n_kernels).collect(), vec![0; n_kernels]);
        Order { consumers, producers, position, met, n_walks: 0 }
    }

    /// Kernels that read what this one computes, ascending.
    pub fn consumers(&self, kernel: usize) -> &[usize] {
        &self.consumers[kernel]
    }

    /// Kernels that compute what this one reads, ascending.
    pub fn producers(&self, kernel: usize) -> &[usize] {
        &self.producers[kernel]
    }

    /// Whether another kernel lies on a way from one of the set to one of the set, so that they
    /// cannot become one.
    ///
    /// Once that is so, it stays so until one of the set is merged: a way goes through whatever
    /// its kernels become.
    pub fn leaves_and_returns(&mut self, set: &[usize]) -> bool {
        if let [producer, consumer] = *set
            && (self.consumers[producer] == [consumer] || self.producers[consumer] == [producer])
        {
            return false;
        }
        // Both ways in turn, an edge each: whichever ends first has the answer, and it ends soon
        // for a consumer with few producers, however many consumers its producer has.
        let mut walks = [Way::ToConsumers, Way::ToProducers].map(|way| self.walk(way, set));
        let marks = [walks[0].mark, walks[1].mark];
        loop {
            for walk in &mut walks {
                match self.step(walk) {
                    // An edge within the set has not left it.
                    Step::New(from, kernel) if set.contains(&kernel) => {
                        if !set.contains(&from) {
                            return true;
                        }
                    }
                    // The other walk's: the two make a way.
                    Step::New(_, kernel) if marks.contains(&self.met[kernel]) => return true,
                    Step::New(_, kernel) => self.meet(walk, kernel),
                    Step::Nothing => {}
                    Step::End => return false,
                }
            }
        }
    }

    fn walk(&mut self, way: Way, set: &[usize]) -> Walk {
        self.n_walks += 1;
        let positions = set.iter().map(|&kernel| self.position[kernel]);
        let bound = match way {
            Way::ToConsumers => positions.max(),
            Way::ToProducers => positions.min(),
        };
        let mut met = Vec::with_capacity(set.len() + FEW);
        met.extend(set);
        Walk { way, mark: self.n_walks, met, n_done: 0, n_taken: 0, bound: bound.unwrap_or(0) }
    }

    /// Takes the next edge. Kernels of the set are at the bound or within it, and not marked, so
    /// each edge to one of them is [`Step::New`].
    fn step(&self, walk: &mut Walk) -> Step {
        let Some(&from) = walk.met.get(walk.n_done) else { return Step::End };
        let next = match walk.way {
            Way::ToConsumers => self.consumers[from].get(walk.n_taken),
            Way::ToProducers => self.producers[from].get(walk.n_taken),
        };
        let Some(&next) = next else {
            (walk.n_done, walk.n_taken) = (walk.n_done + 1, 0);
            return Step::Nothing;
        };
        walk.n_taken += 1;
        let beyond = match walk.way {
            Way::ToConsumers => self.position[next] > walk.bound,
            Way::ToProducers => self.position[next] < walk.bound,
        };
        if beyond || self.met[next] == walk.mark { Step::Nothing } else { Step::New(from, next) }
    }

    fn meet(&mut self, walk: &mut Walk, kernel: usize) {
        self.met[kernel] = walk.mark;
        walk.met.push(kernel);
    }

    /// Makes one kernel of a set that [no way leaves and returns to](Order::leaves_and_returns).
    /// It has the smallest number of the set, which is returned; the others are no kernels any
    /// more.
    pub fn merge(&mut self, set: &[usize]) -> usize {
        let keep = set.iter().copied().min().unwrap_or(0);
        self.move_together(set, keep);
        for way in [Way::ToConsumers, Way::ToProducers] {
            let (lists, back) = match way {
                Way::ToConsumers => (&mut self.consumers, &mut self.producers),
                Way::ToProducers => (&mut self.producers, &mut self.consumers),
            };
            let mut joined: Vec<usize> =
                set.iter().flat_map(|&kernel| std::mem::take(&mut lists[kernel])).collect();
            joined.sort_unstable();
            joined.dedup();
            joined.retain(|kernel| !set.contains(kernel));
            for &neighbour in &joined {
                rename(&mut back[neighbour], set, keep);
            }
            lists[keep] = joined;
        }
        keep
    }

    /// Puts what leads to the set before what it leads to, and `keep` in between, in the places
    /// that they and the set had. Everything else stays where it is.
    fn move_together(&mut self, set: &[usize], keep: usize) {
        let mut before = self.outside(Way::ToProducers, set);
        let mut after = self.outside(Way::ToConsumers, set);
        before.sort_unstable_by_key(|&kernel| self.position[kernel]);
        after.sort_unstable_by_key(|&kernel| self.position[kernel]);
        let all = before.iter().chain(&after).chain(set);
        let mut places: Vec<usize> = all.map(|&kernel| self.position[kernel]).collect();
        places.sort_unstable();
        // What is before takes the first places and what is after the last, so that the one moves
        // only forward and the other only back: all else keeps its order with them.
        let first_after = places.len() - after.len();
        let moved = before.into_iter().chain([keep]).zip(&places);
        for (kernel, &place) in moved.chain(after.into_iter().zip(&places[first_after..])) {
            self.position[kernel] = place;
        }
    }

    /// Every kernel outside of the set on the way that lies within its positions.
    fn outside(&mut self, way: Way, set: &[usize]) -> Vec<usize> {
        let mut walk = self.walk(way, set);
        loop {
            match self.step(&mut walk) {
                Step::New(_, kernel) if !set.contains(&kernel) => self.meet(&mut walk, kernel),
                Step::New(..) | Step::Nothing => {}
                Step::End => return walk.met.split_off(set.len()),
            }
        }
    }

    /// The kernels that are left, so that producers come before consumers; among those that are
    /// ready, the smallest number first.
    pub fn launch_order(&self, is_kernel: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut waiting: Vec<usize> = self.producers.iter().map(Vec::len).collect();
        let n_kernels = self.producers.len();
        let mut ready: BTreeSet<usize> =
            (0..n_kernels).filter(|&kernel| waiting[kernel] == 0 && is_kernel(kernel)).collect();
        let mut order = Vec::new();
        while let Some(next) = ready.pop_first() {
            for &consumer in &self.consumers[next] {
                waiting[consumer] -= 1;
                if waiting[consumer] == 0 {
                    ready.insert(consumer);
                }
            }
            order.push(next);
        }
        order
    }
}

/// Writes `keep` for every one of `set` in an ascending list, once.
fn rename(list: &mut Vec<usize>, set: &[usize], keep: usize) {
    for kernel in set {
        if let Ok(at) = list.binary_search(kernel) {
            list.remove(at);
        }
    }
    if let Err(at) = list.binary_search(&keep) {
        list.insert(at, keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// Kernels with edges from smaller to greater numbers, and what is asked about them worked
    /// out anew each time.
    struct Naive {
        edges: BTreeSet<(usize, usize)>,
        kernels: Vec<usize>,
    }

    impl Naive {
        fn random(rng: &mut Rng, n: usize) -> Naive {
            let mut edges = BTreeSet::new();
            for consumer in 1..n {
                for _ in 0..rng.below(4) {
                    // Mostly near, so that some sets can be merged.
                    let span = if rng.chance(80) { consumer.min(4) } else { consumer };
                    edges.insert((consumer - 1 - rng.below(span), consumer));
                }
            }
            Naive { edges, kernels: (0..n).collect() }
        }

        fn consumers(&self, kernel: usize) -> Vec<usize> {
            self.edges.iter().filter(|edge| edge.0 == kernel).map(|edge| edge.1).collect()
        }

        fn producers(&self, kernel: usize) -> Vec<usize> {
            self.edges.iter().filter(|edge| edge.1 == kernel).map(|edge| edge.0).collect()
        }

        fn leaves_and_returns(&self, set: &[usize]) -> bool {
            let mut reached: BTreeSet<usize> = BTreeSet::new();
            let mut todo: Vec<usize> = set.iter().flat_map(|&k| self.consumers(k)).collect();
            todo.retain(|kernel| !set.contains(kernel));
            while let Some(kernel) = todo.pop() {
                if set.contains(&kernel) {
                    return true;
                }
                if reached.insert(kernel) {
                    todo.extend(self.consumers(kernel));
                }
            }
            false
        }

        fn merge(&mut self, set: &[usize]) {
            let keep = *set.iter().min().unwrap();
            let renamed = |kernel: usize| if set.contains(&kernel) { keep } else { kernel };
            let edges = self.edges.iter().map(|&(a, b)| (renamed(a), renamed(b)));
            self.edges = edges.filter(|(a, b)| a != b).collect();
            self.kernels.retain(|kernel| *kernel == keep || !set.contains(kernel));
        }

        fn launch_order(&self) -> Vec<usize> {
            let mut left = self.kernels.clone();
            let mut order = Vec::new();
            while !left.is_empty() {
                let waits = |k: usize| left.iter().any(|&other| self.edges.contains(&(other, k)));
                let next = *left.iter().find(|&&kernel| !waits(kernel)).unwrap();
                left.retain(|&kernel| kernel != next);
                order.push(next);
            }
            order
        }
    }

    fn check(order: &Order, naive: &Naive) {
        let mut places = BTreeSet::new();
        for &kernel in &naive.kernels {
            assert_eq!(order.consumers(kernel), naive.consumers(kernel));
            assert_eq!(order.producers(kernel), naive.producers(kernel));
            assert!(places.insert(order.position[kernel]), "two kernels at one position");
        }
        for &(producer, consumer) in &naive.edges {
            assert!(order.position[producer] < order.position[consumer]);
        }
        let is_kernel = |kernel| naive.kernels.contains(&kernel);
        assert_eq!(order.launch_order(is_kernel), naive.launch_order());
    }

    #[test]
    fn merges_keep_the_order_that_a_naive_one_has() {
        let (mut n_merged, mut n_refused) = (0, 0);
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut naive = Naive::random(&mut rng, 3 + seed as usize % 40);
            let consumers = naive.kernels.iter().map(|&kernel| naive.consumers(kernel)).collect();
            let mut order = Order::new(consumers);
            check(&order, &naive);
            for _ in 0..60 {
                // An edge, a kernel with all its consumers, or any two: neighbours or not.
                let producer = rng.pick(&naive.kernels);
                let consumers = naive.consumers(producer);
                let set = match rng.below(3) {
                    0 if !consumers.is_empty() => vec![producer, rng.pick(&consumers)],
                    1 if !consumers.is_empty() => [&[producer], &consumers[..]].concat(),
                    _ => vec![producer, rng.pick(&naive.kernels)],
                };
                if set[1..].contains(&producer) {
                    continue;
                }
                let refused = naive.leaves_and_returns(&set);
                assert_eq!(order.leaves_and_returns(&set), refused, "seed {seed}, {set:?}");
                if refused {
                    n_refused += 1;
                    continue;
                }
                assert_eq!(order.merge(&set), *set.iter().min().unwrap());
                naive.merge(&set);
                check(&order, &naive);
                n_merged += 1;
            }
        }
        assert!(n_merged > 1000 && n_refused > 1000, "{n_merged} merged, {n_refused} refused");
    }

    #[test]
    fn a_way_around_a_kernel_is_seen_in_any_order() {
        // 0 -> 1 -> 2 -> 3 and 0 -> 3: only neighbours on the long way can become one.
        let mut order = Order::new(vec![vec![1, 3], vec![2], vec![3], vec![]]);
        assert!(order.leaves_and_returns(&[0, 3]));
        assert!(!order.leaves_and_returns(&[1, 2]));
        assert_eq!(order.merge(&[2, 1]), 1);
        assert!(order.leaves_and_returns(&[3, 0]));
        assert_eq!(order.merge(&[1, 3]), 1);
        assert!(!order.leaves_and_returns(&[0, 1]));
        assert_eq!((order.consumers(0), order.producers(1)), (&[1][..], &[0][..]));
    }
}
