//! The graph: what a block computes, one value an operation, operands before users.
//!
//! A [`Graph`] holds no source spans and no decisions. Its text form ([`Graph::to_text`],
//! [`Graph::parse`]) round-trips, so a test case, a dump and a bug report are the same thing.

pub mod dim;
mod infer;
pub mod op;
mod pin;
mod text;
mod verify;

pub use dim::{Dim, Shape};
pub use infer::infer;
pub use op::{Op, Pairing, Pointwise, Reduction};
pub use pin::Pin;
pub use text::ParseError;
pub use verify::VerifyError;

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::format::WeightFormat;
use std::fmt;
use std::sync::Arc;

/// A value of a graph, by its place in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The place in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Elements in row-major order. A scalar has no dims; token ids are `i32[B]`.
    Tensor {
        /// What the elements were last rounded to.
        dtype: DType,
        /// Outermost first.
        shape: Shape,
    },
    /// A packed `[n, k]` weight.
    Weight {
        /// How its codes become numbers.
        format: Arc<WeightFormat>,
        /// Output rows.
        n: Dim,
        /// Elements of a row.
        k: Dim,
    },
    /// Keys and values of up to `batch` sequences, each `[kv_heads, capacity, head_dim]`.
    Cache {
        /// What keys and values are stored as.
        dtype: DType,
        /// Sequences.
        batch: Dim,
        /// Key heads.
        kv_heads: Dim,
        /// Elements of a head.
        head_dim: Dim,
        /// Positions of a sequence.
        capacity: Dim,
    },
    /// Each row's position, and the sequence that it belongs to.
    Index {
        /// Rows.
        rows: Dim,
    },
}

impl Type {
    /// A tensor type.
    pub fn tensor(dtype: DType, shape: Shape) -> Type {
        Type::Tensor { dtype, shape }
    }

    /// The shape of a tensor; other kinds have none.
    pub fn shape(&self) -> &[Dim] {
        match self {
            Type::Tensor { shape, .. } => shape,
            Type::Weight { .. } | Type::Cache { .. } | Type::Index { .. } => &[],
        }
    }

    /// Elements of a tensor, with the batch dim full.
    pub fn elements(&self) -> usize {
        dim::elements(self.shape())
    }

    /// The element type of a tensor or cache; positions are `i32`, weights decode to `f32`.
    pub fn dtype(&self) -> DType {
        match self {
            Type::Tensor { dtype, .. } | Type::Cache { dtype, .. } => *dtype,
            Type::Weight { .. } => DType::F32,
            Type::Index { .. } => DType::I32,
        }
    }

    /// Bytes that a value of this type takes in memory, with the batch dim full.
    pub fn bytes(&self) -> usize {
        match self {
            Type::Tensor { dtype, shape } => dim::elements(shape).saturating_mul(dtype.bytes()),
            Type::Weight { format, n, k } => format.packed_bytes(n.size, k.size),
            Type::Cache { dtype, batch, kv_heads, head_dim, capacity } => {
                [batch, kv_heads, head_dim, capacity]
                    .iter()
                    .fold(2 * dtype.bytes(), |n, dim| n.saturating_mul(dim.size))
            }
            Type::Index { rows } => rows.size.saturating_mul(2 * DType::I32.bytes()),
        }
    }

    /// Whether the batch dim is among its dims.
    pub fn has_batch(&self) -> bool {
        match self {
            Type::Tensor { shape, .. } => shape.iter().any(|dim| dim.batch),
            Type::Weight { n, k, .. } => n.batch || k.batch,
            Type::Cache { batch, .. } => batch.batch,
            Type::Index { rows } => rows.batch,
        }
    }

    fn dims_mut(&mut self) -> Vec<&mut Dim> {
        match self {
            Type::Tensor { shape, .. } => shape.iter_mut().collect(),
            Type::Weight { n, k, .. } => vec![n, k],
            Type::Cache { batch, kv_heads, head_dim, capacity, .. } => {
                vec![batch, kv_heads, head_dim, capacity]
            }
            Type::Index { rows } => vec![rows],
        }
    }
}

/// One value: an operation on earlier values.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// What computes it.
    pub op: Op,
    /// The operands.
    pub inputs: Vec<ValueId>,
    /// What it is.
    pub ty: Type,
    /// The user's name for it, if there is one.
    pub name: Option<Arc<str>>,
    /// Where the program wants it to live, if it says so.
    pub pin: Option<Pin>,
}

/// Who brings an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Each call.
    Input,
    /// The block's weights, once.
    Weight,
    /// Each call, and the block changes it.
    Cache,
}

impl Role {
    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Weight => "weight",
            Role::Cache => "cache",
        }
    }
}

/// An argument of the block.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// The user's name for it.
    pub name: Arc<str>,
    /// Who brings it.
    pub role: Role,
    /// Its value.
    pub value: ValueId,
}

/// How many rows a call may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The user's name for the dim.
    pub name: Arc<str>,
    /// The fewest rows.
    pub min: usize,
    /// The most rows.
    pub max: usize,
}

