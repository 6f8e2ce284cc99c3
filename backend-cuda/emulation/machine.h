// What generated source names, for a host compiler: included before the source, which is then C++
// as it stands. Every function here has its definition for a GPU in the .cuh files.
//
// A pointer that a kernel gets is not an address: its upper bits say which parameter it is, and
// only the functions below find the memory. A kernel that dereferences one itself is stopped.

#ifndef FL_HOST
#define FL_HOST
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <utility>

#define FL_DEVICE static inline
// Faults are to name the line of the caller.
#define FL_ACCESS static inline __attribute__((always_inline))
#define FL_KERNEL(threads, blocks) static void
#define FL_TABLE static const
#define FL_RESTRICT __restrict__
#define FL_UNROLL
#define FL_UNROLL_BY(n)

// ---- what the emulator provides (emulator.h)

// What threads wait for. Different kinds of exchange are different waits.
constexpr int FL_EXCHANGED = 8;
enum class FlWait { Barrier, Shuffle, Ballot, Any, All, Multiply };

extern "C" {
// The memory behind `bytes` bytes at `p`, checked.
const void* fl_read(const void* p, unsigned bytes);
void* fl_write(void* p, unsigned bytes);
void* fl_atomic(void* p, unsigned bytes);
// The same of shared memory, for element `i` of `n` of an array that begins at byte `base`.
const void* fl_shared_read(unsigned base, long long i, int n, unsigned bytes, const char* name);
void* fl_shared_write(unsigned base, long long i, int n, unsigned bytes, const char* name);
// Copies of a thread to an array of shared memory, in groups: `fl_copy_arrive` writes all but the
// last `n` groups.
void fl_copy_ask(unsigned base, long long i, int n, unsigned element, unsigned bytes,
                 const char* name, const void* from);
void fl_copy_commit();
void fl_copy_arrive(int n);
// Where an array of the block's static shared memory begins; `key` is the array's own.
unsigned fl_shared_static(const void* key, unsigned bytes);
// Waits for all threads of the block. Threads that wait at different lines diverge.
void fl_wait_block(int line);
// Waits for all lanes of the warp, and gives the numbers that they brought.
const unsigned* fl_wait_warp(unsigned own, FlWait kind, int line);
// The same for several numbers a lane: `[lane][FL_EXCHANGED]`, of which each brought `n`.
const unsigned* fl_wait_warp_words(const unsigned* own, int n, FlWait kind, int line);
// Waits for all lanes of the warp; what they wrote is seen by all after that.
void fl_order_warp(int line);
int fl_block();
int fl_thread();
}

// A kernel as the emulator calls it.
struct FlKernel {
    const char* name;
    // One letter a parameter: r and w for pointers that are read and written, i and f for numbers.
    const char* parameters;
    void (*call)(void* const* places);
};

template <class T> struct FlLetter;
template <class T> struct FlLetter<const T*> { static constexpr char letter = 'r'; };
template <class T> struct FlLetter<T*> { static constexpr char letter = 'w'; };
template <> struct FlLetter<int> { static constexpr char letter = 'i'; };
template <> struct FlLetter<float> { static constexpr char letter = 'f'; };

