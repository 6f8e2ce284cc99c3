// The functions of memory.cuh and the intrinsics of math.cuh for a host compiler: the threads of
// a block are fibers that run until they wait for each other. Included before a generated source.

#define FL_HOST
#define FL_HOST_INTRINSICS
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <math.h>
#include <ucontext.h>
#include <utility>
#define FL_DEVICE static inline
#define FL_KERNEL(threads) extern "C" void
#define FL_TABLE static const
#define FL_SHARED static
#define FL_DYNAMIC_SHARED(name) float* name = fl_shared_memory
#define FL_RESTRICT __restrict__
#define FL_UNROLL

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };

// Threads that wait for each other, some of which have returned.
struct FlGroup {
    int arrived, alive;
    long turn;
};
constexpr int FL_MAX_THREADS = 1024, FL_STACK_BYTES = 65536;
static struct {
    jmp_buf place;
    ucontext_t start;
    bool begun, done;
    char* stack;
} fl_fibers[FL_MAX_THREADS];
static FlGroup fl_all, fl_warps[FL_MAX_THREADS / 32];
static int fl_block_index, fl_thread_index;
static float* fl_shared_memory;
static unsigned fl_slots[2][FL_MAX_THREADS];
static jmp_buf fl_scheduler;
static void (*fl_body)();

static void fl_yield() {
    if (!_setjmp(fl_fibers[fl_thread_index].place)) _longjmp(fl_scheduler, 1);
}
static void fl_wait(FlGroup& group) {
    const long turn = group.turn;
    if (++group.arrived == group.alive) {
        group.arrived = 0;
        group.turn++;
    } else {
        while (group.turn == turn) fl_yield();
    }
}
static void fl_leave(FlGroup& group) {
    if (--group.alive > 0 && group.arrived == group.alive) {
        group.arrived = 0;
        group.turn++;
    }
}
static void fl_fiber() {
    fl_body();
    fl_fibers[fl_thread_index].done = true;
    fl_leave(fl_all);
    fl_leave(fl_warps[fl_thread_index / 32]);
    _longjmp(fl_scheduler, 1);
}

// Runs `body` as every thread of every block.
extern "C" void fl_run(void (*body)(), int n_blocks, int n_threads, int shared_bytes) {
    fl_body = body;
    fl_shared_memory = (float*)aligned_alloc(16, (shared_bytes + 31) / 16 * 16);
    for (int block = 0; block < n_blocks; block++) {
        fl_block_index = block;
        memset(fl_shared_memory, 0xff, shared_bytes);
        fl_all = {0, n_threads, 0};
        for (int warp = 0; warp * 32 < n_threads; warp++) fl_warps[warp] = {0, 32, 0};
        for (int thread = 0; thread < n_threads; thread++) {
            auto& fiber = fl_fibers[thread];
            if (!fiber.stack) fiber.stack = (char*)malloc(FL_STACK_BYTES);
            fiber.begun = fiber.done = false;
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = fiber.stack;
            fiber.start.uc_stack.ss_size = FL_STACK_BYTES;
            fiber.start.uc_link = nullptr;
            makecontext(&fiber.start, fl_fiber, 0);
        }
        volatile bool waiting = true;
        while (waiting) {
            waiting = false;
            for (volatile int thread = 0; thread < n_threads; thread = thread + 1) {
                auto& fiber = fl_fibers[thread];
                if (fiber.done) continue;
                waiting = true;
                fl_thread_index = thread;
                if (_setjmp(fl_scheduler)) continue;
                if (fiber.begun) _longjmp(fiber.place, 1);
                fiber.begun = true;
                setcontext(&fiber.start);
            }
        }
    }
    free(fl_shared_memory);
}

// Calls a kernel with the arguments that `places` point to.
static void** fl_places;
template <class... A, size_t... I>
static void fl_call(void (*kernel)(A...), std::index_sequence<I...>) {
    kernel(*(A*)fl_places[I]...);
}
template <class... A> static void fl_call(void (*kernel)(A...)) {
    fl_call(kernel, std::index_sequence_for<A...>());
}
#define FL_LAUNCHER(kernel)                                                            \
    extern "C" void fl_launch_##kernel(void** places, int grid, int block, int shared) { \
        fl_places = places;                                                            \
        fl_run([] { fl_call(kernel); }, grid, block, shared);                          \
    }

FL_DEVICE int fl_block() { return fl_block_index; }
FL_DEVICE int fl_thread() { return fl_thread_index; }
FL_DEVICE void fl_barrier() { fl_wait(fl_all); }
template <class T> static T fl_exchange(T x, int mask) {
    const int thread = fl_thread_index;
    FlGroup& warp = fl_warps[thread / 32];
    unsigned* slots = fl_slots[warp.turn % 2];
    memcpy(&slots[thread], &x, 4);
    fl_wait(warp);
    memcpy(&x, &slots[thread ^ mask], 4);
    return x;
}
FL_DEVICE float fl_shuffle_xor(float x, int mask) { return fl_exchange(x, mask); }
FL_DEVICE int fl_shuffle_xor_i32(int x, int mask) { return fl_exchange(x, mask); }

FL_DEVICE float fl_load_f32(const float* p, long long i) { return p[i]; }
FL_DEVICE int fl_load_i32(const int* p, long long i) { return p[i]; }
FL_DEVICE unsigned short fl_load_u16(const unsigned short* p, long long i) { return p[i]; }
FL_DEVICE unsigned fl_load_word(const unsigned char* p, long long i) { return *(const unsigned*)(p + i); }
FL_DEVICE uint2 fl_load_words2(const unsigned char* p, long long i) { return *(const uint2*)(p + i); }
FL_DEVICE uint4 fl_load_words4(const unsigned char* p, long long i) { return *(const uint4*)(p + i); }
FL_DEVICE void fl_store_f32(float* p, long long i, float x) { p[i] = x; }
FL_DEVICE void fl_store_i32(int* p, long long i, int x) { p[i] = x; }
FL_DEVICE void fl_store_u16(unsigned short* p, long long i, unsigned short x) { p[i] = x; }

FL_DEVICE float fl_fma(float a, float b, float c) { return fmaf(a, b, c); }
FL_DEVICE float fl_div(float a, float b) { return a / b; }
FL_DEVICE float fl_sqrt_rn(float x) { return sqrtf(x); }
FL_DEVICE unsigned fl_bits(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
FL_DEVICE float fl_from_bits(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
FL_DEVICE float fl_from_i32(int x) { return (float)x; }
FL_DEVICE float fl_from_i64(long long x) { return (float)x; }
FL_DEVICE float fl_f16_to_f32(unsigned short x) { _Float16 y; memcpy(&y, &x, 2); return y; }
FL_DEVICE unsigned short fl_f32_to_f16(float x) { _Float16 y = x; unsigned short b; memcpy(&b, &y, 2); return b; }
FL_DEVICE unsigned short fl_f32_to_bf16(float x) {
    const unsigned bits = fl_bits(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
