//! Calls recorded into a CUDA graph, which replays them with one launch.

use super::device::Inner;
use super::error::{Error, Result};
use super::kernels::{Kernel, lock};
use cudarc::driver::CudaGraph;
use cudarc::driver::sys;
use fuseline_core::backend::{BackendError, BufferRef, Recorded};
use std::fmt;
use std::sync::{Arc, Mutex};

/// What a graph that is being recorded needs for as long as it is replayed.
#[derive(Default)]
pub(crate) struct Recording {
    buffers: Vec<BufferRef>,
    kernels: Vec<Arc<Kernel>>,
}

impl Recording {
    /// Begins to record the device's stream: what is put into it from now on does not run.
    pub fn begin(device: &Arc<Inner>) -> Result<()> {
        let mut recording = lock(&device.recording);
        if recording.is_some() {
            return Err(Error::Driver {
                what: "cannot begin to record".to_string(),
                reason: "a recording was begun before and has not ended".to_string(),
            });
        }
        // Other threads' allocations and copies are their own matter.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let begun = device.stream.begin_capture(mode);
        begun.map_err(Error::driver("cannot begin to record"))?;
        *recording = Some(Recording::default());
        Ok(())
    }

    pub fn keep(&mut self, buffers: impl Iterator<Item = BufferRef>) {
        for buffer in buffers {
            if !self.buffers.iter().any(|known| Arc::ptr_eq(known, &buffer)) {
                self.buffers.push(buffer);
            }
        }
    }

    pub fn keep_kernels(&mut self, kernels: impl Iterator<Item = Arc<Kernel>>) {
        self.kernels.extend(kernels);
    }

    pub fn end(self, device: &Arc<Inner>) -> Result<Graph> {
        let flags = sys::CUgraphInstantiate_flags(0);
        let graph = device.stream.end_capture(flags);
        let graph = graph.map_err(Error::driver("cannot make a graph of what was recorded"))?;
        let Some(graph) = graph else {
            return Err(Error::Driver {
                what: "cannot make a graph of what was recorded".to_string(),
                reason: "something in it cannot be recorded".to_string(),
            });
        };
        let mut n_nodes = 0;
        // SAFETY: the graph is there; without an array the driver only counts.
        let counted =
            unsafe { sys::cuGraphGetNodes(graph.cu_graph(), std::ptr::null_mut(), &mut n_nodes) };
        counted.result().map_err(Error::driver("cannot count the graph's nodes"))?;
        Ok(Graph { graph: Mutex::new(Handle(graph)), n_nodes, device: device.clone(), kept: self })
    }
}

/// A recorded graph.
pub(crate) struct Graph {
    graph: Mutex<Handle>,
    n_nodes: usize,
    device: Arc<Inner>,
    kept: Recording,
}

struct Handle(CudaGraph);

// SAFETY: a graph may be launched and destroyed by any thread, one at a time: it is behind a lock.
unsafe impl Send for Handle {}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, buffers) = (self.n_nodes, self.kept.buffers.len());
        write!(f, "Graph({nodes} nodes on {buffers} buffers)")
    }
}

impl Recorded for Graph {
    fn replay(&self) -> std::result::Result<(), BackendError> {
        // Not between the kernels of a call.
        let _recording = lock(&self.device.recording);
        let launched = lock(&self.graph).0.launch();
        Ok(launched.map_err(Error::driver("cannot replay the graph"))?)
    }

    fn n_launches(&self) -> usize {
        self.n_nodes
    }
}
