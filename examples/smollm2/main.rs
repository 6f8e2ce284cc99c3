//! Talks to SmolLM2-135M: a whole language model from decode blocks.

mod args;
mod blocks;
mod fetch;
mod model;
mod sample;
mod tokenizer;

use args::{Args, DeviceName};
use clap::Parser;
use fuseline::emulate;
use fuseline::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use sample::Sampler;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;
use tokenizer::Tokenizer;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has stopped reading.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(name: DeviceName) -> Result<Device, Box<dyn Error>> {
    match name {
        DeviceName::Best => Ok(Device::best()?),
        DeviceName::Cpu => Ok(Device::cpu()),
        DeviceName::Cuda => Ok(Device::cuda(fuseline::cuda::Options::default())?),
        DeviceName::Emulated => {
            let options = emulate::Options { optimize: true, ..emulate::Options::default() };
            Ok(emulate::device(options)?)
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let path = fetch::model(args.model.clone())?;
    let file = Gguf::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(&file)?;
    let device = open(args.device)?;
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("loading layer {pos} of {len} {wide_bar}")?);
    let choices =
        model::Choices { cache: args.cache, fusion: !args.no_fusion, record: !args.no_graph };
    let mut model = model::load(&device, &file, choices, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();

    let mut out = io::stdout().lock();
    if args.explain {
        writeln!(out, "{}", model.explain())?;
    }
    let prompt = if args.raw { args.prompt() } else { tokenizer::chat(&args.prompt()) };
    let mut ids = tokenizer.encode(&prompt)?;
    if ids.is_empty() {
        return Err("the prompt has no tokens; write something to continue".into());
    }
    if ids.len() > model.room() {
        let (found, most) = (ids.len(), model.room());
        return Err(format!("the prompt has {found} tokens, the model takes {most}").into());
    }
    let mut sampler = match args.greedy {
        true => Sampler::Greedy,
        false => Sampler::random(args.temperature, args.seed),
    };
    let mut stream = tokenizer.stream();
    let (mut n_generated, n_prompt) = (0, ids.len());
    let (mut prompt_seconds, mut start) = (0.0, Instant::now());
    while n_generated < args.max_tokens && ids.len() <= model.room() {
        let logits = model.step(&ids)?;
        if n_generated == 0 {
            prompt_seconds = start.elapsed().as_secs_f64();
            start = Instant::now();
        }
        let id = sampler.next(&logits).ok_or("every logit is NaN: the weights are damaged")?;
        n_generated += 1;
        if args.ids {
            writeln!(out, "{{\"id\": {id}}}")?;
        }
        let ends = !args.raw && tokenizer.is_end(id);
        if !ends && !args.ids {
            write!(out, "{}", stream.push(id)?.unwrap_or_default())?;
            out.flush()?;
        }
        if ends {
            break;
        }
        ids = vec![id];
    }
    if !args.ids {
        write!(out, "{}", stream.finish().map(String::from).unwrap_or_default())?;
        writeln!(out)?;
    }
    if n_generated == 0 {
        return Ok(());
    }
    let seconds = start.elapsed().as_secs_f64();
    // The first token comes with the prompt.
    let n_after = n_generated.saturating_sub(1);
    eprintln!(
        "{n_prompt} prompt tokens at {:.1} tokens/s, then {n_after} at {:.1} tokens/s, on {}",
        n_prompt as f64 / prompt_seconds.max(1e-9),
        n_after as f64 / seconds.max(1e-9),
        device.name()
    );
    Ok(())
}
