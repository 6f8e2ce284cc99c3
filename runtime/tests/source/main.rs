//! Tensor sources: what they read, and what they say about files that are wrong.

mod allocation;
mod bytes;
mod gguf;
mod safetensors;
mod slices;
