//! Blocks: loaded once for a device, called with checked arguments.

use crate::args::{ArgRef, OutputRef, n_places};
use crate::cache::check_distinct;
use crate::device::Device;
use crate::error::{Error, Result};
use fuseline_core::backend::{Binding, BufferRef, Call, Executable, Program};
use fuseline_core::ir::{Arg, Graph, Op, Type};
use fuseline_core::plan::{self, Options, Plan};
use std::sync::{Arc, PoisonError};

/// What an expansion embeds of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockSpec {
    /// The user's name for it.
    pub name: &'static str,
    /// The graph's text.
    pub ir: &'static str,
    /// The CUDA source.
    pub cuda: &'static str,
    /// Names graph and plans as they were when the block was built.
    pub digest: u64,
}

/// Choices about how a block is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Whether operations may share kernels. Off, every operation is a kernel of its own: for
    /// comparison, not for speed.
    pub fusion: bool,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { fusion: true }
    }
}

impl LoadOptions {
    /// The same with fusion on or off.
    pub fn fusion(mut self, fusion: bool) -> LoadOptions {
        self.fusion = fusion;
        self
    }
}

/// A block on a device, for arguments whose types were checked before. A clone is the same block.
#[derive(Clone, Debug)]
pub struct Block {
    device: Device,
    loaded: Arc<Loaded>,
}

/// A loaded block: one variant for each bucket of rows.
#[derive(Debug)]
pub(crate) struct Loaded {
    graph: Graph,
    variants: Vec<Variant>,
}

#[derive(Debug)]
struct Variant {
    rows: usize,
    plan: Arc<Plan>,
    executable: Box<dyn Executable>,
}

/// Memory for a block's values between kernels. One call uses it at a time.
#[derive(Debug)]
pub struct Arena {
    buffer: BufferRef,
}

