//! The emulator as a device: whole programs run on it, every access of every kernel checked. But
//! memory of a device is zeros from the start, so a place of a cache that was never appended to
//! counts as written here.

use super::call::{appends, explained, launch_shape};
use super::compiler::{Emulator, Options};
use super::error::{Error, Result};
use super::fault::Fault;
use super::process::{Argument, BufferId, Process};
use crate::emit::{self, Param, params};
use fuseline_core::backend::{
    Backend, BackendError, Bound, Buffer, BufferRef, Call, Count, Executable, Program, Signature,
};
use fuseline_core::format::WeightLayout;
use fuseline_core::ir::ValueId;
use fuseline_core::plan::{Kernel, Place, Plan};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How messages call the device.
const NAME: &str = "the emulated GPU";
/// Elements of buffers may have as few bytes.
const GRANULE_BYTES: usize = 2;

/// A device whose kernels are the generated CUDA, run on the CPU. Calls wait for each other. A
/// kernel's fault (of a token id that the table has no row for, too) is the call's error, and the
/// device's last act.
#[derive(Clone, Debug)]
pub struct EmulatedDevice(Arc<Inner>);

struct Inner {
    emulator: Emulator,
    state: Mutex<State>,
}

struct State {
    process: Process,
    /// Sources that were compiled before, and their numbers.
    libraries: Vec<(String, usize)>,
}

impl EmulatedDevice {
    /// Compiles and starts the emulator.
    ///
    /// # Errors
    /// If there is no C++ compiler.
    pub fn new(options: Options) -> Result<EmulatedDevice> {
        let emulator = Emulator::new(options)?;
        let state = State { process: emulator.start()?, libraries: Vec::new() };
        Ok(EmulatedDevice(Arc::new(Inner { emulator, state: Mutex::new(state) })))
    }

    fn own<'a>(&self, buffer: &'a BufferRef) -> std::result::Result<&'a Memory, BackendError> {
        let own = buffer.as_any().downcast_ref::<Memory>();
        own.filter(|memory| Arc::ptr_eq(&memory.device, &self.0))
            .ok_or_else(|| BackendError::ForeignBuffer { device: NAME.to_string() })
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Commands are written by code that does not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("emulator", &self.emulator).finish_non_exhaustive()
    }
}

/// Memory of the process.
struct Memory {
    device: Arc<Inner>,
    id: BufferId,
    bytes: usize,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("id", &self.id).field("bytes", &self.bytes).finish()
    }
}

impl Buffer for Memory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // If the process is over, so is its memory.
        let _ = self.device.state().process.free(self.id);
    }
}

impl Memory {
    fn check(&self, at: usize, bytes: usize) -> std::result::Result<(), BackendError> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            end => Err(BackendError::Size {
                what: "a copy".to_string(),
                expected_bytes: end.unwrap_or(usize::MAX),
                found_bytes: self.bytes,
            }),
        }
    }
}

impl Backend for EmulatedDevice {
    fn name(&self) -> String {
        NAME.to_string()
    }

    fn weight_layout(&self) -> WeightLayout {
        WeightLayout::Tiles
    }

    fn alloc(&self, bytes: usize) -> std::result::Result<BufferRef, BackendError> {
        let id = self.0.state().process.zeros(bytes, GRANULE_BYTES)?;
        Ok(Arc::new(Memory { device: self.0.clone(), id, bytes }))
    }

    fn write(
        &self,
        buffer: &BufferRef,
        at: usize,
        bytes: &[u8],
    ) -> std::result::Result<(), BackendError> {
        let memory = self.own(buffer)?;
        memory.check(at, bytes.len())?;
        Ok(self.0.state().process.write(memory.id, at, bytes)?)
    }

