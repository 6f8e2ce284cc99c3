//! A kernel's parameters, in order. Text and launchers read the same list.

use super::format::plane_type;
use super::scope::Context;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Op, Type, ValueId};
use fuseline_core::plan::{Kernel, Plan};

/// One parameter. Arguments are named by their value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A pointer to elements that the kernel reads: an argument, or what another kernel stored.
    Elements(ValueId),
    /// A number, by value: an `f32`.
    Scalar(ValueId),
    /// A pointer to a weight's codes.
    Codes(ValueId),
    /// A pointer to a weight's scales.
    Scales(ValueId),
    /// A pointer to a weight's offsets.
    Offsets(ValueId),
    /// A pointer to a cache's keys.
    Keys(ValueId),
    /// A pointer to a cache's values.
    Values(ValueId),
    /// A pointer to an index's positions, `i32[rows]`.
    Positions(ValueId),
    /// A pointer to an index's sequences, `i32[rows]`.
    Sequences(ValueId),
    /// A pointer to elements that the kernel writes.
    Result(ValueId),
    /// Rows of the call, an `i32`.
    Rows,
}

impl Param {
    /// The value that it belongs to, and which part of it.
    pub fn value(self) -> Option<(ValueId, &'static str)> {
        match self {
            Param::Elements(id) | Param::Scalar(id) | Param::Result(id) => Some((id, "")),
            Param::Codes(id) => Some((id, "codes of ")),
            Param::Scales(id) => Some((id, "scales of ")),
            Param::Offsets(id) => Some((id, "offsets of ")),
            Param::Keys(id) => Some((id, "keys of ")),
            Param::Values(id) => Some((id, "values of ")),
            Param::Positions(id) => Some((id, "positions of ")),
            Param::Sequences(id) => Some((id, "sequences of ")),
            Param::Rows => None,
        }
    }
}

/// The parameters of a kernel.
pub fn params(plan: &Plan, kernel: &Kernel) -> Vec<Param> {
    let graph = plan.graph();
    let mut list = Vec::new();
    for &id in &kernel.loads {
        match (&graph[id].ty, &graph[id].op) {
            (Type::Tensor { shape, .. }, Op::Arg) if shape.is_empty() => {
                list.push(Param::Scalar(id));
            }
            (Type::Tensor { .. }, _) => list.push(Param::Elements(id)),
            (Type::Weight { format, .. }, _) => {
                list.push(Param::Codes(id));
                if let Some(group) = format.group {
                    list.push(Param::Scales(id));
                    list.extend(group.offset.map(|_| Param::Offsets(id)));
                }
            }
            (Type::Cache { .. }, _) => {
                // What an append wrote is read from its cache.
                let cache = graph[id].inputs.first().copied().unwrap_or(id);
                list.extend([Param::Keys(cache), Param::Values(cache)]);
            }
            (Type::Index { .. }, _) => list.extend([Param::Positions(id), Param::Sequences(id)]),
        }
    }
    for &id in &kernel.stores {
        match graph[id].op {
            Op::Append => {
                let cache = graph[id].inputs[0];
                list.extend([Param::Keys(cache), Param::Values(cache)]);
            }
            _ => list.push(Param::Result(id)),
        }
    }
    list.push(Param::Rows);
    list
}

/// A parameter's declaration.
pub(crate) fn declare(cx: &Context<'_>, param: Param) -> String {
    let graph = cx.graph();
    let pointer = |dtype: DType| format!("{}* FL_RESTRICT", plane_type(dtype));
    let group = |id: ValueId| match &graph[id].ty {
        Type::Weight { format, .. } => format.group,
        _ => None,
    };
    let writes = |cache: ValueId| {
        let appends =
            |id: &&ValueId| graph[**id].op == Op::Append && graph[**id].inputs[0] == cache;
        cx.kernel.stores.iter().any(|id| appends(&id))
    };
    let cached = |cache: ValueId, plane: &str| {
        let constness = if writes(cache) { "" } else { "const " };
        format!("{constness}{} {}_{plane}", pointer(graph[cache].ty.dtype()), cx.name(cache))
    };
    match param {
        Param::Elements(id) => {
            format!("const {} {}", pointer(graph[id].ty.dtype()), cx.name(id))
        }
        Param::Scalar(id) => format!("float {}", cx.name(id)),
        Param::Codes(id) => format!("const unsigned char* FL_RESTRICT {}_codes", cx.name(id)),
        Param::Scales(id) => {
            let dtype = group(id).map_or(DType::F32, |group| group.scale);
            format!("const {} {}_scales", pointer(dtype), cx.name(id))
        }
        Param::Offsets(id) => {
            let dtype = group(id).and_then(|group| group.offset).unwrap_or(DType::F32);
            format!("const {} {}_offsets", pointer(dtype), cx.name(id))
        }
        Param::Keys(id) => cached(id, "keys"),
        Param::Values(id) => cached(id, "values"),
        Param::Positions(id) => format!("const int* FL_RESTRICT {}_positions", cx.name(id)),
        Param::Sequences(id) => format!("const int* FL_RESTRICT {}_sequences", cx.name(id)),
        Param::Result(id) => format!("{} {}_out", pointer(graph[id].ty.dtype()), cx.name(id)),
        Param::Rows => "int rows".to_string(),
    }
}
