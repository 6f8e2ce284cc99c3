//! The shape of a kernel: given the operations that are to share one, finds what the kernel is
//! built around and what runs before and after it, or the reason why there is no such kernel.
//! Every rule of fusion asks this one function whether its result is legal.
//!
//! - A kernel has at most one *template*: rows that are reduced, a linear (or several that read
//!   the same operand), an attention, a gather. Without one it is pointwise.
//! - The *prologue* is what the template's operand is computed from. Each block computes all of
//!   it that it needs, so nothing of it is stored, and row reductions are over whole rows.
//! - The *epilogue* is computed from the template's results, element by element, by the thread
//!   that holds them. RoPE needs its partner there too, so outputs are computed in pairs.
//! - Views are no members: they are computed, as index arithmetic, wherever they are read.

use super::context::Context;
use super::decision::Reason;
use super::matrix::{self, Multiply};
use super::operand;
use super::schedule;
use crate::ir::{Graph, Op, Pairing, Type, ValueId, dim};
use std::collections::{BTreeMap, BTreeSet};

/// What a kernel is built around, and what runs before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// What it is built around.
    pub template: Template,
    /// Members that the template's operands are computed from.
    pub prologue: Vec<ValueId>,
    /// Members that are computed from the template's results.
    pub epilogue: Vec<ValueId>,
}

/// What a kernel is built around.
#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    /// Nothing: one thread an element.
    Pointwise,
    /// Reductions of rows: one block a row.
    Rows(Rows),
    /// Products with weights: a block holds the operand's rows and computes tiles of outputs.
    Linear(Linear),
    /// Attention: one block a row and key head.
    Attend {
        /// The operation.
        anchor: ValueId,
    },
    /// Rows of a table: one block a row.
    Gather {
        /// The operation.
        anchor: ValueId,
    },
}

/// Rows that are reduced over their last axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Rows, with the batch dim full.
    pub n_rows: usize,
    /// Elements of a row.
    pub width: usize,
    /// The reductions, operands before users.
    pub row_ops: Vec<ValueId>,
}

/// Products of one operand with weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// The operand, `[.., k]`.
    pub x: ValueId,
    /// Rows of the operand, with the batch dim full.
    pub n_rows: usize,
    /// Elements of a row.
    pub k: usize,
    /// The reductions that the operand is computed from, operands before users.
    pub row_ops: Vec<ValueId>,
    /// Whether a block keeps the operand's rows in shared memory. Otherwise every output reads
    /// them from memory, or computes them.
    pub staged: bool,
    /// How products are computed.
    pub multiply: Multiply,
    /// The outputs, by which of them meet in one thread.
    pub groups: Vec<Group>,
}

/// Outputs that are computed together: element f of every segment meets in one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Elements of each segment.
    pub len: usize,
    /// The order in which threads take elements.
    pub order: PairOrder,
    /// The parts of the products.
    pub segments: Vec<Segment>,
    /// Members that are stored for each element: their elements are the segments'.
    pub stores: Vec<ValueId>,
}

/// Outputs `start .. start + len` of one linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// The product.
    pub linear: ValueId,
    /// Its first output.
    pub start: usize,
}

/// The order of a group's elements, so that partners of a rotation are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOrder {
    /// As they are.
    Natural,
    /// In each head, element i is followed by element `i + rotary / 2`; the tail as it is.
    Halves {
        /// Elements of a head.
        head_dim: usize,
        /// Elements that rotate.
        rotary: usize,
    },
}

impl Template {
    /// The name in plans.
    pub fn name(&self) -> &'static str {
        match self {
            Template::Pointwise => "pointwise",
            Template::Rows(_) => "rows",
            Template::Linear(_) => "linear",
            Template::Attend { .. } => "attend",
            Template::Gather { .. } => "gather",
        }
    }
}

/// How a member relates to the template.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Anchor,
    After,
    Beside,
}

