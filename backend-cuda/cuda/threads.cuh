// The threads of a block, and what they tell each other.

#ifndef FL_HOST
FL_DEVICE int fl_block() { return (int)blockIdx.x; }
FL_DEVICE int fl_thread() { return (int)threadIdx.x; }

// The first thing that every kernel does: lets the next kernel of the stream begin, and waits for
// those before this one, if they were launched so; what they wrote is there then.
FL_DEVICE void fl_begin_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Every thread of the block calls it; what any wrote before, all see after it.
FL_DEVICE void fl_barrier() { __syncthreads(); }
// The same for the lanes of a warp. The exchanges below do not order memory.
FL_DEVICE void fl_warp_barrier() { __syncwarp(); }

// Exchanges: every lane of the warp calls them. `up` and `down` give a lane its own number where
// there is no other.
#define FL_WARP 0xffffffffu
FL_DEVICE float fl_shuffle(float x, int lane) { return __shfl_sync(FL_WARP, x, lane); }
FL_DEVICE float fl_shuffle_xor(float x, int mask) { return __shfl_xor_sync(FL_WARP, x, mask); }
FL_DEVICE int fl_shuffle_xor_i32(int x, int mask) { return __shfl_xor_sync(FL_WARP, x, mask); }
FL_DEVICE float fl_shuffle_down(float x, int by) { return __shfl_down_sync(FL_WARP, x, by); }
FL_DEVICE float fl_shuffle_up(float x, int by) { return __shfl_up_sync(FL_WARP, x, by); }
FL_DEVICE unsigned fl_ballot(bool x) { return __ballot_sync(FL_WARP, x); }
FL_DEVICE bool fl_any(bool x) { return __any_sync(FL_WARP, x); }
FL_DEVICE bool fl_all(bool x) { return __all_sync(FL_WARP, x); }

// What was there before. Sums of floats in an order that differs between runs.
FL_DEVICE int fl_atomic_add_i32(int* p, long long i, int x) { return atomicAdd(p + i, x); }
FL_DEVICE float fl_atomic_add_f32(float* p, long long i, float x) { return atomicAdd(p + i, x); }
FL_DEVICE int fl_atomic_max_i32(int* p, long long i, int x) { return atomicMax(p + i, x); }
FL_DEVICE int fl_atomic_exchange_i32(int* p, long long i, int x) { return atomicExch(p + i, x); }
FL_DEVICE int fl_atomic_compare_i32(int* p, long long i, int expected, int x) {
    return atomicCAS(p + i, expected, x);
}
#endif
