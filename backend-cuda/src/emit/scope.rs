//! Expressions: the text that computes one element of a value, from whatever the kernel has at
//! hand. Every template uses this one evaluator for its prologue and epilogue.

use super::format::{load_function, prefix};
use super::index::{Index, delinearize, linearize};
use super::pointwise_text::{float_text, pointwise_text};
use super::tables::Tables;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Graph, Op, Pairing, Type, ValueId};
use fuseline_core::plan::{Kernel, Plan};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What all text of one kernel shares.
pub(crate) struct Context<'a> {
    pub plan: &'a Plan,
    pub kernel: &'a Kernel,
    pub tables: &'a RefCell<Tables>,
}

impl<'a> Context<'a> {
    pub fn graph(&self) -> &'a Graph {
        self.plan.graph()
    }

    /// The type of index variables.
    pub fn index_type(&self) -> &'static str {
        if self.kernel.launch.wide_index { "long long" } else { "int" }
    }

    /// A value's name in the text.
    pub fn name(&self, id: ValueId) -> String {
        value_name(self.graph(), id)
    }

    /// How many rows a call has of these leading dims: a number, or an expression in `rows`.
    pub fn n_rows(&self, lead: &[fuseline_core::ir::Dim]) -> String {
        let fixed: usize = lead.iter().filter(|dim| !dim.batch).map(|dim| dim.size).product();
        match (lead.iter().any(|dim| dim.batch), fixed) {
            (false, fixed) => fixed.to_string(),
            (true, 1) => "rows".to_string(),
            (true, fixed) => format!("rows * {fixed}"),
        }
    }
}

/// A value's name in the text: the user's, with the value's number.
pub fn value_name(graph: &Graph, id: ValueId) -> String {
    match &graph[id].name {
        Some(name) => {
            let name = name.trim_start_matches("r#");
            let ascii = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            format!("{}_{}", name.chars().map(ascii).collect::<String>(), id.0)
        }
        None => format!("v{}", id.0),
    }
}

/// Where in a linear's tile the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    /// Whether the neighbour's element is meant: the partner of a rotation.
    pub partner: bool,
    /// The first element of the slices that were looked through.
    pub start: usize,
}

/// What a template's own results are called: `None` if the value is not one of them.
pub(crate) type Leaf<'a> = dyn Fn(ValueId, Spot) -> Option<String> + 'a;

/// Statements that compute elements, in order, each once.
pub(crate) struct Scope<'a> {
    cx: &'a Context<'a>,
    leaf: &'a Leaf<'a>,
    /// The numbers that row reductions left.
    row_results: &'a BTreeMap<ValueId, Vec<String>>,
    lines: Vec<String>,
    known: BTreeMap<(ValueId, Vec<Index>, Spot), String>,
    names: BTreeMap<String, usize>,
    spot: Spot,
}

