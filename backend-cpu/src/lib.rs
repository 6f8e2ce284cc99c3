//! Fuseline on the CPU: runs a plan's partition with threads and vector code.
//!
//! [`Cpu`] is a [`Backend`]. A loaded program is a list of kernels in launch order, each a list
//! of steps that were worked out at load: one for the template (all products of sibling linears
//! are one step), one for each member before and after it. Values inside a kernel live in pooled
//! `f32` buffers; values between kernels lie where the plan placed them, in their own type.
//!
//! | module | holds |
//! |---|---|
//! | `memory` | buffers |
//! | `exec` | plans as steps, and the steps themselves |
//! | [`dot`] | inner loops over packed weights and caches |

pub mod dot;
mod exec;
mod memory;

use exec::CpuExecutable;
use fuseline_core::backend::{Backend, BackendError, BufferRef, Executable, Program};
use memory::CpuBuffer;
use std::any::Any;
use std::sync::Arc;

/// How messages call the device.
const NAME: &str = "the CPU";

/// The CPU as a device. Work runs on the [rayon](rayon::ThreadPool) pool that the calling thread
/// belongs to, or on the global one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {}

impl Cpu {
    /// The CPU, with the fastest vector instructions that it has.
    pub fn new() -> Cpu {
        Cpu {}
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        NAME.to_string()
    }

    fn alloc(&self, bytes: usize) -> Result<BufferRef, BackendError> {
        Ok(Arc::new(CpuBuffer::new(bytes)?))
    }

    fn write(&self, buffer: &BufferRef, at: usize, bytes: &[u8]) -> Result<(), BackendError> {
        CpuBuffer::of(buffer)?.write(at, bytes)
    }

    fn read(&self, buffer: &BufferRef, at: usize, out: &mut [u8]) -> Result<(), BackendError> {
        CpuBuffer::of(buffer)?.read(at, out)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn load(&self, program: &Program) -> Result<Box<dyn Executable>, BackendError> {
        Ok(Box::new(CpuExecutable::new(&program.plan)?))
    }
}
