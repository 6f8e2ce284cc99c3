//! A call's buffers, all of them locked while the program runs. Kinds and sizes were checked by
//! [`Signature::bind`](fuseline_core::backend::Signature::bind).

use super::device_error;
use super::gather::token_row;
use super::program::Program;
use crate::memory::{CpuBuffer, Storage};
use fuseline_core::backend::{BackendError, Bound, Buffer, Count, Use};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// What else is checked before anything is written.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// Rows have places in a cache.
    Places { index: usize, rows: Count, sequences: usize, capacity: usize },
    /// Tokens have rows in a table.
    Tokens { handle: usize, count: Count, n_rows: usize },
}

/// Locks every buffer, each once and in the order of addresses, so that calls that share
/// buffers wait for each other and never both.
///
/// A thread of a rayon pool does not wait: while it waits for other threads it may have taken
/// up this call in the middle of another one, which holds the buffer until this one ends.
pub(super) fn lock<'a>(bound: &Bound<'a>) -> Result<Locked<'a>, BackendError> {
    let of = |place: &Use<'a>| Ok((CpuBuffer::of(place.buffer)?, *place));
    let uses = bound.uses.iter().map(of).collect::<Result<Vec<_>, BackendError>>()?;
    let address = |handle: usize| std::ptr::from_ref(uses[handle].0) as usize;
    let mut order: Vec<usize> = (0..uses.len()).collect();
    order.sort_by_key(|&handle| address(handle));
    let waits = rayon::current_thread_index().is_none();
    let mut guards: Vec<Guard<'a>> = Vec::with_capacity(order.len());
    let mut places = vec![0; order.len()];
    let mut last = None;
    for handle in order {
        if last != Some(address(handle)) {
            last = Some(address(handle));
            let (buffer, Use { writes, what, .. }) = uses[handle];
            let guard = if writes && buffer.bytes() > 0 {
                buffer.lock_mut(waits).map(Guard::Write)
            } else {
                buffer.lock(waits).map(Guard::Read)
            };
            guards.push(
                guard.ok_or_else(|| device_error(format!("{} is in use by another call", what)))?,
            );
        }
        places[handle] = guards.len() - 1;
    }
    Ok(Locked { guards, places })
}

/// The locks of a call.
pub(super) struct Locked<'a> {
    guards: Vec<Guard<'a>>,
    /// The guard of each handle.
    places: Vec<usize>,
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Storage>),
    Write(RwLockWriteGuard<'a, Storage>),
}

impl Locked<'_> {
    /// The bytes behind the locks, which other threads may work on.
    pub fn memory(&mut self) -> Memory<'_> {
        let bytes = self.guards.iter_mut().map(|guard| match guard {
            Guard::Read(storage) => Bytes::Read(storage.bytes()),
            Guard::Write(storage) => Bytes::Write(storage.bytes_mut()),
        });
        Memory { bytes: bytes.collect(), places: &self.places }
    }
}

/// The buffers of a call.
pub(super) struct Memory<'a> {
    bytes: Vec<Bytes<'a>>,
    /// Which of them each handle is.
    places: &'a [usize],
}

enum Bytes<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

impl<'a> Memory<'a> {
    /// The bytes of a buffer, which may be longer than its use; none while it is taken.
    pub fn bytes(&self, handle: usize) -> &[u8] {
        match &self.bytes[self.places[handle]] {
            Bytes::Read(bytes) => bytes,
            Bytes::Write(bytes) => bytes,
        }
    }

    /// Takes a buffer that is written, so that others can be read meanwhile; none of a buffer
    /// that is only read.
    pub fn take(&mut self, handle: usize) -> &'a mut [u8] {
        match &mut self.bytes[self.places[handle]] {
            Bytes::Read(_) => &mut [],
            Bytes::Write(bytes) => std::mem::take(bytes),
        }
    }

    /// Puts it back.
    pub fn put(&mut self, handle: usize, bytes: &'a mut [u8]) {
        if let place @ Bytes::Write(_) = &mut self.bytes[self.places[handle]] {
            *place = Bytes::Write(bytes);
        }
    }

    /// Checks what shows only in the buffers: positions, sequences, tokens.
    pub fn check(&self, program: &Program, rows: usize) -> Result<(), BackendError> {
        for check in &program.checks {
            match *check {
                Check::Places { index, rows: count, sequences, capacity } => {
                    let n = count.at(rows);
                    let integers =
                        |handle| super::frame::integers(self.bytes(handle)).iter().take(n);
                    let within = |name: &str, found: i32, limit: usize, row: usize| {
                        if usize::try_from(found).is_ok_and(|found| found < limit) {
                            return Ok(());
                        }
                        Err(device_error(format!(
                            "row {row} is at {name} {found}, expected 0 or more and less than {limit}"
                        )))
                    };
                    for (row, &position) in integers(index).enumerate() {
                        within("position", position, capacity, row)?;
                    }
                    for (row, &sequence) in integers(index + 1).enumerate() {
                        within("sequence", sequence, sequences, row)?;
                    }
                }
                Check::Tokens { handle, count, n_rows } => {
                    let tokens = super::frame::integers(self.bytes(handle));
                    for &token in tokens.iter().take(count.at(rows)) {
                        token_row(token, n_rows)?;
                    }
                }
            }
        }
        Ok(())
    }
}
