//! Named machines that plans are made for. A plan depends on nothing else about a machine, so
//! planning needs no GPU and gives the same bytes everywhere.

/// A GPU, as far as planning cares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The name in plans.
    pub name: &'static str,
    /// The architecture that NVRTC compiles for.
    pub arch: &'static str,
    /// Multiprocessors of the reference machine of the architecture.
    pub n_sms: usize,
    /// Shared memory that one block can have.
    pub shared_bytes: usize,
    /// Bytes that one nanosecond of reading moves.
    pub dram_bytes_per_ns: f64,
    /// Thread instructions, as they are counted, that one nanosecond executes, all multiprocessors
    /// together.
    pub instructions_per_ns: f64,
    /// What one more kernel in a chain costs, bytes and arithmetic aside: a node of a graph takes
    /// 600 to 1000 ns, and what depends on it waits for its loads and stores to come and go. On the
    /// H200 a small kernel before a product cost 2600 to 5200 ns more than its work in every block
    /// (`benches/results/h200_matvec.json`); the other machines' numbers are in proportion.
    pub launch_ns: f64,
    /// Operations of an expression, as compilers of the field count them, beyond which it is not
    /// considered to compute it anew in every output of a matrix product.
    pub max_inline_ops: usize,
}

const KIB: usize = 1024;

/// The machines that every block is planned for. Shared memory is the opt-in limit of a block in
/// the CUDA programming guide's table of compute capabilities; multiprocessors, clocks and
/// bandwidths are the data sheets' of the machine named, except the H200's, whose bandwidth and
/// launch cost were measured.
pub const TARGETS: &[Target] = &[
    target("a100", "sm_80", 108, 163 * KIB, 1400.0, 1.41, 3900.0),
    target("rtx4090", "sm_89", 128, 99 * KIB, 930.0, 2.52, 3900.0),
    target("h200", "sm_90a", 132, 227 * KIB, 4450.0, 1.98, 3000.0),
    target("b200", "sm_100a", 148, 227 * KIB, 7000.0, 1.85, 3000.0),
    target("rtx5090", "sm_120a", 170, 99 * KIB, 1650.0, 2.41, 3400.0),
];

/// The machine whose speeds weigh one plan against another.
pub const REFERENCE: &Target = &TARGETS[2];

/// Shared memory that a block can have on every target: the partition is the same on all.
pub fn family_shared_bytes() -> usize {
    TARGETS.iter().map(|target| target.shared_bytes).min().unwrap_or(0)
}

/// Lanes of a multiprocessor that issue in one clock, on every architecture above.
const LANES: f64 = 128.0;

/// The part of those that counted instructions get: an operation compiles to more instructions than
/// are counted, and not every clock issues. Measured on the H200 with the template on lanes: the
/// estimates of the seed case at each place were 0.55 to 1.02 of the times, in their order
/// (`benches/results/h200_seed.json`).
const ISSUE_EFFICIENCY: f64 = 0.43;

const fn target(
    name: &'static str,
    arch: &'static str,
    n_sms: usize,
    shared_bytes: usize,
    dram_bytes_per_ns: f64,
    clock_ghz: f64,
    launch_ns: f64,
) -> Target {
    let instructions_per_ns = n_sms as f64 * LANES * clock_ghz * ISSUE_EFFICIENCY;
    Target {
        name,
        arch,
        n_sms,
        shared_bytes,
        dram_bytes_per_ns,
        instructions_per_ns,
        launch_ns,
        max_inline_ops: 30,
    }
}
