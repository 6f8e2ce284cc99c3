//! A back end that only records what reaches it.

use fuseline_core::backend::{
    Backend, BackendError, Binding, Buffer, BufferRef, Call, Executable, Program,
};
use fuseline_runtime::device::Device;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// What reached the back end.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A program for that many rows, with that many launches.
    Load { rows: usize, launches: usize },
    /// A run.
    Run { bucket: usize, rows: usize, scalars: Vec<f32> },
}

/// A device, and what reached it.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    pub fn device() -> (Device, Recorder) {
        let recorder = Recorder::default();
        (Device::from_backend(recorder.clone()), recorder)
    }

    /// The events since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

#[derive(Debug)]
struct Bytes(Mutex<Vec<u8>>, usize);

impl Buffer for Bytes {
    fn bytes(&self) -> usize {
        self.1
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Backend for Recorder {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn name(&self) -> String {
        "the recorder".to_string()
    }

    fn alloc(&self, bytes: usize) -> Result<BufferRef, BackendError> {
        Ok(Arc::new(Bytes(Mutex::new(vec![0; bytes]), bytes)))
    }

    fn write(&self, buffer: &BufferRef, at: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let buffer = buffer.as_any().downcast_ref::<Bytes>().unwrap();
        buffer.0.lock().unwrap()[at..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, buffer: &BufferRef, at: usize, out: &mut [u8]) -> Result<(), BackendError> {
        let buffer = buffer.as_any().downcast_ref::<Bytes>().unwrap();
        out.copy_from_slice(&buffer.0.lock().unwrap()[at..][..out.len()]);
        Ok(())
    }

    fn load(&self, program: &Program) -> Result<Box<dyn Executable>, BackendError> {
        let (rows, launches) = (program.plan.rows(), program.plan.n_launches());
        self.push(Event::Load { rows, launches });
        Ok(Box::new(Recorded { recorder: self.clone(), rows }))
    }
}

#[derive(Debug)]
struct Recorded {
    recorder: Recorder,
    rows: usize,
}

impl Executable for Recorded {
    fn run(&self, call: &Call<'_>) -> Result<(), BackendError> {
        let scalars = call.args.iter().filter_map(|arg| match arg {
            Binding::Scalar(number) => Some(*number),
            _ => None,
        });
        self.recorder.push(Event::Run {
            bucket: self.rows,
            rows: call.rows,
            scalars: scalars.collect(),
        });
        Ok(())
    }
}
