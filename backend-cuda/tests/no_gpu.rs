//! Where there is no driver, no NVRTC or no GPU, nothing panics: what is missing is named.

use fuseline_cuda::runtime::nvrtc::Nvrtc;
use fuseline_cuda::runtime::{CudaDevice, Error, Options, compile_kernel, driver};

#[test]
fn a_missing_driver_is_an_error() {
    match driver::check() {
        Ok(()) => eprintln!("[SKIP] there is a driver"),
        Err(error) => {
            assert!(matches!(error, Error::NoDriver { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with("no NVIDIA driver: cannot open libcuda.so"), "{text}");
            assert!(text.contains("help: install the driver"), "{text}");
            let error = CudaDevice::new(Options::default()).unwrap_err();
            assert!(matches!(error, Error::NoDriver { .. }), "{error}");
            assert!(driver::version().is_err());
            assert!(driver::device_count().is_err());
        }
    }
}

/// In a process of its own: the library is looked for once.
#[test]
fn a_missing_compiler_is_an_error() {
    if std::env::var_os("FUSELINE_NVRTC").is_some_and(|path| path == "/nothing/libnvrtc.so") {
        let error = Nvrtc::get().unwrap_err();
        assert!(matches!(error, Error::NoNvrtc { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("cannot open /nothing/libnvrtc.so"), "{text}");
        assert!(text.contains("FUSELINE_NVRTC"), "{text}");
        let error = compile_kernel("", "x", "sm_90a").unwrap_err();
        assert!(matches!(error, Error::NoNvrtc { .. }), "{error}");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let status = std::process::Command::new(own)
        .args(["--exact", "a_missing_compiler_is_an_error"])
        .env("FUSELINE_NVRTC", "/nothing/libnvrtc.so")
        .status()
        .unwrap();
    assert!(status.success());
}
