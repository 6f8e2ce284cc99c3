//! The pointwise template: one thread an element.

use super::index::{Index, delinearize};
use super::scope::{Context, Scope};
use super::text::Body;
use fuseline_core::ir::{Dim, Op, ValueId, dim};
use fuseline_core::plan::schedule::THREADS;
use std::collections::BTreeMap;

/// The shape that threads of a stored value run over: an append's is that of its keys.
fn work_shape<'a>(cx: &Context<'a>, id: ValueId) -> &'a [Dim] {
    let graph = cx.graph();
    match graph[id].op {
        Op::Append => graph[graph[id].inputs[1]].ty.shape(),
        _ => graph[id].ty.shape(),
    }
}

/// The pointwise template.
pub(crate) fn kernel(cx: &Context<'_>, body: &mut Body) {
    let int = cx.index_type();
    let Some(&first) = cx.kernel.stores.first() else { return };
    body.line(format!("const {int} i = ({int})fl_block() * {THREADS} + fl_thread();"));
    body.line(format!("if (i >= {}) return;", cx.n_rows(work_shape(cx, first))));
    let none = BTreeMap::new();
    let mut scope = Scope::new(cx, &|_, _| None, &none);
    for &id in &cx.kernel.stores {
        let shape = work_shape(cx, id);
        let place = Index::var("i", dim::elements(shape));
        scope.store(id, &delinearize(&place, shape));
    }
    body.lines(scope.into_lines());
}
