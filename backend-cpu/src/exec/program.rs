//! A plan as lists of steps: everything about a kernel that does not depend on a call is worked
//! out here, once.

use super::attend::AttendStep;
use super::bind::Check;
use super::device_error;
use super::frame::{Frame, Operand, Source, Target};
use super::gather::{DequantizeStep, GatherStep};
use super::linear::LinearStep;
use super::pointwise::{CastStep, PointwiseStep};
use super::rope::RopeStep;
use super::rows::RowStep;
use super::store::{Append, Store};
use super::views::{SliceStep, WidenStep};
use crate::dot::{DotError, Planes};
use fuseline_core::backend::{BackendError, Count, Signature};
use fuseline_core::dtype::DType;
use fuseline_core::format::WeightLayout;
use fuseline_core::ir::{Graph, Op, Type, ValueId};
use fuseline_core::plan::{Kernel, Place, Plan};

/// A plan, ready to run.
#[derive(Debug)]
pub(super) struct Program {
    pub signature: Signature,
    pub checks: Vec<Check>,
    pub kernels: Vec<KernelSteps>,
    /// Zeros for the arguments, then the graph's constants.
    pub numbers: Vec<f32>,
    pub n_slots: usize,
    /// Whether some step may want more than one thread.
    pub parallel: bool,
}

/// One kernel: steps, and then what they leave in memory.
#[derive(Debug)]
pub(super) struct KernelSteps {
    steps: Vec<Step>,
    stores: Vec<Store>,
    appends: Vec<Append>,
}

#[derive(Debug)]
enum Step {
    Widen(WidenStep),
    Slice(SliceStep),
    Pointwise(PointwiseStep),
    Cast(CastStep),
    Row(RowStep),
    Rope(RopeStep),
    Linear(LinearStep),
    Attend(AttendStep),
    Gather(GatherStep),
    Dequantize(DequantizeStep),
}

impl KernelSteps {
    pub fn run(&self, frame: &mut Frame<'_>) -> Result<(), BackendError> {
        for step in &self.steps {
            match step {
                Step::Widen(step) => step.run(frame),
                Step::Slice(step) => step.run(frame),
                Step::Pointwise(step) => step.run(frame),
                Step::Cast(step) => step.run(frame),
                Step::Row(step) => step.run(frame),
                Step::Rope(step) => step.run(frame),
                Step::Linear(step) => step.run(frame)?,
                Step::Attend(step) => step.run(frame)?,
                Step::Gather(step) => step.run(frame)?,
                Step::Dequantize(step) => step.run(frame)?,
            }
        }
        self.stores.iter().for_each(|store| store.run(frame));
        self.appends.iter().for_each(|append| append.run(frame));
        Ok(())
    }
}

impl Program {
    /// # Errors
    /// If a weight's format cannot be decoded.
    pub fn new(plan: &Plan) -> Result<Program, BackendError> {
        let graph = plan.graph();
        check_formats(graph)?;
        let signature =
            Signature::new(graph, plan.scratch_bytes(), plan.rows(), WeightLayout::Rows);
        let mut builder = Builder::new(plan, &signature);
        let kernels: Vec<KernelSteps> = plan
            .kernels()
            .iter()
            .map(|kernel| builder.kernel(kernel))
            .collect::<Option<_>>()
            .ok_or_else(|| {
                device_error("the plan has an operand that it should not".to_string())
            })?;
        let checks = builder.checks();
        let parallel = kernels.iter().flat_map(|kernel| &kernel.steps);
        let parallel = parallel.into_iter().any(|s| matches!(s, Step::Linear(_) | Step::Attend(_)));
        let Builder { numbers, n_slots, .. } = builder;
        Ok(Program { signature, checks, kernels, numbers, n_slots, parallel })
    }
}

/// Weights that no call could bring, found at load.
fn check_formats(graph: &Graph) -> Result<(), BackendError> {
    for arg in &graph.args {
        if let Type::Weight { format, k, .. } = &graph[arg.value].ty {
            let error = |error: DotError| device_error(format!("`{}`: {error}", arg.name));
            Planes::new(format, 0, k.size, &[], &[], &[]).map_err(error)?;
        }
    }
    Ok(())
}

