//! The host API: what it computes on the CPU, and what it refuses before anything runs.

mod blocks;
mod caches;
mod calls;
mod devices;
mod interop;
mod recorder;
mod tensors;
mod weights;
