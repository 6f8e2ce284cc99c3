//! One call of a plan under emulation: every kernel alone on the oracle's operands, then all of
//! them on each other's results.

use super::compare::{Bounds, Mismatch, compare, coords_of, is_narrow, limit, rounded_once, slack};
use super::error::{Error, Result};
use super::fault::Fault;
use super::process::{Argument, BufferId, Process, Shape, Writer};
use crate::emit::{self, Param, params};
use fuseline_core::dtype::DType;
use fuseline_core::format::{Packed, WeightLayout};
use fuseline_core::ir::{Graph, Op, Type, ValueId};
use fuseline_core::oracle::{self, Datum};
use fuseline_core::plan::{Kernel, Multiply, Place, Plan, Template};
use std::collections::BTreeMap;

/// What one call left.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The block's results, as the chain of all kernels stored them.
    pub results: Vec<Vec<f64>>,
    /// Kernels that were launched, alone and in the chain.
    pub n_launches: usize,
    /// The largest error of an element of any value, relative to the value's largest element.
    pub worst_error: f64,
    /// The largest error that each result may have, in its own unit.
    pub allowed: Vec<f64>,
}

/// What a kernel stored for a value.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The kernel; of a chain the last one.
    pub kernel: &'a str,
    /// Whether it was run on the oracle's operands, and no kernel before it.
    pub alone: bool,
    /// The value; for a cache the append.
    pub value: ValueId,
    /// Which half of a cache.
    pub half: Option<Half>,
    /// The elements of the call's rows, or of the whole half.
    pub bytes: &'a [u8],
}

/// Runs a call of up to the plan's rows: the kernels must be those of the opened library. Places
/// of a cache that hold NaN count as unwritten: a kernel that reads one is at fault.
///
/// # Errors
/// [`Error::Fault`] and [`Error::Mismatch`] for a kernel's mistakes; [`Error::Oracle`] if the
/// arguments are not the graph's.
pub fn run(
    process: &mut Process,
    library: usize,
    plan: &Plan,
    rows: usize,
    args: &[Datum],
) -> Result<Outcome> {
    run_observed(process, library, plan, rows, args, &mut |_| {})
}

/// Like [`run`]; `observe` is told of everything that kernels stored, once it is known to be right.
///
/// # Errors
/// Those of [`run`].
pub fn run_observed(
    process: &mut Process,
    library: usize,
    plan: &Plan,
    rows: usize,
    args: &[Datum],
    observe: &mut dyn FnMut(&Stored<'_>),
) -> Result<Outcome> {
    let mut after = args.to_vec();
    let all = oracle::run_all(plan.graph(), rows, &mut after)?;
    let exact = slack(plan.graph(), rows, args, &all, false)?;
    let ids: Vec<ValueId> = plan.graph().ids().collect();
    let rounded = match is_narrow(plan.graph(), &ids) {
        true => slack(plan.graph(), rows, args, &all, true)?,
        false => exact.clone(),
    };
    let slack = [exact, rounded];
    let outcome =
        Outcome { results: Vec::new(), n_launches: 0, worst_error: 0.0, allowed: Vec::new() };
    let mut call = Call {
        process,
        library,
        plan,
        rows,
        before: args,
        after: &after,
        all: &all,
        slack: &slack,
        constants: BTreeMap::new(),
        temporary: Vec::new(),
        outcome,
        observe,
    };
    if rows > 0 {
        for kernel in plan.kernels() {
            call.alone(kernel)?;
            call.free()?;
        }
    }
    call.chain()?;
    call.free()?;
    let constants: Vec<BufferId> = call.constants.values().map(|(buffer, _)| *buffer).collect();
    constants.into_iter().try_for_each(|buffer| call.process.free(buffer))?;
    Ok(call.outcome)
}

/// A part of an argument's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Plane {
    Elements,
    Codes,
    Scales,
    Offsets,
    Positions,
    Sequences,
}

/// Which half of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// The keys.
    Keys,
    /// The values.
    Values,
}

