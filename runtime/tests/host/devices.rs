//! Devices, and what may cross threads.

use crate::recorder::Recorder;
use fuseline_runtime::block::{Arena, Block};
use fuseline_runtime::cache::{Index, KvCache};
use fuseline_runtime::device::Device;
use fuseline_runtime::element::Q8_0;
use fuseline_runtime::error::Error;
use fuseline_runtime::tensor::{Tensor, Tokens};
use fuseline_runtime::weight::Weight;

#[test]
fn clones_are_the_device_and_others_are_not_it() {
    // What is made in two places goes together.
    assert!(Device::cpu().is(&Device::best().unwrap()));
    let (first, second) = (Recorder::device().0, Recorder::device().0);
    assert!(first.is(&first.clone()));
    assert!(!first.is(&second));
    assert_eq!(format!("{first:?}"), "Device(the recorder)");
}

#[test]
fn everything_crosses_threads() {
    fn check<T: Send + Sync>() {}
    check::<Device>();
    check::<Block>();
    check::<Arena>();
    check::<Error>();
    check::<Tensor<f32, 1>>();
    check::<Tokens<1>>();
    check::<Index<1>>();
    check::<Weight<Q8_0, 1, 32>>();
    check::<KvCache<f32, 1, 1, 1, 1>>();
}