impl Block {
    /// Loads a block for a device, or takes the one that was loaded before.
    ///
    /// # Errors
    /// [`Error::Digest`] if this version plans the block differently from the one that built it;
    /// [`Error::Backend`] if the device cannot run it.
    pub fn load(device: &Device, spec: BlockSpec, options: LoadOptions) -> Result<Block> {
        let key = (spec.digest, options.fusion);
        if let Some(loaded) = device.known_block(key) {
            return Ok(Block { device: device.clone(), loaded });
        }
        let fail = |message: String| Error::Block { block: spec.name.to_string(), message };
        let graph = Graph::parse(spec.ir).map_err(|error| fail(error.to_string()))?;
        let plans = |fusion: bool| -> Result<Vec<Plan>> {
            let compile = |graph: &Graph| {
                plan::compile(graph, &Options { fusion }).map_err(|error| fail(error.to_string()))
            };
            match &graph.batch {
                Some(batch) => batch
                    .buckets()
                    .into_iter()
                    .map(|rows| compile(&graph.with_rows(rows)))
                    .collect(),
                None => Ok(vec![compile(&graph)?]),
            }
        };
        let built = plans(true)?;
        let found = plan::digest(spec.ir, &built);
        if found != spec.digest {
            let block = spec.name.to_string();
            return Err(Error::Digest { block, expected: spec.digest, found });
        }
        let (plans, cuda) = match options.fusion {
            true => (built, spec.cuda),
            // Source was generated for the fused plans only.
            false => (plans(false)?, ""),
        };
        let mut variants = Vec::new();
        for plan in plans {
            let program = Program { plan: Arc::new(plan), cuda };
            let executable = device.backend().load(&program)?;
            variants.push(Variant { rows: program.plan.rows(), plan: program.plan, executable });
        }
        let loaded = Arc::new(Loaded { graph, variants });
        device.keep_block(key, loaded.clone());
        Ok(Block { device: device.clone(), loaded })
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Memory for calls one after the other.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn arena(&self) -> Result<Arena> {
        let bytes = self.loaded.variants.iter().map(|v| v.plan.scratch_bytes()).max();
        Ok(Arena { buffer: self.device.backend().alloc(bytes.unwrap_or(0))? })
    }

    /// The report of every variant's plan.
    pub fn explain(&self) -> String {
        let reports: Vec<String> =
            self.loaded.variants.iter().map(|variant| variant.plan.explain()).collect();
        reports.join("\n")
    }

    /// Rows of the batch dim that a call with these arguments has; 1 if there is no batch dim.
    ///
    /// # Errors
    /// If two arguments have different numbers of rows, or the block takes no such number.
    pub fn rows(&self, given: &[ArgRef<'_>]) -> Result<usize> {
        let mut rows: Option<usize> = None;
        for (arg, value) in self.loaded.graph.args.iter().zip(given) {
            if !self.has_batch(arg) {
                continue;
            }
            let found = match value {
                ArgRef::Tensor { shape, .. } => shape.first().copied().unwrap_or(1),
                ArgRef::Index { places, .. } => n_places(places),
                ArgRef::Weight { .. } | ArgRef::Cache { .. } | ArgRef::Scalar(_) => continue,
            };
            match rows {
                Some(expected) if expected != found => {
                    let name = arg.name.to_string();
                    return Err(Error::Rows { name, expected: expected.to_string(), found });
                }
                Some(_) => {}
                None => {
                    self.check_range(arg, found)?;
                    rows = Some(found);
                }
            }
        }
        Ok(rows.unwrap_or(1))
    }

    /// Whether a batch of that many rows is one that the block was declared for; none always is.
    fn check_range(&self, arg: &Arg, found: usize) -> Result<()> {
        match &self.loaded.graph.batch {
            Some(batch) if found > 0 && !(batch.min..=batch.max).contains(&found) => {
                let expected = format!("{} to {}", batch.min, batch.max);
                Err(Error::Rows { name: arg.name.to_string(), expected, found })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Runs the block. Everything is checked before anything is written.
    ///
    /// # Errors
    /// If an argument does not fit, or the device fails.
    pub fn run(
        &self,
        arena: &mut Arena,
        given: &[ArgRef<'_>],
        results: &mut [OutputRef<'_>],
    ) -> Result<()> {
        let graph = &self.loaded.graph;
        self.check_count("arguments", graph.args.len(), given.len())?;
        self.check_count("results", graph.outputs.len(), results.len())?;
        let rows = self.rows(given)?;
        for (arg, value) in graph.args.iter().zip(given) {
            self.check_argument(arg, value)?;
        }
        self.check_places(given)?;
        self.check_results(given, results, rows)?;
        if graph.batch.is_some() && rows == 0 {
            self.set_rows(results, rows);
            return Ok(());
        }
        let variant = self.loaded.variants.iter().find(|variant| variant.rows >= rows);
        let Some(variant) = variant else {
            let most = self.loaded.variants.last().map_or(0, |variant| variant.rows);
            return Err(Error::Rows {
                name: graph.batch.as_ref().map_or("rows", |batch| &batch.name).to_string(),
                expected: format!("at most {most}"),
                found: rows,
            });
        };
        let args: Vec<Binding<'_>> = given.iter().map(binding).collect();
        let outputs: Vec<&BufferRef> = results.iter().map(|result| result.buffer).collect();
        let call = Call { rows, args: &args, outputs: &outputs, scratch: &arena.buffer };
        variant.executable.run(&call)?;
        self.set_rows(results, rows);
        Ok(())
    }

    /// Says how many rows results have now: only once a call succeeded.
    fn set_rows(&self, results: &mut [OutputRef<'_>], rows: usize) {
        for (result, &output) in results.iter_mut().zip(&self.loaded.graph.outputs) {
            *result.rows = own_rows(&self.loaded.graph[output].ty, rows);
        }
    }

    fn check_count(&self, what: &'static str, expected: usize, found: usize) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        Err(Error::Count { block: self.loaded.graph.name.clone(), what, expected, found })
    }

    fn has_batch(&self, arg: &Arg) -> bool {
        self.loaded.graph[arg.value].ty.has_batch()
    }

    fn check_argument(&self, arg: &Arg, value: &ArgRef<'_>) -> Result<()> {
        let name = || arg.name.to_string();
        if value.device().is_some_and(|device| !device.is(&self.device)) {
            return Err(Error::Device { name: name(), device: self.device.name() });
        }
        let ty = &self.loaded.graph[arg.value].ty;
        let sizes = |dims: &[&fuseline_core::ir::Dim]| -> Vec<usize> {
            dims.iter().map(|dim| dim.size).collect()
        };
        let fits = match (ty, value) {
            (Type::Tensor { shape, .. }, ArgRef::Scalar(_)) => shape.is_empty(),
            (Type::Tensor { dtype, shape }, ArgRef::Tensor { dtype: own, shape: found, .. }) => {
                dtype == own
                    && shape.len() == found.len()
                    && shape.iter().zip(found).all(|(dim, &n)| dim.batch || dim.size == n)
            }
            (Type::Weight { format, n, k }, ArgRef::Weight { format: own, shape, .. }) => {
                // The text form of a format keeps everything but how files store it.
                format.bits == own.bits
                    && format.code == own.code
                    && format.group == own.group
                    && sizes(&[n, k]) == *shape
            }
            (
                Type::Cache { dtype, batch, kv_heads, head_dim, capacity },
                ArgRef::Cache { dtype: own, shape, .. },
            ) => dtype == own && sizes(&[batch, kv_heads, head_dim, capacity]) == *shape,
            (Type::Index { rows }, ArgRef::Index { places, .. }) => {
                rows.batch || rows.size == n_places(places)
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let graph = &self.loaded.graph;
        let expected = match ty {
            Type::Tensor { dtype, shape } => {
                format!("{dtype}{}", fuseline_core::ir::dim::show(shape))
            }
            Type::Weight { format, n, k } => format!("a {} weight [{n}, {k}]", format.name),
            Type::Cache { dtype, .. } => format!("a {dtype} cache, {}", graph.label(arg.value)),
            Type::Index { rows } => format!("an index of {rows} rows"),
        };
        Err(Error::Kind { name: name(), expected, found: value.describe() })
    }

    /// Positions and sequences within the caches that they are used with, no place twice.
    fn check_places(&self, given: &[ArgRef<'_>]) -> Result<()> {
        let graph = &self.loaded.graph;
        let place_of = |id| graph.args.iter().position(|arg| arg.value == id);
        for value in graph.values.iter().filter(|value| value.op == Op::Append) {
            let (Some(cache), Some(pos)) = (place_of(value.inputs[0]), place_of(value.inputs[3]))
            else {
                continue;
            };
            let (
                Some(ArgRef::Cache { shape: [n_sequences, _, _, capacity], .. }),
                Some(ArgRef::Index { places, .. }),
            ) = (given.get(cache), given.get(pos))
            else {
                continue;
            };
            let cache = || graph.args[cache].name.to_string();
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            for &(position, sequence) in &places.rows {
                if sequence >= *n_sequences {
                    let n_sequences = *n_sequences;
                    return Err(Error::Sequence { cache: cache(), sequence, n_sequences });
                }
                if position >= *capacity {
                    let capacity = *capacity;
                    return Err(Error::Position { cache: cache(), sequence, position, capacity });
                }
            }
            check_distinct(&places.rows)?;
            let (known_capacity, known_sequences) = places.limits;
            places.limits = (known_capacity.min(*capacity), known_sequences.min(*n_sequences));
        }
        Ok(())
    }

    fn check_results(
        &self,
        given: &[ArgRef<'_>],
        results: &[OutputRef<'_>],
        rows: usize,
    ) -> Result<()> {
        let graph = &self.loaded.graph;
        for (index, (result, &output)) in results.iter().zip(&graph.outputs).enumerate() {
            let name = format!("result {index}");
            if !result.device.is(&self.device) {
                return Err(Error::Device { name, device: self.device.name() });
            }
            let ty = &graph[output].ty;
            let row_elements: usize = ty.shape().iter().skip(1).map(|dim| dim.size).product();
            let own_rows = own_rows(ty, rows);
            let needed = own_rows * row_elements * ty.dtype().bytes();
            if result.dtype != ty.dtype() || result.buffer.bytes() < needed {
                return Err(Error::Kind {
                    name,
                    expected: format!("{} rows of {row_elements} {}", own_rows, ty.dtype()),
                    found: format!("{} bytes of {}", result.buffer.bytes(), result.dtype),
                });
            }
            for (arg, value) in graph.args.iter().zip(given) {
                let aliases =
                    |buffer: &BufferRef| buffer.bytes() > 0 && Arc::ptr_eq(buffer, result.buffer);
                let shared = match value {
                    ArgRef::Tensor { buffer, .. } => aliases(buffer),
                    ArgRef::Weight { planes, .. } => planes.iter().any(|plane| aliases(plane)),
                    ArgRef::Cache { planes, .. } | ArgRef::Index { planes, .. } => {
                        planes.iter().any(|plane| aliases(plane))
                    }
                    ArgRef::Scalar(_) => false,
                };
                if shared {
                    return Err(Error::Alias { result: index, name: arg.name.to_string() });
                }
            }
            let same = |other: &&OutputRef<'_>| {
                result.buffer.bytes() > 0 && Arc::ptr_eq(other.buffer, result.buffer)
            };
            if let Some(first) = results[..index].iter().position(|other| same(&other)) {
                return Err(Error::Alias { result: index, name: format!("result {first}") });
            }
        }
        Ok(())
    }
}

/// Rows of a result in a call of `rows` rows.
fn own_rows(ty: &Type, rows: usize) -> usize {
    match ty.shape().first() {
        Some(first) if first.batch => rows,
        Some(first) => first.size,
        None => 1,
    }
}

fn binding<'a>(value: &ArgRef<'a>) -> Binding<'a> {
    match *value {
        ArgRef::Tensor { buffer, .. } => Binding::Tensor(buffer),
        ArgRef::Weight { planes: [codes, scales, offsets], .. } => {
            Binding::Weight { codes, scales, offsets }
        }
        ArgRef::Cache { planes: [keys, values], .. } => Binding::Cache { keys, values },
        ArgRef::Index { planes: [positions, sequences], .. } => {
            Binding::Index { positions, sequences }
        }
        ArgRef::Scalar(number) => Binding::Scalar(number),
    }
}
