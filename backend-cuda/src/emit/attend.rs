//! The attention template: one block a row and a few query heads of one key head. Each warp
//! takes every so many positions with a running maximum and sum; at the end the block puts the
//! warps' sums together.

use super::format::load_function;
use super::index::Index;
use super::pointwise_text::float_text;
use super::scope::{Context, Scope};
use super::text::Body;
use fuseline_core::ir::{Op, Type, ValueId};
use fuseline_core::plan::schedule::{ATTEND_WARPS, attend_dims};
use std::collections::BTreeMap;

/// The attention template.
pub(crate) fn kernel(cx: &Context<'_>, body: &mut Body, anchor: ValueId) {
    let graph = cx.graph();
    let Op::Attend { scale, window, softcap, sinks, operand } = &graph[anchor].op else { return };
    let inputs = &graph[anchor].inputs;
    let (q, append, pos) = (inputs[0], inputs[1], inputs[2]);
    let cache = graph[append].inputs[0];
    let Type::Cache { dtype, capacity, .. } = &graph[cache].ty else { return };
    let (n_rows, heads, head_dim, kv_heads) = attend_dims(graph, anchor);
    let own = cx.kernel.launch.heads_per_block;
    let chunks = heads / own;
    let lanes = head_dim.div_ceil(32);
    let (cache_name, pos_name, int) = (cx.name(cache), cx.name(pos), cx.index_type());
    let none = BTreeMap::new();

    let mut used = 0;
    let mut array = |name: &str, n: usize, dims: String| {
        body.line(format!("FL_SHARED_FLOATS({name}, {used}, {n}); // {dims}"));
        used += n;
    };
    array("q_shared", own * head_dim, format!("[{own}][{head_dim}]"));
    array("sums", ATTEND_WARPS * own * head_dim, format!("[warp][{own}][{head_dim}]"));
    array("maxima", ATTEND_WARPS * own, format!("[warp][{own}]"));
    array("totals", ATTEND_WARPS * own, format!("[warp][{own}]"));
    body.line(format!("const {int} row = fl_block() / {chunks};"));
    body.line(format!("const int head0 = fl_block() % {chunks} * {own};"));
    let shape = graph[anchor].ty.shape();
    body.line(format!("if (row >= {}) return;", cx.n_rows(&shape[..1])));
    body.line("const int lane = fl_thread() % 32;");
    body.line("const int warp = fl_thread() / 32;");

    body.open(format!(
        "for (int i = fl_thread(); i < {}; i += {}) {{",
        own * head_dim,
        ATTEND_WARPS * 32
    ));
    body.line(format!("const int head = head0 + i / {head_dim};"));
    body.line(format!("const int d = i % {head_dim};"));
    let coords = [Index::var("row", n_rows), Index::var("head", heads), Index::var("d", head_dim)];
    let mut scope = Scope::new(cx, &|_, _| None, &none);
    let query = scope.element(q, &coords);
    scope.line(format!("q_shared[i] = fl_round_{operand}({query});"));
    body.lines(scope.into_lines());
    body.close();
    body.line("fl_barrier();");

    body.line(format!("const int end = fl_load_i32({pos_name}_positions, row) + 1;"));
    match window {
        Some(window) => {
            body.line(format!("const int begin = end > {window} ? end - {window} : 0;"));
        }
        None => body.line("const int begin = 0;"),
    }
    body.line(format!(
        "const long long base = ((long long)fl_load_i32({pos_name}_sequences, row) * {kv_heads} + head0 / {}) * {};",
        heads / kv_heads,
        capacity.size * head_dim
    ));
    body.line(format!("float max[{own}], total[{own}], sum[{own}][{lanes}];"));
    body.line("FL_UNROLL");
    body.open(format!("for (int h = 0; h < {own}; h++) {{"));
    body.line("max[h] = FL_NEGATIVE_INFINITY;");
    body.line("total[h] = 0.0f;");
    body.line("FL_UNROLL");
    body.line(format!("for (int j = 0; j < {lanes}; j++) sum[h][j] = 0.0f;"));
    body.close();

    body.open(format!("for (int t = begin + warp; t < end; t += {ATTEND_WARPS}) {{"));
    body.line(format!("float key[{lanes}], value[{lanes}];"));
    body.line("FL_UNROLL");
    body.open(format!("for (int j = 0; j < {lanes}; j++) {{"));
    body.line("const int d = 32 * j + lane;");
    let load = load_function(*dtype);
    let guard = if head_dim % 32 == 0 { "true".to_string() } else { format!("d < {head_dim}") };
    for (name, plane) in [("key", "keys"), ("value", "values")] {
        let place = format!("base + (long long)t * {head_dim} + d");
        let text = format!("{load}({cache_name}_{plane}, {place})");
        if head_dim % 32 == 0 {
            body.line(format!("{name}[j] = {text};"));
        } else {
            body.line(format!("{name}[j] = {guard} ? {text} : 0.0f;"));
        }
    }
    body.close();
    body.line("FL_UNROLL");
    body.open(format!("for (int h = 0; h < {own}; h++) {{"));
    body.line("float score = 0.0f;");
    body.line("FL_UNROLL");
    body.open(format!("for (int j = 0; j < {lanes}; j++) {{"));
    body.line("const int d = 32 * j + lane;");
    let product = format!("score = fl_fma(q_shared[h * {head_dim} + d], key[j], score);");
    body.line(if head_dim % 32 == 0 { product } else { format!("if ({guard}) {product}") });
    body.close();
    body.line(format!("score = fl_warp_sum(score) * {};", float_text(*scale)));
    if let Some(cap) = softcap {
        body.line(format!("score = fl_softcap(score, {});", float_text(*cap)));
    }
    body.line("const float top = fl_max(max[h], score);");
    body.line("const float keep = fl_exp(max[h] - top);");
    body.line("const float p = fl_exp(score - top);");
    body.line("max[h] = top;");
    body.line("total[h] = fl_fma(total[h], keep, p);");
    body.line("FL_UNROLL");
    body.line(format!(
        "for (int j = 0; j < {lanes}; j++) sum[h][j] = fl_fma(sum[h][j], keep, fl_round_{operand}(p) * value[j]);"
    ));
    body.close();
    body.close();

    body.line("FL_UNROLL");
    body.open(format!("for (int h = 0; h < {own}; h++) {{"));
    body.line("FL_UNROLL");
    body.open(format!("for (int j = 0; j < {lanes}; j++) {{"));
    body.line("const int d = 32 * j + lane;");
    let write = format!("sums[(warp * {own} + h) * {head_dim} + d] = sum[h][j];");
    body.line(if head_dim % 32 == 0 { write } else { format!("if ({guard}) {write}") });
    body.close();
    body.open("if (lane == 0) {");
    body.line(format!("maxima[warp * {own} + h] = max[h];"));
    body.line(format!("totals[warp * {own} + h] = total[h];"));
    body.close();
    body.close();
    body.line("fl_barrier();");

    body.open(format!(
        "for (int i = fl_thread(); i < {}; i += {}) {{",
        own * head_dim,
        ATTEND_WARPS * 32
    ));
    body.line(format!("const int h = i / {head_dim};"));
    body.line("const int head = head0 + h;");
    body.line(format!("const int d = i % {head_dim};"));
    if *sinks {
        body.line("float sink;");
        body.open("{");
        let mut scope = Scope::new(cx, &|_, _| None, &none);
        let sink = scope.element(inputs[3], &[Index::var("head", heads)]);
        scope.line(format!("sink = {sink};"));
        body.lines(scope.into_lines());
        body.close();
    }
    let first = if *sinks { "sink" } else { "FL_NEGATIVE_INFINITY" };
    body.line(format!("float top = {first};"));
    body.line(format!(
        "for (int w = 0; w < {ATTEND_WARPS}; w++) top = fl_max(top, maxima[w * {own} + h]);"
    ));
    let first = if *sinks { "fl_exp(sink - top)" } else { "0.0f" };
    body.line(format!("float all = {first};"));
    body.line("float weighted = 0.0f;");
    body.open(format!("for (int w = 0; w < {ATTEND_WARPS}; w++) {{"));
    body.line(format!("if (totals[w * {own} + h] == 0.0f) continue; // no position"));
    body.line(format!("const float keep = fl_exp(maxima[w * {own} + h] - top);"));
    body.line(format!("all = fl_fma(totals[w * {own} + h], keep, all);"));
    body.line(format!("weighted = fl_fma(sums[w * {own} * {head_dim} + i], keep, weighted);"));
    body.close();
    let result = cx.name(anchor);
    body.line(format!("const float {result} = all == 0.0f ? 0.0f : fl_div(weighted, all);"));
    let leaf = |id: ValueId, _| (id == anchor).then(|| result.clone());
    let mut scope = Scope::new(cx, &leaf, &none);
    for &id in &cx.kernel.stores {
        scope.store(id, &coords);
    }
    body.lines(scope.into_lines());
    body.close();
}