impl Batch {
    /// The row counts that get a variant of their own: powers of two from `min`, and `max`.
    pub fn buckets(&self) -> Vec<usize> {
        let mut buckets = Vec::new();
        let mut rows = self.min.max(1).next_power_of_two();
        while rows < self.max {
            buckets.push(rows);
            rows *= 2;
        }
        buckets.push(self.max);
        buckets
    }
}

/// What a block computes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    /// The block's name.
    pub name: String,
    /// The range of the batch dim, if the program gives one.
    pub batch: Option<Batch>,
    /// Values, operands before users.
    pub values: Vec<Value>,
    /// Arguments, in the order of the signature.
    pub args: Vec<Arg>,
    /// Results, in order.
    pub outputs: Vec<ValueId>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Graph {
        Graph { name: name.to_string(), ..Graph::default() }
    }

    /// Adds an argument.
    pub fn arg(&mut self, name: &str, role: Role, ty: Type) -> ValueId {
        let name: Arc<str> = Arc::from(name);
        let value = self.add(Op::Arg, Vec::new(), ty, Some(name.clone()));
        self.args.push(Arg { name, role, value });
        value
    }

    /// Adds an operation, with its type inferred.
    ///
    /// # Errors
    /// If the operands do not fit; the diagnostic says which.
    pub fn push(&mut self, op: Op, inputs: Vec<ValueId>) -> Result<ValueId, Diagnostic> {
        let types: Vec<&Type> = inputs.iter().map(|&input| &self[input].ty).collect();
        let ty = infer(&op, &types)?;
        Ok(self.add(op, inputs, ty, None))
    }

    /// Records the user's name for a value that has none.
    pub fn set_name(&mut self, value: ValueId, name: &str) {
        let slot = &mut self.values[value.index()].name;
        if slot.is_none() {
            *slot = Some(Arc::from(name));
        }
    }

    /// Pins a value, or leaves it to the planner. [`Graph::verify`] says which pins are legal.
    ///
    /// # Panics
    /// If the graph has no such value.
    pub fn set_pin(&mut self, value: ValueId, pin: Option<Pin>) {
        self.values[value.index()].pin = pin;
    }

    fn add(&mut self, op: Op, inputs: Vec<ValueId>, ty: Type, name: Option<Arc<str>>) -> ValueId {
        self.values.push(Value { op, inputs, ty, name, pin: None });
        ValueId(self.values.len() as u32 - 1)
    }

    /// Every value's id, operands before users.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// The argument that a value is, if it is one.
    pub fn arg_of(&self, value: ValueId) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.value == value)
    }

    /// The users of every value, in order, once for each operand place.
    pub fn users(&self) -> Vec<Vec<ValueId>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for id in self.ids() {
            for &input in &self[id].inputs {
                users[input.index()].push(id);
            }
        }
        users
    }

    /// The value whose elements a view renames: itself, if it is no view.
    pub fn base(&self, value: ValueId) -> ValueId {
        let mut value = value;
        while self[value].op.is_view() {
            value = self[value].inputs[0];
        }
        value
    }

    /// How people call a value: the user's name, or its id.
    pub fn label(&self, value: ValueId) -> String {
        match &self[value].name {
            Some(name) => format!("`{name}`"),
            None => format!("`{}` ({value})", self[value].op.name()),
        }
    }

    /// The same graph for calls of up to `rows` rows.
    pub fn with_rows(&self, rows: usize) -> Graph {
        let mut graph = self.clone();
        for value in &mut graph.values {
            if let Op::Reshape { shape } = &mut value.op {
                shape.iter_mut().filter(|dim| dim.batch).for_each(|dim| dim.size = rows);
            }
            // A cache keeps room for every sequence, however few rows a call has.
            if !matches!(value.ty, Type::Cache { .. }) {
                let dims = value.ty.dims_mut();
                dims.into_iter().filter(|dim| dim.batch).for_each(|dim| dim.size = rows);
            }
        }
        graph
    }

    /// Rows that the batch dim has room for; 1 if there is no batch dim.
    pub fn rows(&self) -> usize {
        let of_arg = |arg: &Arg| match &self[arg.value].ty {
            Type::Tensor { shape, .. } => shape.iter().find(|dim| dim.batch).map(|dim| dim.size),
            Type::Index { rows } => rows.batch.then_some(rows.size),
            Type::Weight { .. } | Type::Cache { .. } => None,
        };
        self.args.iter().find_map(of_arg).unwrap_or(1)
    }

    /// The formats of its weights that are not built in, each once.
    pub fn declared_formats(&self) -> Vec<Arc<WeightFormat>> {
        let mut formats: Vec<Arc<WeightFormat>> = Vec::new();
        for arg in &self.args {
            if let Type::Weight { format, .. } = &self[arg.value].ty {
                let known = crate::format::builtin(&format.name).is_some()
                    || formats.iter().any(|f| f.name == format.name);
                if !known {
                    formats.push(format.clone());
                }
            }
        }
        formats
    }
}

impl std::ops::Index<ValueId> for Graph {
    type Output = Value;

    fn index(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }
}