impl<'a> Scope<'a> {
    pub fn new(
        cx: &'a Context<'a>,
        leaf: &'a Leaf<'a>,
        row_results: &'a BTreeMap<ValueId, Vec<String>>,
    ) -> Scope<'a> {
        Scope {
            cx,
            leaf,
            row_results,
            lines: Vec::new(),
            known: BTreeMap::new(),
            names: BTreeMap::new(),
            spot: Spot { partner: false, start: 0 },
        }
    }

    /// The statements so far, each a line.
    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }

    /// Adds a statement.
    pub fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn fresh(&mut self, name: &str) -> String {
        let count = self.names.entry(name.to_string()).or_insert(0);
        *count += 1;
        if *count == 1 { name.to_string() } else { format!("{name}_at{count}") }
    }

    /// The element of a value at coordinates, as an expression without side effects.
    pub fn element(&mut self, id: ValueId, coords: &[Index]) -> String {
        let graph = self.cx.graph();
        let key = (id, coords.to_vec(), self.spot);
        if let Some(name) = self.known.get(&key) {
            return name.clone();
        }
        if let Op::Const(value) = graph[id].op {
            return float_text(value);
        }
        if let Some(text) = (self.leaf)(id, self.spot) {
            return text;
        }
        let mut name = self.cx.name(id);
        let expression = if self.cx.kernel.loads.contains(&id) {
            let expression = self.load(id, coords);
            name += "_i"; // the name itself is the pointer
            expression
        } else {
            match &graph[id].op {
                // Views are other coordinates, not other elements.
                Op::Slice { start, .. } => {
                    let mut inner = coords.to_vec();
                    if let Some(last) = inner.last_mut() {
                        *last = last.plus(&Index::constant(*start));
                    }
                    self.spot.start += start;
                    let text = self.element(graph[id].inputs[0], &inner);
                    self.spot.start -= start;
                    return text;
                }
                Op::Reshape { shape } => {
                    let input = graph[id].inputs[0];
                    let place = linearize(coords, shape);
                    return self.element(input, &delinearize(&place, graph[input].ty.shape()));
                }
                _ => self.compute(id, coords),
            }
        };
        let name = self.fresh(&name);
        self.line(format!("const float {name} = {expression};"));
        self.known.insert(key, name.clone());
        name
    }

    fn load(&mut self, id: ValueId, coords: &[Index]) -> String {
        let ty = &self.cx.graph()[id].ty;
        let name = self.cx.name(id);
        if ty.shape().is_empty() && self.cx.graph()[id].op == Op::Arg {
            return name; // a number, passed by value
        }
        let place = linearize(coords, ty.shape());
        format!("{}({name}, {place})", load_function(ty.dtype()))
    }

    fn compute(&mut self, id: ValueId, coords: &[Index]) -> String {
        let graph = self.cx.graph();
        let inputs = &graph[id].inputs;
        match &graph[id].op {
            Op::Pointwise(op) => {
                let operands: Vec<String> =
                    inputs.iter().map(|&input| self.broadcast(input, coords)).collect();
                pointwise_text(*op, &operands)
            }
            Op::Cast(dtype) => {
                let x = self.element(inputs[0], coords);
                format!("fl_round_{dtype}({x})")
            }
            Op::Rope { pairing, base, rotary } => self.rope(id, coords, *pairing, *base, *rotary),
            Op::Reduce(_) => self.row_result(id, 0),
            Op::Softmax => {
                let x = self.element(inputs[0], coords);
                let (max, sum) = (self.row_result(id, 0), self.row_result(id, 1));
                format!("fl_div(fl_exp({x} - {max}), {sum})")
            }
            Op::RmsNorm { .. } => {
                let x = self.element(inputs[0], coords);
                let weight = self.element(inputs[1], &coords[coords.len() - 1..]);
                format!("{x} * {} * {weight}", self.row_result(id, 0))
            }
            Op::LayerNorm { .. } => {
                let x = self.element(inputs[0], coords);
                let last = &coords[coords.len() - 1..];
                let (weight, bias) = (self.element(inputs[1], last), self.element(inputs[2], last));
                let (mean, scale) = (self.row_result(id, 0), self.row_result(id, 1));
                format!("fl_fma(({x} - {mean}) * {scale}, {weight}, {bias})")
            }
            Op::Dequantize => self.dequantize(inputs[0], coords),
            // Templates and effects are leaves, loads or statements of their own.
            Op::Arg
            | Op::Const(_)
            | Op::Argmax
            | Op::Linear
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Append
            | Op::Attend { .. }
            | Op::Embed => {
                unreachable!("{id} is not an element expression\n{graph}")
            }
        }
    }

    /// One element of a weight.
    fn dequantize(&mut self, weight: ValueId, coords: &[Index]) -> String {
        let Type::Weight { format, k, .. } = &self.cx.graph()[weight].ty else {
            return float_text(f32::NAN);
        };
        let (name, row, col) = (self.cx.name(weight), &coords[0], &coords[1]);
        let (prefix, k) = (prefix(format), k.size);
        let place = format!("(long long)({row}), (int)({col}), {k}");
        let code = format!("{prefix}_decode1({name}_codes, {place})");
        let Some(group) = format.group else { return code };
        let at = format!("{prefix}_group({place})");
        let scale = format!("{}({name}_scales, {at})", load_function(group.scale));
        match group.offset {
            None => format!("{code} * {scale}"),
            Some(offset) => {
                let offset = format!("{}({name}_offsets, {at})", load_function(offset));
                format!("fl_fma({code}, {scale}, {offset})")
            }
        }
    }

    fn row_result(&self, id: ValueId, index: usize) -> String {
        self.row_results[&id][index].clone()
    }

    /// An operand's element for the user's coordinates: compared from the right, dims of 1 stay.
    fn broadcast(&mut self, id: ValueId, coords: &[Index]) -> String {
        let shape = self.cx.graph()[id].ty.shape();
        let skipped = coords.len() - shape.len();
        let own: Vec<Index> = shape
            .iter()
            .zip(&coords[skipped..])
            .map(
                |(dim, coord)| {
                    if dim.size == 1 && !dim.batch { Index::constant(0) } else { coord.clone() }
                },
            )
            .collect();
        self.element(id, &own)
    }

    fn rope(
        &mut self,
        id: ValueId,
        coords: &[Index],
        pairing: Pairing,
        base: f64,
        rotary: usize,
    ) -> String {
        let graph = self.cx.graph();
        let (x, pos) = (graph[id].inputs[0], graph[id].inputs[1]);
        let head_dim = graph[id].ty.shape()[2].size;
        let table = self.cx.tables.borrow_mut().rope(base, rotary);
        let int = self.cx.index_type();
        let d = self.fresh(&format!("d{}", id.0));
        self.line(format!("const {int} {d} = {};", coords[2]));
        let half = rotary / 2;
        let (partner, pair, second) = match pairing {
            Pairing::Interleaved => {
                (format!("{d} ^ 1"), format!("{d} / 2"), format!("{d} % 2 == 1"))
            }
            Pairing::HalfSplit => (
                format!("{d} < {half} ? {d} + {half} : {d} - {half}"),
                format!("{d} % {half}"),
                format!("{d} >= {half}"),
            ),
        };
        let whole = rotary == head_dim;
        let p = self.fresh(&format!("p{}", id.0));
        let partner = if whole { partner } else { format!("{d} >= {rotary} ? {d} : ({partner})") };
        self.line(format!("const {int} {p} = {partner};"));
        let own = self.element(x, coords);
        let mut other = coords.to_vec();
        other[2] = Index::var(&p, head_dim);
        self.spot.partner = !self.spot.partner;
        let partner = self.element(x, &other);
        self.spot.partner = !self.spot.partner;
        let position = format!("fl_load_i32({}_positions, {})", self.cx.name(pos), coords[0]);
        let turned = format!(
            "fl_rotate({own}, {partner}, {second}, fl_rope_turn({position}, {table}[{pair}]))"
        );
        if whole {
            turned
        } else {
            // The tail's pair index would be beyond the table.
            format!("{d} >= {rotary} ? {own} : {turned}")
        }
    }

    /// Stores the element of a member at coordinates of its own shape; for an append, of the
    /// shape of its keys.
    pub fn store(&mut self, id: ValueId, coords: &[Index]) {
        let graph = self.cx.graph();
        if graph[id].op == Op::Append {
            return self.append(id, coords);
        }
        let ty = &graph[id].ty;
        let x = self.element(id, coords);
        let place = linearize(coords, ty.shape());
        let name = self.cx.name(id);
        self.line(format!("{}({name}_out, {place}, {x});", store_function(ty.dtype())));
    }

    fn append(&mut self, id: ValueId, coords: &[Index]) {
        let graph = self.cx.graph();
        let [cache, k, v, pos] = graph[id].inputs[..] else { return };
        let Type::Cache { dtype, kv_heads, head_dim, capacity, .. } = &graph[cache].ty else {
            return;
        };
        let keys = self.element(k, coords);
        let values = self.element(v, coords);
        let (pos, name) = (self.cx.name(pos), self.cx.name(cache));
        let row = &coords[0];
        let place = self.fresh(&format!("place{}", id.0));
        self.line(format!(
            "const long long {place} = (((long long)fl_load_i32({pos}_sequences, {row}) * {} + {}) * {} + fl_load_i32({pos}_positions, {row})) * {} + {};",
            kv_heads.size, coords[1], capacity.size, head_dim.size, coords[2],
        ));
        let store = store_function(*dtype);
        self.line(format!("{store}({name}_keys, {place}, {keys});"));
        self.line(format!("{store}({name}_values, {place}, {values});"));
    }
}

/// The function of `memory.cuh` or `convert.cuh` that stores a number.
fn store_function(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "fl_store_f32",
        DType::F16 => "fl_store_f16",
        DType::BF16 => "fl_store_bf16",
        DType::I32 => "fl_store_i32",
    }
}