/// What steps are made with.
pub(super) struct Builder<'p> {
    plan: &'p Plan,
    /// The first handle of each argument.
    arg_handles: Vec<usize>,
    /// The handle of the first result; the scratch memory's comes after the last.
    first_output: usize,
    numbers: Vec<f32>,
    n_slots: usize,
    /// Where this kernel has its values, as far as it has read or computed them.
    sources: Vec<Option<Source>>,
    next_slot: usize,
    steps: Vec<Step>,
}

impl<'p> Builder<'p> {
    fn new(plan: &'p Plan, signature: &Signature) -> Builder<'p> {
        let (arg_handles, first_output) = signature.handles();
        let numbers = vec![0.0; plan.graph().args.len()];
        Builder {
            plan,
            arg_handles,
            first_output,
            numbers,
            n_slots: 0,
            sources: Vec::new(),
            next_slot: 0,
            steps: Vec::new(),
        }
    }

    pub fn graph(&self) -> &'p Graph {
        self.plan.graph()
    }

    /// The first handle of the argument that a value is.
    pub fn arg_handle(&self, id: ValueId) -> Option<usize> {
        self.graph().args.iter().position(|arg| arg.value == id).map(|at| self.arg_handles[at])
    }

    /// A slot for the value that a step computes.
    pub fn target(&mut self, id: ValueId) -> Target {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.n_slots = self.n_slots.max(self.next_slot);
        self.sources[id.index()] = Some(Source::Slot(slot));
        Target { slot, count: Count::of(self.graph()[id].ty.shape()) }
    }

    /// Operand `place` of an operation.
    pub fn input(&mut self, id: ValueId, place: usize) -> Operand {
        self.operand(self.graph()[id].inputs[place])
    }

    /// A value to be read. What this kernel does not compute is a view, or lies in memory.
    pub fn operand(&mut self, id: ValueId) -> Operand {
        let source = match self.sources[id.index()] {
            Some(source) => source,
            None => self.find(id),
        };
        self.sources[id.index()] = Some(source);
        Operand { source, count: Count::of(self.graph()[id].ty.shape()) }
    }

    fn find(&mut self, id: ValueId) -> Source {
        let graph = self.graph();
        let dtype = graph[id].ty.dtype();
        match (self.plan.place(id), &graph[id].op) {
            (Place::Arg, _) => {
                let arg = graph.args.iter().position(|arg| arg.value == id).unwrap_or(0);
                if graph[id].ty.shape().is_empty() && dtype.is_float() {
                    Source::Number(arg)
                } else {
                    self.memory(id, self.arg_handles[arg], 0)
                }
            }
            (Place::Output(index), _) => self.memory(id, self.first_output + index, 0),
            (Place::Scratch(at), _) => self.memory(id, self.scratch(), at),
            (Place::None | Place::Cache(_), Op::Const(number)) => {
                self.numbers.push(*number);
                Source::Number(self.numbers.len() - 1)
            }
            (Place::None | Place::Cache(_), _) => self.view(id),
        }
    }

    fn scratch(&self) -> usize {
        self.first_output + self.graph().outputs.len()
    }

    /// A value in memory, widened to a slot if its type is narrow.
    fn memory(&mut self, id: ValueId, handle: usize, at: usize) -> Source {
        let dtype = self.graph()[id].ty.dtype();
        if dtype.bytes() == 4 {
            return Source::Memory { handle, at };
        }
        let target = self.target(id);
        self.steps.push(Step::Widen(WidenStep { handle, at, dtype, target }));
        Source::Slot(target.slot)
    }

    /// A view: other shapes are the same data, parts of rows are taken out.
    fn view(&mut self, id: ValueId) -> Source {
        let graph = self.graph();
        let x = self.input(id, 0);
        let Op::Slice { start, len } = &graph[id].op else { return x.source };
        let width = graph[graph[id].inputs[0]].ty.shape().last().map_or(1, |dim| dim.size);
        let target = self.target(id);
        let slice = SliceStep { x, width, start: *start, len: len.size, target };
        self.steps.push(Step::Slice(slice));
        Source::Slot(target.slot)
    }

