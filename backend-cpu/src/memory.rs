//! Buffers: bytes that begin at a cache line, behind a lock.

use crate::NAME;
use fuseline_core::backend::{BackendError, Buffer, BufferRef};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// What a buffer's first byte is aligned to: a cache line, and the widest vectors.
const ALIGN_BYTES: usize = 64;

/// Memory of the CPU. Bytes have no invariant that a panic could break, so the lock's poison is
/// ignored.
pub(crate) struct CpuBuffer {
    bytes: usize,
    storage: RwLock<Storage>,
}

/// Bytes of a vector that is never grown, from its first aligned one on.
pub(crate) struct Storage {
    memory: Vec<u8>,
    range: Range<usize>,
}

impl Storage {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.range.clone()]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.range.clone()]
    }
}

impl CpuBuffer {
    /// Zero-filled memory.
    pub fn new(bytes: usize) -> Result<CpuBuffer, BackendError> {
        let mut memory: Vec<u8> = Vec::new();
        let padded = bytes.saturating_add(ALIGN_BYTES);
        memory.try_reserve_exact(padded).map_err(|_| BackendError::OutOfMemory { bytes })?;
        memory.resize(padded, 0);
        let start = memory.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        let storage = Storage { memory, range: start..start + bytes };
        Ok(CpuBuffer { bytes, storage: RwLock::new(storage) })
    }

    /// The buffer, if it is one of this device.
    pub fn of(buffer: &BufferRef) -> Result<&CpuBuffer, BackendError> {
        let foreign = || BackendError::ForeignBuffer { device: NAME.to_string() };
        buffer.as_any().downcast_ref::<CpuBuffer>().ok_or_else(foreign)
    }

    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let range = self.range(at, bytes.len())?;
        let mut storage = self.storage.write().unwrap_or_else(PoisonError::into_inner);
        storage.bytes_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), BackendError> {
        let range = self.range(at, out.len())?;
        let storage = self.storage.read().unwrap_or_else(PoisonError::into_inner);
        out.copy_from_slice(&storage.bytes()[range]);
        Ok(())
    }

    fn range(&self, at: usize, len: usize) -> Result<Range<usize>, BackendError> {
        match at.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(at..end),
            end => Err(BackendError::Size {
                what: "a copy".to_string(),
                expected_bytes: end.unwrap_or(usize::MAX),
                found_bytes: self.bytes,
            }),
        }
    }

    /// Locks it for reading. If it is being written, waits for the end or, where `waits` is
    /// false, gives nothing.
    pub fn lock(&self, waits: bool) -> Option<RwLockReadGuard<'_, Storage>> {
        if waits {
            return Some(self.storage.read().unwrap_or_else(PoisonError::into_inner));
        }
        match self.storage.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks it for writing, like [`lock`](CpuBuffer::lock).
    pub fn lock_mut(&self, waits: bool) -> Option<RwLockWriteGuard<'_, Storage>> {
        if waits {
            return Some(self.storage.write().unwrap_or_else(PoisonError::into_inner));
        }
        match self.storage.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Buffer for CpuBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for CpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuBuffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
