//! Key-value caches, and the places of a call's rows in them.

use crate::args::{ArgRef, Argument};
use crate::device::Device;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::tensor::checked_elements;
use fuseline_core::backend::BufferRef;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Zeros go to a device in pieces of this size, so that clearing gigabytes takes none on the host.
const ZEROS_BYTES: usize = 1 << 20;

/// Keys and values of `B` sequences, `KV` heads of `HD` elements, with room for `T` positions.
///
/// What a sequence holds is said by the positions of each call: a row at position p sees what was
/// appended at positions 0 to p. To begin a sequence anew, begin at position 0.
#[derive(Debug)]
pub struct KvCache<T, const B: usize, const KV: usize, const HD: usize, const CAPACITY: usize> {
    device: Device,
    keys: BufferRef,
    values: BufferRef,
    element: PhantomData<T>,
}

impl<T: Element, const B: usize, const KV: usize, const HD: usize, const CAPACITY: usize>
    KvCache<T, B, KV, HD, CAPACITY>
{
    /// An empty cache.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn new(device: &Device) -> Result<Self> {
        let elements = checked_elements("cache", &[B, KV, HD, CAPACITY])?;
        let bytes = elements * T::DTYPE.bytes();
        let keys = device.backend().alloc(bytes)?;
        let values = device.backend().alloc(bytes)?;
        Ok(KvCache { device: device.clone(), keys, values, element: PhantomData })
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes every key and value zero. Programs need it only to forget: a sequence that begins
    /// anew at position 0 sees nothing of what was there.
    ///
    /// # Errors
    /// If the device fails.
    pub fn clear(&mut self) -> Result<()> {
        for buffer in [&self.keys, &self.values] {
            let zeros = vec![0; buffer.bytes().min(ZEROS_BYTES)];
            for at in (0..buffer.bytes()).step_by(ZEROS_BYTES) {
                let piece = &zeros[..zeros.len().min(buffer.bytes() - at)];
                self.device.backend().write(buffer, at, piece)?;
            }
        }
        Ok(())
    }

    /// Positions of a sequence.
    pub fn capacity(&self) -> usize {
        CAPACITY
    }

    /// All keys and all values, `[B, KV, CAPACITY, HD]` each.
    ///
    /// # Errors
    /// If the device fails.
    pub fn to_vecs(&self) -> Result<(Vec<T>, Vec<T>)> {
        let read = |buffer: &BufferRef| -> Result<Vec<T>> {
            let mut elements = vec![T::zeroed(); B * KV * HD * CAPACITY];
            self.device.backend().read(buffer, 0, bytemuck::cast_slice_mut(&mut elements))?;
            Ok(elements)
        };
        Ok((read(&self.keys)?, read(&self.values)?))
    }
}

impl<T: Element, const B: usize, const KV: usize, const HD: usize, const CAPACITY: usize> Argument
    for KvCache<T, B, KV, HD, CAPACITY>
{
    fn as_arg(&self) -> ArgRef<'_> {
        ArgRef::Cache {
            device: &self.device,
            planes: [&self.keys, &self.values],
            dtype: T::DTYPE,
            shape: [B, KV, HD, CAPACITY],
        }
    }
}

/// The position of each row of a call, and the sequence that the row belongs to: at most `B`
/// rows. A clone is the same memory.
#[derive(Clone, Debug)]
pub struct Index<const B: usize> {
    device: Device,
    positions: BufferRef,
    sequences: BufferRef,
    places: Arc<Mutex<Places>>,
}

/// What is in an index's memory, and what may be.
#[derive(Debug)]
pub struct Places {
    /// `(position, sequence)` of each row.
    pub rows: Vec<(usize, usize)>,
    /// Positions and sequences of the smallest caches that it was used with: recorded calls do not
    /// check again.
    pub limits: (usize, usize),
}

