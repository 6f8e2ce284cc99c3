//! Arguments and results of a call, with their types as values.

use crate::device::Device;
use crate::dims::Dims;
use crate::error::Result;
use crate::index::Places;
use crate::memory::Memory;
use crate::weight::Planes;
use fuseline_core::dtype::DType;
use std::sync::Arc;

/// A number that each call brings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar<T = f32>(pub T);

/// What a block can be called with.
pub trait Argument {
    /// The argument with its type as a value. Whoever passes a cache on holds it exclusively.
    fn as_arg(&self) -> ArgRef<'_>;
}

/// What a block can give.
pub trait Output: Sized {
    /// Memory for that many rows.
    ///
    /// # Errors
    /// If the type has no room for them, or the device has no memory left.
    fn with_rows(device: &Device, rows: usize) -> Result<Self>;

    /// The place for a result, with its type as a value.
    fn as_output(&mut self) -> OutputRef<'_>;
}

/// An argument.
#[derive(Clone, Copy, Debug)]
#[allow(private_interfaces, missing_docs)]
pub enum ArgRef<'a> {
    Tensor(TensorArg<'a>),
    Weight(WeightArg<'a>),
    Cache(CacheArg<'a>),
    Index(IndexArg<'a>),
    Scalar(f32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorArg<'a> {
    pub memory: &'a Memory,
    pub dtype: DType,
    pub dims: Dims,
    pub rows: usize,
    /// Token ids, if the host knows them.
    pub tokens: Option<&'a [u32]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightArg<'a> {
    pub planes: &'a Planes,
    pub dims: Dims,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheArg<'a> {
    pub keys: &'a Memory,
    pub values: &'a Memory,
    pub dtype: DType,
    /// Sequences, heads, positions, elements.
    pub dims: Dims,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexArg<'a> {
    pub places: &'a Places,
}

/// The place for a result.
#[derive(Debug)]
pub struct OutputRef<'a> {
    pub(crate) memory: &'a Arc<Memory>,
    pub(crate) dtype: DType,
    pub(crate) dims: Dims,
    /// Set by a call that succeeds.
    pub(crate) rows: &'a mut usize,
}

impl Argument for Scalar<f32> {
    fn as_arg(&self) -> ArgRef<'_> {
        ArgRef::Scalar(self.0)
    }
}

impl<'a> ArgRef<'a> {
    /// The memory that it is in, and whether calls change it.
    pub(crate) fn memories(&self) -> Vec<(&'a Memory, bool)> {
        match *self {
            ArgRef::Tensor(tensor) => vec![(tensor.memory, false)],
            ArgRef::Weight(WeightArg { planes, .. }) => {
                vec![(&planes.codes, false), (&planes.scales, false), (&planes.offsets, false)]
            }
            ArgRef::Cache(cache) => vec![(cache.keys, true), (cache.values, true)],
            ArgRef::Index(IndexArg { places }) => {
                vec![(&places.positions, false), (&places.sequences, false)]
            }
            ArgRef::Scalar(_) => Vec::new(),
        }
    }

    /// What messages call its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ArgRef::Tensor(TensorArg { dtype: DType::I32, .. }) => "`Tokens`",
            ArgRef::Tensor(_) => "a `Tensor`",
            ArgRef::Weight(_) => "a `Weight`",
            ArgRef::Cache(_) => "a `KvCache`",
            ArgRef::Index(_) => "an `Index`",
            ArgRef::Scalar(_) => "a `Scalar`",
        }
    }
}
