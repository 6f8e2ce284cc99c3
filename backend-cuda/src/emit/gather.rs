//! The gather template: one block a row of the result, which is a row of the table.

use super::format::{load_function, prefix};
use super::index::Index;
use super::scope::{Context, Scope};
use super::text::Body;
use fuseline_core::ir::{Type, ValueId};
use fuseline_core::plan::schedule::{LINEAR_CHUNK, THREADS};
use std::collections::BTreeMap;

/// The gather template.
pub(crate) fn kernel(cx: &Context<'_>, body: &mut Body, anchor: ValueId) {
    let graph = cx.graph();
    let [tokens, table] = graph[anchor].inputs[..] else { return };
    let Type::Weight { format, n, k } = &graph[table].ty else { return };
    let shape = graph[anchor].ty.shape();
    let (int, name) = (cx.index_type(), cx.name(table));
    body.line(format!("const {int} row = fl_block();"));
    body.line(format!("if (row >= {}) return;", cx.n_rows(&shape[..1])));
    body.line(format!("const int token = fl_load_i32({}, row);", cx.name(tokens)));
    body.line(format!("const bool known = token >= 0 && token < {};", n.size));
    let width = k.size;
    body.open(format!(
        "for ({int} k0 = {LINEAR_CHUNK} * fl_thread(); k0 < {width}; k0 += {}) {{",
        LINEAR_CHUNK * THREADS
    ));
    body.line(format!("float w[{LINEAR_CHUNK}];"));
    body.line("const long long entry = known ? token : 0;");
    body.line(format!("{}_decode8({name}_codes, entry, (int)k0, {width}, w);", prefix(format)));
    if let Some(group) = format.group {
        let at = format!("{}_group(entry, (int)k0, {width})", prefix(format));
        body.line(format!(
            "const float scale = {}({name}_scales, {at});",
            load_function(group.scale)
        ));
        if let Some(offset) = group.offset {
            body.line(format!(
                "const float offset = {}({name}_offsets, {at});",
                load_function(offset)
            ));
        }
    }
    body.line("FL_UNROLL");
    body.open(format!("for (int i = 0; i < {LINEAR_CHUNK}; i++) {{"));
    body.line(format!("const {int} k = k0 + i;"));
    if !width.is_multiple_of(LINEAR_CHUNK) {
        body.line(format!("if (k >= {width}) break;"));
    }
    let value = match format.group {
        None => "w[i]",
        Some(group) if group.offset.is_none() => "w[i] * scale",
        Some(_) => "fl_fma(w[i], scale, offset)",
    };
    let result = cx.name(anchor);
    body.line(format!("const float {result} = known ? {value} : FL_NAN;"));
    let leaf = |id: ValueId, _| (id == anchor).then(|| result.clone());
    let none = BTreeMap::new();
    let mut scope = Scope::new(cx, &leaf, &none);
    for &id in &cx.kernel.stores {
        scope.store(id, &[Index::var("row", shape[0].size), Index::var("k", width)]);
    }
    body.lines(scope.into_lines());
    body.close();
    body.close();
}
