//! Arguments and results as blocks see them, whatever their types say.

use crate::cache::Places;
use crate::device::Device;
use crate::error::Result;
use fuseline_core::backend::BufferRef;
use fuseline_core::dtype::DType;
use fuseline_core::format::WeightFormat;
use std::sync::{Mutex, PoisonError};

/// Anything that a block takes.
pub trait Argument {
    /// The argument without its type.
    fn as_arg(&self) -> ArgRef<'_>;
}

/// Anything that a block gives.
pub trait Output: Sized {
    /// Memory for a result of `rows` rows.
    ///
    /// # Errors
    /// If the device has no memory left.
    fn with_rows(device: &Device, rows: usize) -> Result<Self>;

    /// The result without its type.
    fn as_output(&mut self) -> OutputRef<'_>;
}

/// An argument without its type.
#[derive(Clone, Debug)]
pub enum ArgRef<'a> {
    /// A tensor, with the rows that it has.
    Tensor {
        /// Where it lies.
        device: &'a Device,
        /// Its memory.
        buffer: &'a BufferRef,
        /// Its elements' type.
        dtype: DType,
        /// Its dims.
        shape: Vec<usize>,
    },
    /// A packed weight.
    Weight {
        /// Where it lies.
        device: &'a Device,
        /// Codes, scales and offsets.
        planes: [&'a BufferRef; 3],
        /// How codes become numbers.
        format: &'a WeightFormat,
        /// `[n, k]`.
        shape: [usize; 2],
    },
    /// A key-value cache.
    Cache {
        /// Where it lies.
        device: &'a Device,
        /// Keys and values.
        planes: [&'a BufferRef; 2],
        /// Their elements' type.
        dtype: DType,
        /// `[sequences, kv_heads, head_dim, capacity]`.
        shape: [usize; 4],
    },
    /// Each row's position and sequence.
    Index {
        /// Where it lies.
        device: &'a Device,
        /// Positions and sequences.
        planes: [&'a BufferRef; 2],
        /// The same, for checks.
        places: &'a Mutex<Places>,
    },
    /// A number.
    Scalar(f32),
}

/// Rows of an index.
pub(crate) fn n_places(places: &Mutex<Places>) -> usize {
    places.lock().unwrap_or_else(PoisonError::into_inner).rows.len()
}

/// A result without its type.
#[derive(Debug)]
pub struct OutputRef<'a> {
    /// Where it lies.
    pub device: &'a Device,
    /// Its memory.
    pub buffer: &'a BufferRef,
    /// Its rows, set by a call.
    pub rows: &'a mut usize,
    /// Its elements' type.
    pub dtype: DType,
    /// Its dims, the batch dim full.
    pub shape: Vec<usize>,
}

impl ArgRef<'_> {
    /// What messages call it.
    pub(crate) fn describe(&self) -> String {
        match self {
            ArgRef::Tensor { dtype, shape, .. } => format!("{dtype}{shape:?}"),
            ArgRef::Weight { format, shape, .. } => format!("a {} weight {shape:?}", format.name),
            ArgRef::Cache { dtype, shape, .. } => {
                format!("a {dtype} cache {shape:?} (sequences, key heads, head size, capacity)")
            }
            ArgRef::Index { places, .. } => format!("an index of {} rows", n_places(places)),
            ArgRef::Scalar(_) => "a number".to_string(),
        }
    }

    /// Where it lies; numbers lie nowhere.
    pub(crate) fn device(&self) -> Option<&Device> {
        match self {
            ArgRef::Tensor { device, .. }
            | ArgRef::Weight { device, .. }
            | ArgRef::Cache { device, .. }
            | ArgRef::Index { device, .. } => Some(device),
            ArgRef::Scalar(_) => None,
        }
    }
}
