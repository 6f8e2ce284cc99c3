//! A graph with what every question about it needs: worked out once, since the
//! [partition](super::partition) asks the same questions for every merge that it weighs.

use crate::ir::{Graph, Op, ValueId};

/// A graph with what every question about it needs.
pub(crate) struct Context<'a> {
    pub graph: &'a Graph,
    /// Whether a result or a cache depends on the value.
    pub live: Vec<bool>,
    /// Shared memory of a block on every target.
    pub shared_bytes: usize,
    /// Whether the value is a result.
    is_output: Vec<bool>,
    /// The members that read each value, free views looked through, ascending.
    readers: Vec<Vec<ValueId>>,
    /// For each value, a bit for every value that it is computed from.
    ancestors: Vec<u64>,
}

impl<'a> Context<'a> {
    /// A context that knows nothing of the graph yet.
    pub fn empty(graph: &'a Graph, shared_bytes: usize) -> Context<'a> {
        let mut is_output = vec![false; graph.values.len()];
        for output in &graph.outputs {
            // A graph that is not verified yet may name what it does not have.
            if let Some(is_output) = is_output.get_mut(output.index()) {
                *is_output = true;
            }
        }
        let (live, readers, ancestors) = Default::default();
        Context { graph, live, shared_bytes, is_output, readers, ancestors }
    }

    pub fn new(graph: &'a Graph, shared_bytes: usize) -> Context<'a> {
        let mut cx = Context::empty(graph, shared_bytes);
        let mut live = cx.is_output.clone();
        for id in graph.ids().rev() {
            live[id.index()] |= graph[id].op == Op::Append;
            if live[id.index()] {
                graph[id].inputs.iter().for_each(|input| live[input.index()] = true);
            }
        }
        cx.live = live;
        cx.readers = cx.find_readers();
        cx.ancestors = find_ancestors(graph);
        cx
    }

    fn find_readers(&self) -> Vec<Vec<ValueId>> {
        let mut readers: Vec<Vec<ValueId>> = vec![Vec::new(); self.graph.values.len()];
        // Users first, so that the readers of a view are known when it is looked through.
        for id in self.graph.ids().rev() {
            readers[id.index()].sort_unstable();
            readers[id.index()].dedup();
            let seen_as = match self.is_free_view(id) {
                true => readers[id.index()].clone(),
                false if self.is_member(id) => vec![id],
                false => continue,
            };
            for &input in &self.graph[id].inputs {
                readers[input.index()].extend(&seen_as);
            }
        }
        readers
    }

    /// Whether the value is a result.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.is_output[id.index()]
    }

    /// Whether the value is computed by some kernel: not an argument, number or view. A view
    /// that is a result is copied, so it counts.
    pub fn is_member(&self, id: ValueId) -> bool {
        match self.graph[id].op {
            Op::Arg | Op::Const(_) => false,
            _ => self.live[id.index()] && !self.is_free_view(id),
        }
    }

    /// Whether the value is a view that is computed wherever it is read.
    pub fn is_free_view(&self, id: ValueId) -> bool {
        self.graph[id].op.is_view() && !self.is_output(id)
    }

    /// The value that is stored or computed when `id` is read: `id` without its free views.
    pub fn source(&self, id: ValueId) -> ValueId {
        let mut id = id;
        while self.is_free_view(id) {
            id = self.graph[id].inputs[0];
        }
        id
    }

    /// The members that read the value, free views looked through, each once, ascending.
    pub fn member_users(&self, id: ValueId) -> &[ValueId] {
        &self.readers[id.index()]
    }

    /// Whether the value is needed by something other than `members` (ascending).
    pub fn escapes(&self, id: ValueId, members: &[ValueId]) -> bool {
        self.is_output(id)
            || self.graph[id].op == Op::Append
            || self.member_users(id).iter().any(|user| members.binary_search(user).is_err())
    }

    /// Whether `id` is computed from one of `from`.
    pub fn depends(&self, id: ValueId, from: &[ValueId]) -> bool {
        let row = id.index() * n_words(self.graph);
        from.iter().any(|from| {
            let at = from.index();
            self.ancestors[row + at / WORD] >> (at % WORD) & 1 != 0
        })
    }
}

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// Words that have a bit for every value.
fn n_words(graph: &Graph) -> usize {
    graph.values.len().div_ceil(WORD)
}

fn find_ancestors(graph: &Graph) -> Vec<u64> {
    let n_words = n_words(graph);
    let mut ancestors = vec![0; graph.values.len() * n_words];
    for id in graph.ids() {
        let (before, rest) = ancestors.split_at_mut(id.index() * n_words);
        let own = &mut rest[..n_words];
        for input in graph[id].inputs.iter().map(|input| input.index()) {
            let theirs = &before[input * n_words..][..n_words];
            own.iter_mut().zip(theirs).for_each(|(own, theirs)| *own |= theirs);
            own[input / WORD] |= 1 << (input % WORD);
        }
    }
    ancestors
}