/// The structure of a kernel that computes `members` (ascending).
pub(crate) fn structure(cx: &Context<'_>, members: &[ValueId]) -> Result<Structure, Reason> {
    let graph = cx.graph;
    let of = |wanted: fn(&Op) -> bool| -> Vec<ValueId> {
        members.iter().copied().filter(|&id| wanted(&graph[id].op)).collect()
    };
    let linears = of(|op| *op == Op::Linear);
    let attends = of(|op| matches!(op, Op::Attend { .. }));
    let embeds = of(|op| *op == Op::Embed);
    let rows = of(Op::is_row);
    // An attention reads what every row's append has written.
    if attends.iter().any(|&id| members.contains(&graph[id].inputs[1])) {
        let n_elements = work_elements(graph, graph[attends[0]].inputs[1]);
        return Err(Reason::GridDependency { n_elements });
    }
    match (&linears[..], &attends[..], &embeds[..]) {
        ([], [], []) if rows.is_empty() => pointwise(cx, members),
        ([], [], []) => row_kernel(cx, members, &rows),
        ([first, ..], [], []) => {
            let x = graph[*first].inputs[0];
            if linears.iter().any(|&id| graph[id].inputs[0] != x) {
                return Err(dependency(cx, &linears));
            }
            linear_kernel(cx, members, &linears, &rows)
        }
        ([], [anchor], []) => {
            let template = Template::Attend { anchor: *anchor };
            element_kernel(cx, members, *anchor, &rows, template)
        }
        ([], [], [anchor]) => {
            let template = Template::Gather { anchor: *anchor };
            element_kernel(cx, members, *anchor, &rows, template)
        }
        _ => Err(dependency(cx, &[&linears[..], &attends[..], &embeds[..]].concat())),
    }
}

/// Two anchors in one kernel: they depend on each other across the grid, or are just two.
fn dependency(cx: &Context<'_>, anchors: &[ValueId]) -> Reason {
    let mut anchors = anchors.to_vec();
    anchors.sort_unstable();
    let (first, last) = (anchors[0], anchors[anchors.len() - 1]);
    if cx.depends(last, &[first]) {
        let operand = cx.graph[last].inputs[0];
        let width = cx.graph[operand].ty.shape().last().map_or(1, |dim| dim.size);
        return Reason::GridDependency { n_elements: width };
    }
    let (producer, consumer) = (cx.graph[first].op.name(), cx.graph[last].op.name());
    Reason::TwoTemplates { producer, consumer }
}

fn sides(cx: &Context<'_>, members: &[ValueId], anchors: &[ValueId]) -> Vec<Side> {
    members
        .iter()
        .map(|&id| {
            if anchors.contains(&id) {
                Side::Anchor
            } else if cx.depends(id, anchors) {
                Side::After
            } else if anchors.iter().any(|&anchor| cx.depends(anchor, &[id])) {
                Side::Before
            } else {
                Side::Beside
            }
        })
        .collect()
}

fn pick(members: &[ValueId], sides: &[Side], side: Side) -> Vec<ValueId> {
    members.iter().zip(sides).filter(|(_, s)| **s == side).map(|(&id, _)| id).collect()
}

fn pointwise(cx: &Context<'_>, members: &[ValueId]) -> Result<Structure, Reason> {
    // Threads run over the elements of all stored values at once, so that there are as many of
    // each, whatever rows a call has.
    let work = |id: ValueId| {
        let value = match cx.graph[id].op {
            Op::Append => cx.graph[id].inputs[1],
            _ => id,
        };
        (work_elements(cx.graph, id), cx.graph[value].ty.has_batch())
    };
    let mut stored = members.iter().filter(|&&id| cx.escapes(id, members));
    if let Some(&first) = stored.next() {
        for &other in stored {
            let (n_elements, n_user_elements) = (work(first).0, work(other).0);
            if work(first) != work(other) {
                return Err(Reason::Broadcast { n_elements, n_user_elements });
            }
        }
    }
    Ok(Structure {
        template: Template::Pointwise,
        prologue: Vec::new(),
        epilogue: members.to_vec(),
    })
}

/// Elements that threads compute for a stored value: an append's are its keys.
pub(crate) fn work_elements(graph: &Graph, id: ValueId) -> usize {
    match graph[id].op {
        Op::Append => graph[graph[id].inputs[1]].ty.elements(),
        _ => graph[id].ty.elements(),
    }
}

/// The rows of a value's last axis: the product of the other dims, and the last dim.
fn row_frame(ty: &Type) -> (usize, usize) {
    match ty.shape().split_last() {
        Some((last, lead)) => (dim::elements(lead), last.size),
        None => (1, 1),
    }
}

