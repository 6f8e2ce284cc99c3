//! Running a program: [`program`] turns a plan into steps at load, [`bind`] checks and locks what
//! a call brings, and every kind of step has a module of its own.

mod attend;
mod bind;
mod frame;
mod gather;
mod linear;
mod pointwise;
mod program;
mod rope;
mod rows;
mod store;
mod vector;
mod views;

use crate::dot::{Activations, Level};
use frame::{Frame, State};
use fuseline_core::backend::{BackendError, Call, Executable};
use fuseline_core::plan::Plan;
use program::Program;
use std::sync::{Mutex, PoisonError};

/// A loaded program.
#[derive(Debug)]
pub(crate) struct CpuExecutable {
    program: Program,
    level: Level,
    /// States of finished runs, for those to come.
    states: Mutex<Vec<State>>,
}

impl CpuExecutable {
    /// # Errors
    /// If the plan cannot run on this device.
    pub fn new(plan: &Plan) -> Result<CpuExecutable, BackendError> {
        let (program, level) = (Program::new(plan)?, Level::best());
        Ok(CpuExecutable { program, level, states: Mutex::new(Vec::new()) })
    }

    fn take_state(&self, scalars: &[f32]) -> State {
        let mut state = self.states().pop().unwrap_or_else(|| State {
            slots: vec![Vec::new(); self.program.n_slots],
            numbers: self.program.numbers.clone(),
            activations: Activations::new(self.level),
            angles: Vec::new(),
        });
        state.numbers[..scalars.len()].copy_from_slice(scalars);
        state
    }

    fn states(&self) -> std::sync::MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_kernels(&self, frame: &mut Frame<'_>) -> Result<(), BackendError> {
        self.program.kernels.iter().try_for_each(|kernel| kernel.run(frame))
    }
}

impl Executable for CpuExecutable {
    fn run(&self, call: &Call<'_>) -> Result<(), BackendError> {
        let bound = self.program.signature.bind(call)?;
        let mut locked = bind::lock(&bound)?;
        let memory = locked.memory();
        memory.check(&self.program, call.rows)?;
        let state = self.take_state(&bound.scalars);
        let mut frame = Frame { rows: call.rows, level: self.level, memory, state };
        // Entering the pool once a run costs one hand-over, not one a kernel.
        let enter = self.program.parallel
            && rayon::current_thread_index().is_none()
            && rayon::current_num_threads() > 1;
        let result = if enter {
            rayon::scope(|_| self.run_kernels(&mut frame))
        } else {
            self.run_kernels(&mut frame)
        };
        self.states().push(frame.state);
        result
    }
}

fn device_error(message: String) -> BackendError {
    BackendError::Device { message }
}
