//! `fuseline doctor`.

use fuseline_cuda::runtime::nvrtc::Nvrtc;
use fuseline_cuda::runtime::{CudaDevice, DiskCache, Options, driver};
use std::fmt::Display;
use std::path::Path;

/// Says what was found for running blocks: driver, GPUs, NVRTC, kernel cache, C++ compiler; and
/// what to do about what is missing.
///
/// Gives success if blocks can run on a GPU.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Whether blocks can run on a GPU.
pub fn run(_args: &Args) -> bool {
    let devices = match driver::version().and_then(|version| Ok((version, driver::device_count()?)))
    {
        Ok((version, n_devices)) => {
            line("driver", format!("for CUDA {version}, {n_devices} GPUs"));
            n_devices
        }
        Err(error) => {
            line("driver", error);
            0
        }
    };
    let mut right = devices > 0;
    let cache = DiskCache::of_user();
    for ordinal in 0..devices {
        let name = format!("GPU {ordinal}");
        let options = Options { ordinal, cache: cache.clone(), ..Options::default() };
        match CudaDevice::new(options).and_then(|device| {
            let (free, total) = device.memory_bytes()?;
            Ok((device, free, total))
        }) {
            Ok((device, free, total)) => {
                use fuseline_core::backend::Backend;
                let (name_of, arch) = (device.name(), device.arch());
                let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
                let memory = format!("{:.1} of {:.1} GiB free", gib(free), gib(total));
                line(&name, format!("{name_of}, {arch}, {memory}"));
            }
            Err(error) => {
                line(&name, error);
                right = false;
            }
        }
    }
    match Nvrtc::get() {
        Ok(nvrtc) => {
            let newest = nvrtc.archs().last().copied().unwrap_or(0);
            let (version, path) = (nvrtc.version(), nvrtc.path());
            line("NVRTC", format!("{version} ({path}), up to sm_{newest}"));
        }
        Err(error) => {
            line("NVRTC", error);
            right = false;
        }
    }
    match cache.folder() {
        Some(folder) => line("kernel cache", format!("{}, {}", folder.display(), usage(folder))),
        None => line("kernel cache", "none: FUSELINE_CACHE is empty, or there is no home folder"),
    }
    match fuseline_cuda::emulate::Emulator::new(fuseline_cuda::emulate::Options::default()) {
        Ok(_) => line("C++ compiler", "works: `fuseline emulate` can run"),
        Err(error) => line("C++ compiler", error),
    }
    let verdict = match right {
        true => "blocks run on a GPU, in programs with the feature `cuda`",
        false => {
            "blocks run on the CPU, and on a GPU only with kernels built ahead, if there is one"
        }
    };
    line("verdict", verdict);
    right
}

fn line(what: &str, found: impl Display) {
    // What goes on stands under its beginning.
    let text = found.to_string().replace('\n', "\n                ");
    println!("{what:<14}  {text}");
}

fn usage(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else { return "empty".to_string() };
    let sizes: Vec<u64> =
        entries.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len())).collect();
    let mib = sizes.iter().sum::<u64>() as f64 / f64::from(1 << 20);
    format!("{} kernels, {mib:.1} MiB", sizes.len())
}
