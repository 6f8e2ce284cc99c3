//! A plan on a GPU: its kernels, and how a call becomes launches.

use super::buffer::CudaBuffer;
use super::device::CudaDevice;
use super::error::{Error, Result};
use super::kernels::{Expected, Kernel, lock};
use super::launch::{Argument, Shape, launch};
use crate::emit::{self, Param, params};
use fuseline_core::backend::{BackendError, Call, Executable, Program, Signature};
use fuseline_core::format::WeightLayout;
use fuseline_core::ir::ValueId;
use fuseline_core::plan::{Place, Plan};
use std::sync::Arc;

/// A loaded plan.
#[derive(Debug)]
pub(crate) struct CudaProgram {
    device: CudaDevice,
    signature: Signature,
    kernels: Vec<Launch>,
}

/// One kernel of the plan, and where its arguments come from.
#[derive(Debug)]
struct Launch {
    name: String,
    kernel: Arc<Kernel>,
    shape: Shape,
    sources: Vec<Source>,
}

/// Where an argument comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The buffer of this handle, from a byte on.
    Buffer { handle: usize, at: usize },
    /// The scalar of this argument.
    Scalar(usize),
    /// The rows of the call.
    Rows,
}

impl CudaProgram {
    pub fn new(device: CudaDevice, program: &Program) -> Result<CudaProgram> {
        let plan = &*program.plan;
        let generated;
        let source = match program.cuda {
            "" => {
                generated = emit::source(std::slice::from_ref(plan));
                generated.as_str()
            }
            cuda => cuda,
        };
        let signature =
            Signature::new(plan.graph(), plan.scratch_bytes(), plan.rows(), WeightLayout::Tiles);
        let expected: Vec<Expected> = plan
            .kernels()
            .iter()
            .map(|kernel| Expected {
                name: kernel.name.clone(),
                params: params(plan, kernel),
                n_threads: kernel.launch.n_threads,
                shared_bytes: kernel.launch.shared_bytes,
            })
            .collect();
        let loaded = device.0.kernels.load(&emit::parts(source), &expected)?;
        let mut kernels = Vec::new();
        for ((kernel, expected), planned) in loaded.into_iter().zip(expected).zip(plan.kernels()) {
            let narrow = |what: &str, n: usize| {
                u32::try_from(n).map_err(|_| Error::Kernel {
                    kernel: planned.name.clone(),
                    expected: format!("at most 2^32 {what}"),
                    found: n.to_string(),
                })
            };
            let shape = Shape {
                n_blocks: narrow("blocks", planned.launch.n_blocks)?,
                n_threads: narrow("threads", planned.launch.n_threads)?,
                shared_bytes: narrow("bytes of shared memory", planned.launch.shared_bytes)?,
                overlaps: device.0.overlap_launches && device.0.kernels.can_overlap(),
            };
            let sources =
                expected.params.iter().map(|param| source_of(plan, &signature, *param)).collect();
            kernels.push(Launch { name: expected.name, kernel, shape, sources });
        }
        Ok(CudaProgram { device, signature, kernels })
    }
}

/// What every buffer's address is a multiple of.
const ALIGN_BYTES: u64 = 16;

fn source_of(plan: &Plan, signature: &Signature, param: Param) -> Source {
    let (firsts, first_output) = signature.handles();
    let graph = plan.graph();
    let arg = |id: ValueId| graph.args.iter().position(|arg| arg.value == id).unwrap_or(0);
    let part = |id: ValueId, part: usize| Source::Buffer { handle: firsts[arg(id)] + part, at: 0 };
    match param {
        Param::Rows => Source::Rows,
        Param::Scalar(id) => Source::Scalar(arg(id)),
        Param::Codes(id) | Param::Positions(id) | Param::Keys(id) => part(id, 0),
        Param::Scales(id) | Param::Sequences(id) | Param::Values(id) => part(id, 1),
        Param::Offsets(id) => part(id, 2),
        Param::Elements(id) | Param::Result(id) => match plan.place(id) {
            // The last handle is the scratch memory's.
            Place::Scratch(at) => Source::Buffer { handle: first_output + graph.outputs.len(), at },
            Place::Output(n) => Source::Buffer { handle: first_output + n, at: 0 },
            Place::None | Place::Arg | Place::Cache(_) => part(id, 0),
        },
    }
}

impl Executable for CudaProgram {
    fn run(&self, call: &Call<'_>) -> std::result::Result<(), BackendError> {
        let bound = self.signature.bind(call)?;
        let device = &self.device.0;
        let mut pointers = Vec::with_capacity(bound.uses.len());
        for place in &bound.uses {
            let pointer = CudaBuffer::of(place.buffer, device)?.pointer();
            // Kernels load sixteen bytes at once. What the device allocates begins at a multiple of
            // 256, but a view of others' memory may begin anywhere.
            if place.bytes > 0 && !pointer.is_multiple_of(ALIGN_BYTES) {
                let message = format!(
                    "{} begins at an address that is no multiple of {ALIGN_BYTES} bytes",
                    place.what
                );
                return Err(BackendError::Device { message });
            }
            pointers.push(pointer);
        }
        if bound.rows == 0 {
            return Ok(());
        }
        device.bind()?;
        // One call's kernels stand together in the stream, whatever other threads do.
        let mut recording = lock(&device.recording);
        for launched in &self.kernels {
            let mut arguments: Vec<Argument> = launched
                .sources
                .iter()
                .map(|source| match *source {
                    Source::Buffer { handle, at } => {
                        Argument::pointer(pointers[handle] + at as u64)
                    }
                    Source::Scalar(index) => Argument::float(bound.scalars[index]),
                    Source::Rows => Argument::int(bound.rows as i32),
                })
                .collect();
            let stream = device.stream.cu_stream();
            // SAFETY: parameters were compared with the compiled kernel when it was loaded; sizes
            // of buffers were checked against the plan's shapes above; the context is current.
            unsafe {
                launch(&launched.kernel, &launched.name, launched.shape, stream, &mut arguments)
            }?;
        }
        if let Some(recording) = &mut *recording {
            recording.keep(bound.uses.iter().map(|place| place.buffer.clone()));
            recording.keep_kernels(self.kernels.iter().map(|launched| launched.kernel.clone()));
        }
        Ok(())
    }
}