    /// The steps of a kernel; none if an operand is of a kind that no verified graph has there.
    fn kernel(&mut self, kernel: &Kernel) -> Option<KernelSteps> {
        let graph = self.graph();
        self.sources = vec![None; graph.values.len()];
        self.next_slot = 0;
        let is_linear = |id: &&ValueId| graph[**id].op == Op::Linear;
        let linears: Vec<ValueId> = kernel.members.iter().filter(is_linear).copied().collect();
        let mut appends = Vec::new();
        for &id in &kernel.members {
            let step = match graph[id].op {
                Op::Arg | Op::Const(_) => continue,
                Op::Append => {
                    appends.push(self.append(id)?);
                    continue;
                }
                Op::Linear if linears.first() != Some(&id) => continue,
                Op::Linear => Step::Linear(LinearStep::new(self, &linears)?),
                Op::Slice { .. } | Op::Reshape { .. } => {
                    self.sources[id.index()] = Some(self.view(id));
                    continue;
                }
                Op::Pointwise(op) => Step::Pointwise(PointwiseStep::new(self, op, id)),
                Op::Cast(dtype) => Step::Cast(CastStep::new(self, dtype, id)),
                Op::Reduce(_)
                | Op::Softmax
                | Op::Argmax
                | Op::RmsNorm { .. }
                | Op::LayerNorm { .. } => Step::Row(RowStep::new(self, id)?),
                Op::Rope { .. } => Step::Rope(RopeStep::new(self, id)?),
                Op::Attend { .. } => Step::Attend(AttendStep::new(self, id)?),
                Op::Embed => Step::Gather(GatherStep::new(self, id)?),
                Op::Dequantize => Step::Dequantize(DequantizeStep::new(self, id)?),
            };
            self.steps.push(step);
        }
        let stores = self.stores(kernel);
        Some(KernelSteps { steps: std::mem::take(&mut self.steps), stores, appends })
    }

    fn append(&mut self, id: ValueId) -> Option<Append> {
        let value = &self.graph()[id];
        let Type::Cache { dtype, kv_heads, head_dim, capacity, .. } = &value.ty else {
            return None;
        };
        Some(Append {
            keys: self.input(id, 1),
            values: self.input(id, 2),
            cache: self.arg_handle(value.inputs[0])?,
            index: self.arg_handle(value.inputs[3])?,
            dtype: *dtype,
            kv_heads: kv_heads.size,
            capacity: capacity.size,
            head_dim: head_dim.size,
        })
    }

    /// A value that is several results is stored to each of them.
    fn stores(&mut self, kernel: &Kernel) -> Vec<Store> {
        let graph = self.graph();
        let mut stores = Vec::new();
        for &id in kernel.stores.iter().filter(|&&id| graph[id].op != Op::Append) {
            let (from, dtype) = (self.operand(id), graph[id].ty.dtype());
            for (index, &output) in graph.outputs.iter().enumerate() {
                if output == id {
                    stores.push(Store { from, handle: self.first_output + index, at: 0, dtype });
                }
            }
            if let Place::Scratch(at) = self.plan.place(id) {
                stores.push(Store { from, handle: self.scratch(), at, dtype });
            }
        }
        stores
    }

    /// What is checked before a run: places in caches, and tokens that are arguments. Tokens that
    /// the program computes are checked when they are used.
    fn checks(&self) -> Vec<Check> {
        let graph = self.graph();
        let check = |id: ValueId| {
            let value = &graph[id];
            let index = match value.op {
                Op::Append => value.inputs[3],
                Op::Attend { .. } => value.inputs[2],
                Op::Embed => return self.token_check(id),
                _ => return None,
            };
            let cache = value.inputs.iter().find_map(|&input| match &graph[input].ty {
                Type::Cache { batch, capacity, .. } => Some((batch.size, capacity.size)),
                _ => None,
            });
            let (Some((sequences, capacity)), Type::Index { rows }) = (cache, &graph[index].ty)
            else {
                return None;
            };
            let rows = Count::of(std::slice::from_ref(rows));
            Some(Check::Places { index: self.arg_handle(index)?, rows, sequences, capacity })
        };
        let members = self.plan.kernels().iter().flat_map(|kernel| &kernel.members);
        members.filter_map(|&id| check(id)).collect()
    }

    fn token_check(&self, id: ValueId) -> Option<Check> {
        let graph = self.graph();
        let mut tokens = graph[id].inputs[0];
        while matches!(graph[tokens].op, Op::Reshape { .. }) {
            tokens = graph[tokens].inputs[0];
        }
        let Type::Weight { n, .. } = &graph[graph[id].inputs[1]].ty else { return None };
        let count = Count::of(graph[tokens].ty.shape());
        debug_assert_eq!(graph[tokens].ty.dtype(), DType::I32);
        Some(Check::Tokens { handle: self.arg_handle(tokens)?, count, n_rows: n.size })
    }
}