struct Call<'a> {
    process: &'a mut Process,
    library: usize,
    plan: &'a Plan,
    rows: usize,
    before: &'a [Datum],
    after: &'a [Datum],
    /// The oracle's tensors, and what each may be off beside its limit: after operations that
    /// round to floats alone, and after others.
    all: &'a [Option<Vec<f64>>],
    slack: &'a [Vec<f64>; 2],
    /// Memory that no kernel writes.
    constants: BTreeMap<(ValueId, Plane), (BufferId, usize)>,
    /// Memory of the kernel that is run alone, or of the chain.
    temporary: Vec<BufferId>,
    outcome: Outcome,
    observe: &'a mut dyn FnMut(&Stored<'_>),
}

/// Stored elements that are to be compared with the oracle's.
struct Check<'a> {
    value: ValueId,
    half: Option<Half>,
    dtype: DType,
    expected: &'a [f64],
    buffer: BufferId,
    at: usize,
    /// The value whose elements they are.
    from: ValueId,
    /// How many of the elements the kernels write.
    n_written: usize,
}

impl<'a> Call<'a> {
    fn graph(&self) -> &'a Graph {
        self.plan.graph()
    }

    fn datum(&self, state: &'a [Datum], arg: ValueId) -> Option<&'a Datum> {
        let place = self.graph().args.iter().position(|own| own.value == arg)?;
        state.get(place)
    }

    /// The oracle's elements of a tensor.
    fn elements(&self, id: ValueId) -> &'a [f64] {
        self.all[id.index()].as_deref().unwrap_or_default()
    }

    /// Memory that holds one plane of an argument, or the oracle's elements of a value.
    fn constant(&mut self, id: ValueId, plane: Plane) -> Result<Argument> {
        if !self.constants.contains_key(&(id, plane)) {
            let integers =
                |numbers: &[i32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
            let arranged = |packed: &Packed| match &self.graph()[id].ty {
                Type::Weight { format, .. } => packed.clone().arranged(format, WeightLayout::Tiles),
                _ => Default::default(),
            };
            let contents = match (plane, self.datum(self.before, id)) {
                (Plane::Codes, Some(Datum::Weight(packed))) => {
                    let [codes, _, _] = arranged(packed);
                    codes
                }
                (Plane::Scales, Some(Datum::Weight(packed))) => {
                    let [_, scales, _] = arranged(packed);
                    scales
                }
                (Plane::Offsets, Some(Datum::Weight(packed))) => {
                    let [_, _, offsets] = arranged(packed);
                    offsets
                }
                (Plane::Positions, Some(Datum::Index { positions, .. })) => integers(positions),
                (Plane::Sequences, Some(Datum::Index { sequences, .. })) => integers(sequences),
                _ => self.graph()[id].ty.dtype().encode(self.elements(id)),
            };
            let buffer = self.process.upload(&contents, 1)?;
            self.constants.insert((id, plane), (buffer, contents.len()));
        }
        let (buffer, bytes) = self.constants[&(id, plane)];
        Ok(Argument::Memory { buffer, at: 0, bytes, writable: false })
    }

    /// Gives the temporary memory back.
    fn free(&mut self) -> Result<()> {
        std::mem::take(&mut self.temporary)
            .into_iter()
            .try_for_each(|buffer| self.process.free(buffer))
    }

    /// Temporary memory that nobody wrote.
    fn alloc(&mut self, bytes: usize, granule: usize) -> Result<BufferId> {
        let buffer = self.process.alloc(bytes, granule)?;
        self.temporary.push(buffer);
        Ok(buffer)
    }

    /// Memory that holds half of a cache; NaNs are unwritten places.
    fn cache(&mut self, state: &'a [Datum], cache: ValueId, half: Half) -> Result<BufferId> {
        let dtype = self.graph()[cache].ty.dtype();
        let elements = half_of(self.datum(state, cache), half);
        let size = dtype.bytes();
        let buffer = self.process.upload(&dtype.encode(elements), size)?;
        self.temporary.push(buffer);
        let mut at = 0;
        for run in elements.chunk_by(|a, b| a.is_nan() == b.is_nan()) {
            if run.first().is_some_and(|x| x.is_nan()) {
                self.process.forget(buffer, at * size, run.len() * size)?;
            }
            at += run.len();
        }
        Ok(buffer)
    }

    /// A parameter that is the same alone and in the chain.
    fn plain(&mut self, param: Param) -> Result<Option<Argument>> {
        Ok(Some(match param {
            Param::Rows => Argument::Int(self.rows as i32),
            Param::Scalar(id) => match self.datum(self.before, id) {
                Some(Datum::Scalar(number)) => Argument::Float(*number),
                _ => Argument::Float(f32::NAN),
            },
            Param::Codes(id) => self.constant(id, Plane::Codes)?,
            Param::Scales(id) => self.constant(id, Plane::Scales)?,
            Param::Offsets(id) => self.constant(id, Plane::Offsets)?,
            Param::Positions(id) => self.constant(id, Plane::Positions)?,
            Param::Sequences(id) => self.constant(id, Plane::Sequences)?,
            Param::Elements(_) | Param::Keys(_) | Param::Values(_) | Param::Result(_) => {
                return Ok(None);
            }
        }))
    }

    /// One kernel, on the oracle's values of what it loads.
    fn alone(&mut self, kernel: &Kernel) -> Result<()> {
        let graph = self.graph();
        let list = params(self.plan, kernel);
        let (mut arguments, mut checks) = (Vec::new(), Vec::new());
        for &param in &list {
            if let Some(argument) = self.plain(param)? {
                arguments.push(argument);
                continue;
            }
            arguments.push(match param {
                Param::Keys(id) | Param::Values(id) => {
                    let half = half_of_param(param);
                    let writes = appends(graph, kernel, id);
                    let state = if writes.is_some() { self.before } else { self.after };
                    let buffer = self.cache(state, id, half)?;
                    if let Some(append) = writes {
                        checks.push(self.cache_check(append, id, half, buffer));
                    }
                    let bytes = graph[id].ty.bytes() / 2;
                    Argument::Memory { buffer, at: 0, bytes, writable: writes.is_some() }
                }
                Param::Result(id) => {
                    let bytes = self.live_bytes(id);
                    let buffer = self.alloc(bytes, graph[id].ty.dtype().bytes())?;
                    checks.push(self.tensor_check(id, buffer, 0));
                    Argument::Memory { buffer, at: 0, bytes, writable: true }
                }
                Param::Elements(id) => self.constant(id, Plane::Elements)?,
                _ => continue, // plain ones were dealt with
            });
        }
        self.launch(kernel, &list, &arguments)?;
        let bound = limit(graph, &kernel.members);
        for check in checks {
            self.compare(&check, kernel, true, bound)?;
        }
        Ok(())
    }

    /// All kernels, one after the other.
    fn chain(&mut self) -> Result<()> {
        let (plan, graph) = (self.plan, self.graph());
        let granule = DType::ALL.iter().map(|dtype| dtype.bytes()).min().unwrap_or(1);
        let scratch = self.alloc(plan.scratch_bytes(), granule)?;
        let mut outputs = Vec::new();
        for &id in &graph.outputs {
            let bytes = self.live_bytes(id);
            outputs.push(self.alloc(bytes, graph[id].ty.dtype().bytes())?);
        }
        let mut caches: BTreeMap<(ValueId, Half), BufferId> = BTreeMap::new();
        let launched = if self.rows > 0 { plan.kernels() } else { &[] };
        for kernel in launched {
            let list = params(plan, kernel);
            let mut arguments = Vec::new();
            for &param in &list {
                if let Some(argument) = self.plain(param)? {
                    arguments.push(argument);
                    continue;
                }
                arguments.push(match param {
                    Param::Keys(id) | Param::Values(id) => {
                        let half = half_of_param(param);
                        let buffer = match caches.get(&(id, half)) {
                            Some(&buffer) => buffer,
                            None => self.cache(self.before, id, half)?,
                        };
                        caches.insert((id, half), buffer);
                        let bytes = graph[id].ty.bytes() / 2;
                        let writable = appends(graph, kernel, id).is_some();
                        Argument::Memory { buffer, at: 0, bytes, writable }
                    }
                    Param::Elements(id) | Param::Result(id) => {
                        let bytes = self.live_bytes(id);
                        let writable = matches!(param, Param::Result(_));
                        match plan.place(id) {
                            Place::Scratch(at) => {
                                if writable {
                                    // Another value may have been here.
                                    self.process.forget(scratch, at, bytes)?;
                                }
                                Argument::Memory { buffer: scratch, at, bytes, writable }
                            }
                            Place::Output(n) => {
                                let buffer = outputs[n];
                                Argument::Memory { buffer, at: 0, bytes, writable }
                            }
                            Place::None | Place::Arg | Place::Cache(_) => {
                                self.constant(id, Plane::Elements)?
                            }
                        }
                    }
                    _ => continue, // plain ones were dealt with
                });
            }
            self.launch(kernel, &list, &arguments)?;
        }
        let Some(last) = launched.last() else {
            self.outcome.results = vec![Vec::new(); graph.outputs.len()];
            return Ok(());
        };
        let members: Vec<ValueId> =
            plan.kernels().iter().flat_map(|kernel| kernel.members.clone()).collect();
        // Errors of one kernel are operands of the next.
        let bound = limit(graph, &members);
        for &id in &graph.outputs {
            let Place::Output(n) = plan.place(id) else { continue };
            let check = self.tensor_check(id, outputs[n], 0);
            let found = self.compare(&check, last, false, bound)?;
            let largest = found.iter().filter(|x| x.is_finite()).fold(0.0, |m, x| x.abs().max(m));
            self.outcome.allowed.push(bound * largest + self.slack[1][id.index()]);
            self.outcome.results.push(found);
        }
        for (&(cache, half), &buffer) in &caches {
            let append = plan.kernels().iter().find_map(|kernel| appends(graph, kernel, cache));
            if let Some(append) = append {
                let check = self.cache_check(append, cache, half, buffer);
                self.compare(&check, last, false, bound)?;
            }
        }
        Ok(())
    }

    fn launch(&mut self, kernel: &Kernel, list: &[Param], arguments: &[Argument]) -> Result<()> {
        self.outcome.n_launches += 1;
        let shape = launch_shape(kernel);
        let done = self.process.launch(self.library, &kernel.name, shape, arguments);
        done.map_err(|error| explained(error, self.plan, kernel, list))
    }

    fn live_bytes(&self, id: ValueId) -> usize {
        self.elements(id).len() * self.graph()[id].ty.dtype().bytes()
    }

    fn tensor_check(&self, value: ValueId, buffer: BufferId, at: usize) -> Check<'a> {
        let dtype = self.graph()[value].ty.dtype();
        let expected = self.elements(value);
        let n_written = expected.len();
        Check { value, half: None, dtype, expected, buffer, at, from: value, n_written }
    }

    fn cache_check(
        &self,
        append: ValueId,
        cache: ValueId,
        half: Half,
        buffer: BufferId,
    ) -> Check<'a> {
        let dtype = self.graph()[cache].ty.dtype();
        let expected = half_of(self.datum(self.after, cache), half);
        let before = half_of(self.datum(self.before, cache), half);
        let same = |(a, b): &(&f64, &f64)| a.to_bits() == b.to_bits();
        let n_written = before.iter().zip(expected).filter(|pair| !same(pair)).count();
        let inputs = &self.graph()[append].inputs;
        let stored = if half == Half::Keys { inputs[1] } else { inputs[2] };
        let half = Some(half);
        Check { value: append, half, dtype, expected, buffer, at: 0, from: stored, n_written }
    }

    /// Compares what was stored with the oracle, and gives it.
    fn compare(
        &mut self,
        check: &Check<'_>,
        kernel: &Kernel,
        alone: bool,
        bound: f64,
    ) -> Result<Vec<f64>> {
        let graph = self.graph();
        let size = check.dtype.bytes();
        let n_bytes = check.expected.len() * size;
        let value = match check.half {
            None => graph.line(check.value),
            Some(half) => format!("{half:?} of {}", graph.line(check.value)),
        };
        // All of a result is written; of a cache, what was appended.
        if check.half.is_none() {
            let first = self.process.first_unwritten(check.buffer, check.at, n_bytes)?;
            if let Some(byte) = first {
                let element = (byte - check.at) / size;
                let coords = coords_of(graph[check.value].ty.shape(), self.rows, element);
                let mut fault = Fault::unwritten(&kernel.name, value, element);
                fault.detail = format!("element {element} {coords:?}");
                return Err(Error::Fault(Box::new(fault)));
            }
        }
        let mut bytes = vec![0; n_bytes];
        self.process.read(check.buffer, check.at, &mut bytes)?;
        let found = check.dtype.decode(&bytes);
        // In a chain, an earlier kernel may have rounded.
        let once = alone && rounded_once(graph, &kernel.members, check.value);
        let narrow = if alone { is_narrow(graph, &kernel.members) } else { true };
        let slack = self.slack[usize::from(narrow)][check.from.index()];
        let is_exact = !matches!(
            &kernel.structure.template,
            Template::Linear(linear) if linear.multiply == Multiply::Matrix { n_parts: 2 }
        );
        let bounds = Bounds::new(check.dtype, check.n_written, slack, bound, once, is_exact);
        let difference = compare(check.expected, &found, &bounds);
        let Some(element) = difference.first else {
            self.outcome.worst_error = self.outcome.worst_error.max(difference.worst);
            (self.observe)(&Stored {
                kernel: &kernel.name,
                alone,
                value: check.value,
                half: check.half,
                bytes: &bytes,
            });
            return Ok(found);
        };
        let writer = self.process.writer(check.buffer, check.at + element * size)?;
        let line = |w: &Writer| self.process.line_of(w, &kernel.name);
        let writer = writer.map(|w| (w.block, w.thread, line(&w)));
        let coords = match (check.half, &graph[check.value].ty) {
            (Some(_), Type::Cache { kv_heads, head_dim, capacity, .. }) => {
                let (row, d) = (element / head_dim.size, element % head_dim.size);
                let (row, position) = (row / capacity.size, row % capacity.size);
                vec![row / kv_heads.size, row % kv_heads.size, position, d]
            }
            (_, ty) => coords_of(ty.shape(), self.rows, element),
        };
        Err(Error::Mismatch(Box::new(Mismatch {
            kernel: kernel.name.clone(),
            alone,
            value,
            element,
            coords,
            n_bad: difference.n_bad,
            n_elements: found.len(),
            expected: check.expected[element],
            found: found[element],
            error: difference.worst,
            limit: difference.limit,
            max_rounded: bounds.max_rounded,
            writer,
        })))
    }
}