/// Checks that everything computed from a row's reduction belongs to that row: the same leading
/// dims, no view in between.
fn check_rows(
    cx: &Context<'_>,
    members: &[ValueId],
    row_ops: &[ValueId],
) -> Result<Option<(usize, usize)>, Reason> {
    let graph = cx.graph;
    let Some(&first) = row_ops.first() else { return Ok(None) };
    let operand = &graph[graph[first].inputs[0]].ty;
    let frame = row_frame(operand);
    let lead = &operand.shape()[..operand.shape().len() - 1];
    for &id in row_ops {
        if graph[graph[id].inputs[0]].ty.shape() != operand.shape() {
            return Err(Reason::Rows);
        }
    }
    for &id in members {
        let after = row_ops.contains(&id) || cx.depends(id, row_ops);
        if !after {
            continue;
        }
        for &input in &graph[id].inputs {
            let source = cx.source(input);
            let from_row = row_ops.contains(&source) || cx.depends(source, row_ops);
            if from_row && source != input && members.contains(&source) {
                return Err(Reason::View);
            }
        }
        let in_frame = match graph[id].op {
            Op::Argmax => graph[id].ty.shape() == lead,
            Op::Append => {
                let shape = graph[graph[id].inputs[1]].ty.shape();
                shape.len() == lead.len() + 1
                    && shape[..lead.len()] == *lead
                    && shape[lead.len()].size == frame.1
            }
            _ if graph[id].op.is_view() => return Err(Reason::View),
            _ => match graph[id].ty.shape().split_last() {
                Some((last, own)) => own == lead && (last.size == 1 || last.size == frame.1),
                None => lead.is_empty(),
            },
        };
        if !in_frame {
            return Err(Reason::Rows);
        }
    }
    Ok(Some(frame))
}

fn row_kernel(
    cx: &Context<'_>,
    members: &[ValueId],
    row_ops: &[ValueId],
) -> Result<Structure, Reason> {
    let Some((n_rows, width)) = check_rows(cx, members, row_ops)? else {
        return Err(Reason::Rows);
    };
    for &id in members {
        let after = row_ops.contains(&id) || cx.depends(id, row_ops);
        // What is stored is written along the rows.
        if cx.escapes(id, members) && !after {
            let shape = cx.graph[id].ty.shape();
            let operand = &cx.graph[cx.graph[row_ops[0]].inputs[0]].ty;
            if shape != operand.shape() || cx.graph[id].op.is_view() {
                return Err(Reason::SecondUse { n_uses: cx.member_users(id).len() });
            }
        }
    }
    let (prologue, epilogue) = members.iter().partition(|&&id| {
        !row_ops.contains(&id) && row_ops.iter().any(|&row_op| cx.depends(row_op, &[id]))
    });
    let template = Template::Rows(Rows { n_rows, width, row_ops: row_ops.to_vec() });
    Ok(Structure { template, prologue, epilogue })
}

/// What a prologue keeps to: nothing of it is needed elsewhere.
fn check_prologue(
    cx: &Context<'_>,
    prologue: &[ValueId],
    anchors: &[ValueId],
) -> Result<(), Reason> {
    for &id in prologue {
        let users = cx.member_users(id);
        let inside = |user: &ValueId| prologue.contains(user) || anchors.contains(user);
        if cx.is_output(id) || !users.iter().all(inside) {
            let n_uses = users.len() + usize::from(cx.is_output(id));
            return Err(Reason::SecondUse { n_uses });
        }
    }
    Ok(())
}

/// What runs beside a template: computed inline where it is used, never stored.
fn check_beside(cx: &Context<'_>, beside: &[ValueId], members: &[ValueId]) -> Result<(), Reason> {
    for &id in beside {
        if cx.graph[id].op.is_row() {
            return Err(Reason::Rows);
        }
        if cx.escapes(id, members) {
            return Err(Reason::SecondUse { n_uses: cx.member_users(id).len() });
        }
    }
    Ok(())
}

fn linear_kernel(
    cx: &Context<'_>,
    members: &[ValueId],
    linears: &[ValueId],
    rows: &[ValueId],
) -> Result<Structure, Reason> {
    let graph = cx.graph;
    let sides = sides(cx, members, linears);
    let prologue = pick(members, &sides, Side::Before);
    let epilogue = pick(members, &sides, Side::After);
    let x = graph[linears[0]].inputs[0];
    let (n_rows, k) = row_frame(&graph[x].ty);
    if let Some(&row) = rows.iter().find(|row| epilogue.contains(row)) {
        let operand = &graph[graph[row].inputs[0]].ty;
        return Err(Reason::GridDependency { n_elements: row_frame(operand).1 });
    }
    check_prologue(cx, &prologue, linears)?;
    check_beside(cx, &pick(members, &sides, Side::Beside), members)?;
    let row_ops: Vec<ValueId> = rows.to_vec();
    if let Some(frame) = check_rows(cx, &prologue, &row_ops)? {
        let source = cx.source(x);
        if source != x && (row_ops.contains(&source) || cx.depends(source, &row_ops)) {
            return Err(Reason::View);
        }
        if frame != (n_rows, k) {
            return Err(Reason::Rows);
        }
    }
    let groups = groups(cx, members, linears, n_rows)?;
    let multiply = Multiply::Lanes;
    let mut linear = Linear { x, n_rows, k, row_ops, staged: true, multiply, groups };
    if let Some(linear) = matrix::fitted(cx, &linear, !prologue.is_empty()) {
        return Ok(Structure { template: Template::Linear(linear), prologue, epilogue });
    }
    let need_bytes = schedule::linear_shared_bytes(graph, &linear);
    if need_bytes > cx.shared_bytes {
        let is_inline = linear.row_ops.is_empty() && operand::is_pinned_inline(cx, &linear);
        if !prologue.is_empty() && !is_inline {
            return Err(Reason::SharedMemory { need_bytes, have_bytes: cx.shared_bytes });
        }
        linear.staged = false;
        let need_bytes = schedule::linear_shared_bytes(graph, &linear);
        if need_bytes > cx.shared_bytes {
            return Err(Reason::SharedMemory { need_bytes, have_bytes: cx.shared_bytes });
        }
    }
    Ok(Structure { template: Template::Linear(linear), prologue, epilogue })
}