    fn read(
        &self,
        buffer: &BufferRef,
        at: usize,
        out: &mut [u8],
    ) -> std::result::Result<(), BackendError> {
        let memory = self.own(buffer)?;
        memory.check(at, out.len())?;
        Ok(self.0.state().process.read(memory.id, at, out)?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn load(&self, program: &Program) -> std::result::Result<Box<dyn Executable>, BackendError> {
        let plan = program.plan.clone();
        let source = match program.cuda {
            "" => emit::source(std::slice::from_ref(&*plan)),
            cuda => cuda.to_string(),
        };
        let mut state = self.0.state();
        let known = state.libraries.iter().find(|(known, _)| *known == source);
        let library = match known {
            Some(&(_, library)) => library,
            None => {
                let compiled = self.0.emulator.compile(&[&source])?;
                let library = state.process.open(&compiled)?;
                state.libraries.push((source, library));
                library
            }
        };
        let signature =
            Signature::new(plan.graph(), plan.scratch_bytes(), plan.rows(), WeightLayout::Tiles);
        Ok(Box::new(Loaded { device: self.clone(), plan, signature, library }))
    }
}

#[derive(Debug)]
struct Loaded {
    device: EmulatedDevice,
    plan: Arc<Plan>,
    signature: Signature,
    library: usize,
}

impl Executable for Loaded {
    fn run(&self, call: &Call<'_>) -> std::result::Result<(), BackendError> {
        let bound = self.signature.bind(call)?;
        let mut buffers = Vec::new();
        for place in &bound.uses {
            buffers.push((self.device.own(place.buffer)?.id, place.bytes));
        }
        if bound.rows == 0 {
            return Ok(());
        }
        let mut state = self.device.0.state();
        for kernel in self.plan.kernels() {
            self.launch(&mut state.process, &bound, &buffers, kernel)?;
        }
        Ok(())
    }
}

impl Loaded {
    fn launch(
        &self,
        process: &mut Process,
        bound: &Bound<'_>,
        buffers: &[(BufferId, usize)],
        kernel: &Kernel,
    ) -> Result<()> {
        let (plan, graph) = (&*self.plan, self.plan.graph());
        let (firsts, first_output) = self.signature.handles();
        let arg = |id: ValueId| graph.args.iter().position(|arg| arg.value == id).unwrap_or(0);
        let whole = |handle: usize, writable: bool| {
            let (buffer, bytes) = buffers[handle];
            Argument::Memory { buffer, at: 0, bytes, writable }
        };
        let live_bytes = |id: ValueId| {
            Count::of(graph[id].ty.shape()).at(bound.rows) * graph[id].ty.dtype().bytes()
        };
        let list = params(plan, kernel);
        let (mut arguments, mut results) = (Vec::new(), Vec::new());
        for &param in &list {
            arguments.push(match param {
                Param::Rows => Argument::Int(bound.rows as i32),
                Param::Scalar(id) => Argument::Float(bound.scalars[arg(id)]),
                Param::Codes(id) => whole(firsts[arg(id)], false),
                Param::Scales(id) => whole(firsts[arg(id)] + 1, false),
                Param::Offsets(id) => whole(firsts[arg(id)] + 2, false),
                Param::Positions(id) => whole(firsts[arg(id)], false),
                Param::Sequences(id) => whole(firsts[arg(id)] + 1, false),
                Param::Keys(id) => whole(firsts[arg(id)], appends(graph, kernel, id).is_some()),
                Param::Values(id) => {
                    whole(firsts[arg(id)] + 1, appends(graph, kernel, id).is_some())
                }
                Param::Elements(id) | Param::Result(id) => {
                    let (handle, at) = match plan.place(id) {
                        Place::Scratch(at) => (buffers.len() - 1, at),
                        Place::Output(n) => (first_output + n, 0),
                        Place::None | Place::Arg | Place::Cache(_) => (firsts[arg(id)], 0),
                    };
                    let (buffer, bytes) = (buffers[handle].0, live_bytes(id));
                    let writable = matches!(param, Param::Result(_));
                    if writable {
                        // All of it is to be written, whatever was there before.
                        process.forget(buffer, at, bytes)?;
                        results.push((id, buffer, at, bytes));
                    }
                    Argument::Memory { buffer, at, bytes, writable }
                }
            });
        }
        let shape = launch_shape(kernel);
        let done = process.launch(self.library, &kernel.name, shape, &arguments);
        done.map_err(|error| explained(error, plan, kernel, &list))?;
        for (id, buffer, at, bytes) in results {
            if let Some(byte) = process.first_unwritten(buffer, at, bytes)? {
                let element = (byte - at) / graph[id].ty.dtype().bytes();
                let fault = Fault::unwritten(&kernel.name, graph.line(id), element);
                return Err(Error::Fault(Box::new(fault)));
            }
        }
        Ok(())
    }
}