/// The threads of a kernel's launch.
pub(crate) fn launch_shape(kernel: &Kernel) -> Shape {
    let launch = &kernel.launch;
    let (n_blocks, n_threads) = (launch.n_blocks, launch.n_threads);
    Shape { n_blocks, n_threads, shared_bytes: launch.shared_bytes }
}

/// The append of a kernel to a cache, if it has one.
pub fn appends(graph: &Graph, kernel: &Kernel, cache: ValueId) -> Option<ValueId> {
    let to_it = |id: &ValueId| graph[*id].op == Op::Append && graph[*id].inputs[0] == cache;
    kernel.stores.iter().copied().find(|id| to_it(id))
}

fn half_of_param(param: Param) -> Half {
    match param {
        Param::Values(_) => Half::Values,
        _ => Half::Keys,
    }
}

fn half_of(datum: Option<&Datum>, half: Half) -> &[f64] {
    match (datum, half) {
        (Some(Datum::Cache { keys, .. }), Half::Keys) => keys,
        (Some(Datum::Cache { values, .. }), Half::Values) => values,
        _ => &[],
    }
}

/// A kernel's error with the value that a fault is about: the parameter's, or one that its line
/// names, or what the kernel stores.
pub(crate) fn explained(error: Error, plan: &Plan, kernel: &Kernel, list: &[Param]) -> Error {
    let Error::Fault(mut fault) = error else { return error };
    let graph = plan.graph();
    let parameter = fault.memory.as_ref().and_then(|memory| memory.parameter);
    let param = parameter.and_then(|parameter| list.get(parameter));
    if let Some((id, part)) = param.and_then(|param| param.value()) {
        if let Some(memory) = &mut fault.memory {
            memory.name = match &graph[id].name {
                Some(name) => format!("{part}{id} `{name}`"),
                None => format!("{part}{id}"),
            };
        }
        fault.value = Some(graph.line(id));
        return Error::Fault(fault);
    }
    let text = fault.line.as_ref().map_or("", |line| line.text.as_str());
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    // Variables are called by their value, or begin so.
    let is_named = |id: &&ValueId| {
        let name = emit::value_name(graph, **id);
        words.iter().any(|word| {
            word.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
    };
    fault.value = match (kernel.members.iter().find(is_named), kernel.stores.as_slice()) {
        (Some(&id), _) | (None, &[id]) => Some(graph.line(id)),
        (None, stores) => {
            let ids: Vec<String> = stores.iter().map(ValueId::to_string).collect();
            Some(format!("one that leads to {}", ids.join(", ")))
        }
    };
    Error::Fault(fault)
}
