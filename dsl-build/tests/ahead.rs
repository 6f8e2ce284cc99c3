//! Kernels that are compiled when a program is built.

use fuseline_build::{BuildError, archive};
use fuseline_cuda::runtime::{Archive, Error};

#[test]
fn an_archive_has_every_kernel_for_every_architecture() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.rs");
    let text = "#[fuseline::decode(B in 1..=2, D = 64)]
         mod model {
             pub fn gate(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { x.silu() }
             pub fn sum(x: Tensor<f32, B, D>) -> Tensor<f32, B, 1> { x.exp().sum() }
         }";
    std::fs::write(&main, text).unwrap();
    let bytes = match archive(&main, &["sm_90a", "sm_80"]) {
        Err(BuildError::Kernels(error @ Error::NoNvrtc { .. })) => {
            assert!(std::env::var_os("FUSELINE_REQUIRE_NVRTC").is_none(), "{error}");
            eprintln!("[SKIP] {error}");
            return;
        }
        other => other.unwrap(),
    };
    // One kernel a block, for one row and for two, for two architectures.
    let read = Archive::read(bytes.clone().leak()).unwrap();
    assert_eq!(read.n_kernels(), 8);
    // The same program gives the same bytes.
    assert_eq!(archive(&main, &["sm_90a", "sm_80"]).unwrap(), bytes);
    let error = archive(&main, &["sm_1"]).unwrap_err().to_string();
    assert!(error.contains("for sm_1"), "{error}");
}
