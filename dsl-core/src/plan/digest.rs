//! A number that names a compiled block: two programs with the same digest have the same graph
//! and the same plans.

use super::Plan;

/// The 64-bit FNV-1a hash of the graph's text and of every plan's report.
pub fn digest(ir: &str, plans: &[Plan]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(ir);
    plans.iter().for_each(|plan| add(&plan.explain()));
    hash
}