/// The outputs of linears that a value's element is computed from: the same element of each
/// segment.
#[derive(Clone, Debug, PartialEq)]
struct Frame {
    segments: Vec<Segment>,
    len: usize,
    order: PairOrder,
    paired: bool,
}

impl Frame {
    fn join(self, other: Option<Frame>) -> Result<Frame, Reason> {
        let Some(other) = other else { return Ok(self) };
        if self.len != other.len {
            return Err(Reason::Broadcast { n_elements: other.len, n_user_elements: self.len });
        }
        let order = match (self.order, other.order) {
            (PairOrder::Natural, order) | (order, PairOrder::Natural) => order,
            (a, b) if a == b => a,
            _ => return Err(Reason::Segments),
        };
        // Neighbours rotate together in one value, halves in the other: no order has both.
        if self.paired && other.paired && self.order != other.order {
            return Err(Reason::Segments);
        }
        if (self.paired && self.order != order) || (other.paired && other.order != order) {
            return Err(Reason::Segments);
        }
        let mut segments = self.segments;
        segments.extend(other.segments);
        segments.sort_unstable();
        segments.dedup();
        Ok(Frame { segments, len: self.len, order, paired: self.paired || other.paired })
    }
}

/// The frames of the values that are computed from a kernel's linears.
type Frames = BTreeMap<ValueId, Frame>;

/// The groups of a linear kernel's outputs.
fn groups(
    cx: &Context<'_>,
    members: &[ValueId],
    linears: &[ValueId],
    n_rows: usize,
) -> Result<Vec<Group>, Reason> {
    let graph = cx.graph;
    // The members, and the views that they read through.
    let mut order: BTreeSet<ValueId> = members.iter().copied().collect();
    for &id in members {
        for &input in &graph[id].inputs {
            let mut view = input;
            while cx.is_free_view(view) && order.insert(view) {
                view = graph[view].inputs[0];
            }
        }
    }
    let mut frames: Frames = BTreeMap::new();
    for &id in &order {
        if let Some(frame) = frame(cx, members, linears, &frames, id, n_rows)? {
            frames.insert(id, frame);
        }
    }
    // Stored values that share a segment are computed together.
    let mut joint: Vec<(Frame, Vec<ValueId>)> = Vec::new();
    for &id in members {
        let Some(mut frame) = frames.get(&id).cloned() else { continue };
        if !cx.escapes(id, members) {
            continue;
        }
        let mut stores = vec![id];
        let (shared, rest): (Vec<_>, Vec<_>) = joint.into_iter().partition(|(other, _)| {
            other.segments.iter().any(|segment| frame.segments.contains(segment))
        });
        joint = rest;
        for (other, other_stores) in shared {
            frame = frame.join(Some(other))?;
            stores.extend(other_stores);
        }
        stores.sort_unstable();
        joint.push((frame, stores));
    }
    let mut groups: Vec<Group> = joint
        .into_iter()
        .map(|(frame, stores)| {
            let Frame { segments, len, order, .. } = frame;
            Group { len, order, segments, stores }
        })
        .collect();
    groups.sort_by_key(|group| group.stores[0]);
    let parts: Vec<(Segment, usize)> =
        groups.iter().flat_map(|g| g.segments.iter().map(|&s| (s, g.len))).collect();
    for (i, (a, a_len)) in parts.iter().enumerate() {
        for (b, b_len) in &parts[i + 1..] {
            let apart =
                a.linear != b.linear || a.start + a_len <= b.start || b.start + b_len <= a.start;
            if !apart {
                return Err(Reason::Segments);
            }
        }
    }
    Ok(groups)
}

