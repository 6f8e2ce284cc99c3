//! What tests under emulation share.

use fuseline_cuda::emulate::{Emulator, Error, Options};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The emulator. None where there is no C++ compiler, unless `FUSELINE_REQUIRE_CXX` is set.
pub fn required(options: Options) -> Option<Emulator> {
    match Emulator::new(options) {
        Ok(emulator) => Some(emulator),
        Err(error @ Error::NoCompiler { .. }) => {
            assert!(std::env::var_os("FUSELINE_REQUIRE_CXX").is_none(), "{error}");
            eprintln!("[SKIP] {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// `work` on every item, on all processors: the results in the items' order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..n_threads.min(items.len()) {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    done.lock().unwrap().push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