impl<const B: usize> Index<B> {
    /// Rows at `(position, sequence)`.
    ///
    /// # Errors
    /// If there are more than `B` rows, or a number does not fit into 32 bits.
    pub fn new(device: &Device, places: &[(usize, usize)]) -> Result<Self> {
        Self::check_rows(places.len())?;
        let [positions, sequences] = planes(places)?;
        let rows = places.to_vec();
        Ok(Index {
            device: device.clone(),
            positions: device.upload(bytemuck::cast_slice(&positions))?,
            sequences: device.upload(bytemuck::cast_slice(&sequences))?,
            places: Arc::new(Mutex::new(Places { rows, limits: (usize::MAX, usize::MAX) })),
        })
    }

    /// Puts other places into its memory, where recorded calls find them: as many rows as before.
    ///
    /// # Errors
    /// If there are more or fewer rows, two rows have one place, or a place is none of a cache
    /// that the index was used with.
    pub fn write(&mut self, places: &[(usize, usize)]) -> Result<()> {
        let mut own = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() != own.rows.len() {
            return Err(Error::Rows {
                name: "index".to_string(),
                expected: own.rows.len().to_string(),
                found: places.len(),
            });
        }
        let cache = || "a cache that the index was used with".to_string();
        let (capacity, n_sequences) = own.limits;
        for &(position, sequence) in places {
            if sequence >= n_sequences {
                return Err(Error::Sequence { cache: cache(), sequence, n_sequences });
            }
            if position >= capacity {
                return Err(Error::Position { cache: cache(), sequence, position, capacity });
            }
        }
        check_distinct(places)?;
        let [positions, sequences] = planes(places)?;
        let backend = self.device.backend();
        backend.write(&self.positions, 0, bytemuck::cast_slice(&positions))?;
        backend.write(&self.sequences, 0, bytemuck::cast_slice(&sequences))?;
        own.rows = places.to_vec();
        Ok(())
    }

    /// One row a sequence: row i is the next token of sequence i, at `positions[i]`.
    ///
    /// # Errors
    /// Like [`Index::new`].
    pub fn decode(device: &Device, positions: &[usize]) -> Result<Self> {
        let places: Vec<(usize, usize)> =
            positions.iter().copied().enumerate().map(|(row, position)| (position, row)).collect();
        Index::new(device, &places)
    }

    /// Consecutive positions of one sequence: a prompt, or a part of it.
    ///
    /// # Errors
    /// Like [`Index::new`].
    pub fn prompt(device: &Device, sequence: usize, positions: Range<usize>) -> Result<Self> {
        // Before the rows are made: a range may be longer than memory.
        Self::check_rows(positions.len())?;
        let places: Vec<(usize, usize)> = positions.map(|position| (position, sequence)).collect();
        Index::new(device, &places)
    }

    fn check_rows(found: usize) -> Result<()> {
        if found <= B {
            return Ok(());
        }
        Err(Error::Rows { name: "index".to_string(), expected: format!("at most {B}"), found })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).rows.len()
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl<const B: usize> Argument for Index<B> {
    fn as_arg(&self) -> ArgRef<'_> {
        ArgRef::Index {
            device: &self.device,
            planes: [&self.positions, &self.sequences],
            places: &self.places,
        }
    }
}

/// Positions and sequences as they lie in memory.
fn planes(places: &[(usize, usize)]) -> Result<[Vec<i32>; 2]> {
    let plane = |what, numbers: &mut dyn Iterator<Item = usize>| -> Result<Vec<i32>> {
        let fit = |value| i32::try_from(value).map_err(|_| Error::Index { what, value });
        numbers.map(fit).collect()
    };
    Ok([
        plane("position", &mut places.iter().map(|place| place.0))?,
        plane("sequence", &mut places.iter().map(|place| place.1))?,
    ])
}

/// Two rows of one place would overwrite each other.
pub(crate) fn check_distinct(places: &[(usize, usize)]) -> Result<()> {
    let mut sorted: Vec<(usize, usize, usize)> =
        places.iter().enumerate().map(|(row, place)| (place.1, place.0, row)).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|w| (w[0].0, w[0].1) == (w[1].0, w[1].1)) {
        None => Ok(()),
        Some(twice) => Err(Error::SamePlace {
            first: twice[0].2,
            second: twice[1].2,
            position: twice[0].1,
            sequence: twice[0].0,
        }),
    }
}