fn frame(
    cx: &Context<'_>,
    members: &[ValueId],
    linears: &[ValueId],
    frames: &Frames,
    id: ValueId,
    n_rows: usize,
) -> Result<Option<Frame>, Reason> {
    let graph = cx.graph;
    if linears.contains(&id) {
        let len = row_frame(&graph[id].ty).1;
        let segments = vec![Segment { linear: id, start: 0 }];
        return Ok(Some(Frame { segments, len, order: PairOrder::Natural, paired: false }));
    }
    let value = &graph[id];
    let mut joined: Option<Frame> = None;
    for &input in &value.inputs {
        if let Some(frame) = frames.get(&input).cloned() {
            joined = Some(frame.join(joined)?);
        }
    }
    let Some(mut frame) = joined else { return Ok(None) };
    let broadcast = Err(Reason::Broadcast {
        n_elements: n_rows * frame.len,
        n_user_elements: work_elements(graph, id),
    });
    match &value.op {
        Op::Slice { start, len } => {
            let shape = graph[value.inputs[0]].ty.shape();
            let width = shape.last().map_or(1, |dim| dim.size);
            if width != frame.len || frame.paired {
                return view_reason(cx, members, id);
            }
            frame.segments.iter_mut().for_each(|segment| segment.start += start);
            frame.len = len.size;
        }
        Op::Reshape { shape } => {
            // Some prefix of the dims is the rows, so element f of a row stays element f.
            let splits = (0..=shape.len()).any(|at| {
                dim::elements(&shape[..at]) == n_rows && dim::elements(&shape[at..]) == frame.len
            });
            if !splits {
                return view_reason(cx, members, id);
            }
        }
        Op::Rope { pairing, rotary, .. } => {
            let head_dim = value.ty.shape().last().map_or(1, |dim| dim.size);
            if !head_dim.is_multiple_of(2) || !frame.len.is_multiple_of(head_dim) {
                return Err(Reason::Segments);
            }
            let order = match pairing {
                Pairing::Interleaved => PairOrder::Natural,
                Pairing::HalfSplit => PairOrder::Halves { head_dim, rotary: *rotary },
            };
            if frame.paired && frame.order != order {
                return Err(Reason::Segments);
            }
            frame.order = order;
            frame.paired = true;
        }
        _ => {
            let full = value.inputs.iter().all(|&input| {
                !frames.contains_key(&input)
                    || graph[input].ty.elements() == work_elements(graph, id)
            });
            if !full || work_elements(graph, id) != n_rows * frame.len {
                return broadcast;
            }
        }
    }
    Ok(Some(frame))
}

/// A view that takes a row apart: fine if nothing in the kernel reads it.
fn view_reason(
    cx: &Context<'_>,
    members: &[ValueId],
    view: ValueId,
) -> Result<Option<Frame>, Reason> {
    let read_inside = cx.member_users(view).iter().any(|user| members.contains(user));
    if read_inside || members.contains(&view) { Err(Reason::View) } else { Ok(None) }
}

/// A kernel whose template's results are elements of one tensor: attention, gather.
fn element_kernel(
    cx: &Context<'_>,
    members: &[ValueId],
    anchor: ValueId,
    rows: &[ValueId],
    template: Template,
) -> Result<Structure, Reason> {
    let graph = cx.graph;
    let sides = sides(cx, members, &[anchor]);
    let prologue = pick(members, &sides, Side::Before);
    let epilogue = pick(members, &sides, Side::After);
    if let Some(&row) = rows.first() {
        if cx.depends(row, &[anchor]) {
            let n_elements = row_frame(&graph[graph[row].inputs[0]].ty).1;
            return Err(Reason::GridDependency { n_elements });
        }
        return Err(Reason::Rows);
    }
    check_prologue(cx, &prologue, &[anchor])?;
    check_beside(cx, &pick(members, &sides, Side::Beside), members)?;
    for &id in &epilogue {
        let n_user_elements = work_elements(graph, id);
        let n_elements = graph[anchor].ty.elements();
        let rotates = matches!(graph[id].op, Op::Rope { .. });
        let viewed = graph[id].op.is_view()
            || graph[id].inputs.iter().any(|&input| {
                let source = cx.source(input);
                source != input && (source == anchor || epilogue.contains(&source))
            });
        if viewed || rotates {
            return Err(Reason::View);
        }
        if graph[id].op == Op::Append || graph[id].ty.shape() != graph[anchor].ty.shape() {
            return Err(Reason::Broadcast { n_elements, n_user_elements });
        }
    }
    Ok(Structure { template, prologue, epilogue })
}
