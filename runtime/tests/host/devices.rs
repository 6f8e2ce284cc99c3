//! Devices, and what may cross threads.

use crate::recorder::Recorder;
use fuseline_runtime::private::Block;
use fuseline_runtime::{Arena, Device, Error, Index, KvCache, Q8_0, Tensor, Tokens, Weight};

#[test]
fn the_cpu_is_one_device_and_others_are_not_it() {
    assert_eq!(Device::cpu(), Device::cpu());
    assert_eq!(Device::best().unwrap(), Device::cpu());
    let (first, second) = (Recorder::device().0, Recorder::device().0);
    assert_eq!(first, first.clone());
    assert_ne!(first, second);
    assert_eq!(format!("{first:?}"), "Device(\"the recorder\")");
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