template <auto kernel> struct FlEntry;
template <class... A, void (*kernel)(A...)> struct FlEntry<kernel> {
    static constexpr char parameters[] = {FlLetter<A>::letter..., 0};
    template <size_t... I> static void spread(void* const* places, std::index_sequence<I...>) {
        kernel(*(A*)places[I]...);
    }
    static void call(void* const* places) { spread(places, std::index_sequence_for<A...>()); }
};
#define FL_ENTRY(space, kernel) \
    { #kernel, FlEntry<&space::kernel>::parameters, FlEntry<&space::kernel>::call }
// The kernels of a library, as the emulator finds them.
extern "C" const FlKernel fl_kernels[];
extern "C" const int fl_n_kernels;

// ---- vectors

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

// ---- global memory (memory.cuh)

template <class T> FL_ACCESS T fl_get(const void* p) { return *(const T*)fl_read(p, sizeof(T)); }
template <class T> FL_ACCESS void fl_put(T* p, T x) { *(T*)fl_write(p, sizeof(T)) = x; }

FL_ACCESS float fl_load_f32(const float* p, long long i) { return fl_get<float>(p + i); }
FL_ACCESS int fl_load_i32(const int* p, long long i) { return fl_get<int>(p + i); }
FL_ACCESS unsigned short fl_load_u16(const unsigned short* p, long long i) {
    return fl_get<unsigned short>(p + i);
}
FL_ACCESS unsigned fl_load_word(const unsigned char* p, long long i) {
    return fl_get<unsigned>(p + i);
}
FL_ACCESS uint2 fl_load_words2(const unsigned char* p, long long i) { return fl_get<uint2>(p + i); }
FL_ACCESS uint4 fl_load_words4(const unsigned char* p, long long i) { return fl_get<uint4>(p + i); }
FL_ACCESS void fl_store_f32(float* p, long long i, float x) { fl_put(p + i, x); }
FL_ACCESS void fl_store_i32(int* p, long long i, int x) { fl_put(p + i, x); }
FL_ACCESS void fl_store_u16(unsigned short* p, long long i, unsigned short x) { fl_put(p + i, x); }

// ---- shared memory (memory.cuh)

// An element; reading and writing it are checked.
template <class T> struct FlSharedElement {
    unsigned base;
    long long i;
    int n;
    const char* name;
    __attribute__((always_inline)) operator T() const {
        return *(const T*)fl_shared_read(base, i, n, sizeof(T), name);
    }
    __attribute__((always_inline)) T operator=(T x) const {
        return *(T*)fl_shared_write(base, i, n, sizeof(T), name) = x;
    }
    __attribute__((always_inline)) T operator=(const FlSharedElement& x) const { return *this = (T)x; }
};
template <class T> struct FlSharedArray {
    unsigned base;
    int n;
    const char* name;
    __attribute__((always_inline)) FlSharedElement<T> operator[](long long i) const {
        return {base, i, n, name};
    }
};
typedef FlSharedArray<float> fl_shared_floats;
typedef FlSharedArray<uint4> fl_shared_words4;
typedef FlSharedArray<unsigned> fl_shared_words;
#define FL_SHARED_WORDS(name, at, n) const fl_shared_words name = {4u * (at), n, #name}
#define FL_SHARED_WORDS4(name, at, n) const fl_shared_words4 name = {4u * (at), n, #name}
#define FL_SHARED_FLOATS(name, at, n) const fl_shared_floats name = {4u * (at), n, #name}
#define FL_STATIC_SHARED_FLOATS(name, n) \
    static const char fl_key_##name = 0; \
    const fl_shared_floats name = {fl_shared_static(&fl_key_##name, 4u * (n)), n, #name}

// ---- threads (threads.cuh)

// Kernels run one after the other.
FL_DEVICE void fl_begin_kernel() {}
FL_ACCESS void fl_barrier(int line = __builtin_LINE()) { fl_wait_block(line); }
FL_ACCESS void fl_warp_barrier(int line = __builtin_LINE()) { fl_order_warp(line); }
FL_DEVICE unsigned fl_word(float x) { unsigned word; memcpy(&word, &x, 4); return word; }
FL_DEVICE float fl_number(unsigned word) { float x; memcpy(&x, &word, 4); return x; }
FL_ACCESS unsigned fl_shuffle_u32(unsigned x, int lane, int line = __builtin_LINE()) {
    return fl_wait_warp(x, FlWait::Shuffle, line)[lane & 31];
}
FL_ACCESS float fl_shuffle(float x, int lane, int line = __builtin_LINE()) {
    return fl_number(fl_shuffle_u32(fl_word(x), lane, line));
}
FL_ACCESS float fl_shuffle_xor(float x, int mask, int line = __builtin_LINE()) {
    return fl_shuffle(x, fl_thread() % 32 ^ mask, line);
}
FL_ACCESS int fl_shuffle_xor_i32(int x, int mask, int line = __builtin_LINE()) {
    return (int)fl_shuffle_u32((unsigned)x, fl_thread() % 32 ^ mask, line);
}
// Beyond the warp's end a lane gets its own number.
FL_ACCESS float fl_shuffle_down(float x, int by, int line = __builtin_LINE()) {
    const int lane = fl_thread() % 32;
    return fl_shuffle(x, lane + by < 32 ? lane + by : lane, line);
}
FL_ACCESS float fl_shuffle_up(float x, int by, int line = __builtin_LINE()) {
    const int lane = fl_thread() % 32;
    return fl_shuffle(x, lane >= by ? lane - by : lane, line);
}
FL_ACCESS unsigned fl_votes(bool x, FlWait kind, int line) {
    const unsigned* votes = fl_wait_warp(x, kind, line);
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++) ballot |= votes[lane] << lane;
    return ballot;
}
FL_ACCESS unsigned fl_ballot(bool x, int line = __builtin_LINE()) {
    return fl_votes(x, FlWait::Ballot, line);
}
FL_ACCESS bool fl_any(bool x, int line = __builtin_LINE()) {
    return fl_votes(x, FlWait::Any, line) != 0;
}
FL_ACCESS bool fl_all(bool x, int line = __builtin_LINE()) {
    return ~fl_votes(x, FlWait::All, line) == 0;
}

template <class T, class F> FL_ACCESS T fl_modify(T* p, F change) {
    T* place = (T*)fl_atomic(p, sizeof(T));
    const T before = *place;
    *place = change(before);
    return before;
}
FL_ACCESS int fl_atomic_add_i32(int* p, long long i, int x) {
    return fl_modify(p + i, [=](int y) { return (int)((unsigned)y + (unsigned)x); });
}
// Without the flush of subnormal numbers that a GPU may do.
FL_ACCESS float fl_atomic_add_f32(float* p, long long i, float x) {
    return fl_modify(p + i, [=](float y) { return y + x; });
}
FL_ACCESS int fl_atomic_max_i32(int* p, long long i, int x) {
    return fl_modify(p + i, [=](int y) { return y > x ? y : x; });
}
FL_ACCESS int fl_atomic_exchange_i32(int* p, long long i, int x) {
    return fl_modify(p + i, [=](int) { return x; });
}
FL_ACCESS int fl_atomic_compare_i32(int* p, long long i, int expected, int x) {
    return fl_modify(p + i, [=](int y) { return y == expected ? x : y; });
}

// ---- arithmetic (math.cuh)

FL_DEVICE float fl_fma(float a, float b, float c) { return fmaf(a, b, c); }
FL_DEVICE float fl_div(float a, float b) { return a / b; }
FL_DEVICE float fl_sqrt_rn(float x) { return sqrtf(x); }
FL_DEVICE unsigned fl_bits(float x) { return fl_word(x); }
FL_DEVICE float fl_from_bits(unsigned bits) { return fl_number(bits); }
FL_DEVICE float fl_from_i32(int x) { return (float)x; }
FL_DEVICE float fl_from_i64(long long x) { return (float)x; }

// ---- narrow types (convert.cuh)

// A number to a type of `fraction` fraction bits whose least exponent is `min_exponent`: the bits
// above the sign, rounded to nearest, ties to even. `x` is finite; what it gives may be beyond the
// type's largest number.
FL_DEVICE unsigned fl_narrow(float x, int fraction, int min_exponent) {
    const unsigned bits = fl_bits(x) & 0x7fffffffu;
    const int exponent = (int)(bits >> 23) - 127;
    const unsigned significand = (bits & 0x7fffffu) | 0x800000u;
    // Below the least exponent the significand loses bits, down to none.
    int shift = 23 - fraction + (exponent < min_exponent ? min_exponent - exponent : 0);
    if (shift > 25 || bits < 0x800000u) return 0;
    const unsigned half = 1u << (shift - 1);
    const unsigned kept = (significand + half - 1 + (significand >> shift & 1u)) >> shift;
    // A carry out of the significand goes into the exponent.
    const int biased = exponent < min_exponent ? 0 : exponent - min_exponent;
    return ((unsigned)biased << fraction) + kept;
}
// The number of a finite code without sign.
FL_DEVICE float fl_widen(unsigned code, int fraction, int min_exponent) {
    const unsigned biased = code >> fraction;
    const unsigned significand = (code & ((1u << fraction) - 1u)) | (biased ? 1u << fraction : 0u);
    return ldexpf((float)significand, (int)(biased ? biased - 1 : 0) + min_exponent - fraction);
}
FL_DEVICE unsigned fl_sign(float x) { return fl_bits(x) >> 31; }

FL_DEVICE float fl_f16_to_f32(unsigned short x) {
    const unsigned code = x & 0x7fffu;
    const unsigned sign = (unsigned)(x >> 15) << 31;
    if (code >= 0x7c00u) return fl_from_bits(code > 0x7c00u ? 0x7fffffffu : sign | 0x7f800000u);
    return fl_from_bits(fl_bits(fl_widen(code, 10, -14)) | sign);
}
FL_DEVICE unsigned short fl_f32_to_f16(float x) {
    if (x != x) return 0x7fff;
    const unsigned code = isinf(x) ? 0x7c00u : fl_narrow(x, 10, -14);
    return (unsigned short)((code > 0x7c00u ? 0x7c00u : code) | fl_sign(x) << 15);
}
FL_DEVICE unsigned short fl_f32_to_bf16(float x) {
    if (x != x) return 0x7fff;
    const unsigned bits = fl_bits(x);
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// Beyond the largest number, infinity included, the largest; NaN stays.
FL_DEVICE unsigned char fl_f32_to_e4m3(float x) {
    if (x != x) return 0x7f;
    const unsigned code = isinf(x) ? 0x7fu : fl_narrow(x, 3, -6);
    return (unsigned char)((code > 0x7eu ? 0x7eu : code) | fl_sign(x) << 7);
}
FL_DEVICE unsigned char fl_f32_to_e5m2(float x) {
    if (x != x) return 0x7f;
    const unsigned code = isinf(x) ? 0x7fu : fl_narrow(x, 2, -14);
    return (unsigned char)((code > 0x7bu ? 0x7bu : code) | fl_sign(x) << 7);
}
FL_DEVICE float fl_e4m3_to_f32(unsigned char x) {
    const unsigned sign = (unsigned)(x >> 7) << 31;
    if ((x & 0x7f) == 0x7f) return fl_from_bits(0x7fffffffu);
    return fl_from_bits(fl_bits(fl_widen(x & 0x7fu, 3, -6)) | sign);
}
FL_DEVICE float fl_e5m2_to_f32(unsigned char x) { return fl_f16_to_f32((unsigned short)(x << 8)); }

// ---- copies in flight (matrix.cuh)

// What was copied is not there before the thread waits for it.
FL_ACCESS void fl_copy_words4(fl_shared_words4 to, int i, const unsigned char* p, long long at) {
    fl_copy_ask(to.base, i, to.n, 16, 16, to.name, fl_read(p + at, 16));
}
template <int n>
FL_ACCESS void fl_copy_words(fl_shared_words to, int i, const void* p, long long at) {
    fl_copy_ask(to.base, i, to.n, 4, 4 * n, to.name, fl_read((const unsigned char*)p + at, 4 * n));
}
template <int n> FL_ACCESS void fl_copy_wait() { fl_copy_arrive(n); }

// ---- matrix instructions (matrix.cuh)

FL_DEVICE float fl_half_of(unsigned pair, int i) {
    return fl_from_bits(i ? pair & 0xffff0000u : pair << 16);
}
// The products are exact, and so is their sum here but for the last bits of a double. A GPU keeps
// fewer bits of it; PTX leaves open how many.
FL_ACCESS void fl_multiply_bf16(float* d, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                unsigned b0, unsigned b1, int line = __builtin_LINE()) {
    const unsigned own[6] = {a0, a1, a2, a3, b0, b1};
    const unsigned* all = fl_wait_warp_words(own, 6, FlWait::Multiply, line);
    const int lane = fl_thread() % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4, column = 2 * (lane % 4) + i % 2;
        double sum = d[i];
        for (int t = 0; t < 4; t++) {
            const unsigned* a = all + (4 * row + t) * FL_EXCHANGED + i / 2;
            const unsigned* b = all + (4 * column + t) * FL_EXCHANGED + 4;
            for (int half = 0; half < 2; half++) {
                sum += (double)fl_half_of(a[0], half) * fl_half_of(b[0], half);
                sum += (double)fl_half_of(a[2], half) * fl_half_of(b[1], half);
            }
        }
        d[i] = (float)sum;
    }
}
FL_DEVICE unsigned fl_pack_bf16x2(float low, float high) {
    return fl_f32_to_bf16(low) | (unsigned)fl_f32_to_bf16(high) << 16;
}
FL_DEVICE unsigned fl_add_bf16x2(unsigned a, unsigned b) {
    // A sum of two is exact in f32 where their exponents are near, as those of codes are.
    return fl_pack_bf16x2(fl_half_of(a, 0) + fl_half_of(b, 0), fl_half_of(a, 1) + fl_half_of(b, 1));
}
FL_DEVICE unsigned fl_and_or(unsigned a, unsigned b, unsigned c) { return (a & b) | c; }
FL_DEVICE unsigned fl_pick_bytes(unsigned a, unsigned b, unsigned digits) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) {
        y |= (unsigned)(bytes >> 8 * (digits >> 4 * i & 7u) & 0xffu) << 8 * i;
    }
    return y;
}
#endif
