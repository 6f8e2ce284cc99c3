//! Token ids, one a row.

use crate::argument::{ArgRef, Argument, Output, OutputRef};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::sync::Arc;

/// Up to `B` token ids in a device's memory.
#[derive(Clone, Debug)]
pub struct Tokens<const B: usize> {
    ids: Tensor<i32, B>,
    /// What the program gave, for checks against tables; none for the result of a block.
    given: Option<Arc<[u32]>>,
}

impl<const B: usize> Tokens<B> {
    /// Token ids on a device, one a row.
    ///
    /// # Errors
    /// If there are more than `B`, if one is 2^31 or more, or if the device has no memory left.
    pub fn new(device: &Device, ids: &[u32]) -> Result<Self> {
        let id = |(row, &id): (usize, &u32)| {
            i32::try_from(id).map_err(|_| Error::Token {
                what: "Tokens".to_string(),
                row,
                found: id,
                limit: 1 << 31,
            })
        };
        let signed: Vec<i32> = ids.iter().enumerate().map(id).collect::<Result<_>>()?;
        Ok(Tokens { ids: Tensor::from_slice(device, &signed)?, given: Some(Arc::from(ids)) })
    }

    /// The ids, after all work that was started before.
    ///
    /// # Errors
    /// If the device fails.
    pub fn to_vec(&self) -> Result<Vec<u32>> {
        Ok(self.ids.to_vec()?.into_iter().map(i32::cast_unsigned).collect())
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.ids.rows()
    }

    /// Where they lie.
    pub fn device(&self) -> &Device {
        self.ids.device()
    }
}

impl<const B: usize> Argument for Tokens<B> {
    fn as_arg(&self) -> ArgRef<'_> {
        match self.ids.as_arg() {
            ArgRef::Tensor(mut tensor) => {
                tensor.tokens = self.given.as_deref();
                ArgRef::Tensor(tensor)
            }
            other => other,
        }
    }
}

impl<const B: usize> Output for Tokens<B> {
    fn with_rows(device: &Device, rows: usize) -> Result<Self> {
        Ok(Tokens { ids: Tensor::with_rows(device, rows)?, given: None })
    }

    fn as_output(&mut self) -> OutputRef<'_> {
        self.given = None;
        self.ids.as_output()
    }
}
