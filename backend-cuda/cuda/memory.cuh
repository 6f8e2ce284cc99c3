// Access to memory. Kernels touch global memory only through these functions and shared memory
// only through these arrays, so that the same text can be run and checked without a GPU: a host
// compiler gets other definitions of all that stands between `#ifndef FL_HOST` and `#endif`, here
// and in the other files. No header is included.

#ifndef FL_HOST
#define FL_DEVICE static __device__ __forceinline__
// A function of memory that is made of others.
#define FL_ACCESS FL_DEVICE
// Threads of a block, and blocks that a multiprocessor is to hold at once.
#define FL_KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define FL_TABLE static __device__ const
#define FL_RESTRICT __restrict__
#define FL_PRAGMA(text) _Pragma(#text)
#define FL_UNROLL FL_PRAGMA(unroll)
// So many turns of a loop are made one.
#define FL_UNROLL_BY(n) FL_PRAGMA(unroll n)

FL_DEVICE float fl_load_f32(const float* p, long long i) { return p[i]; }
FL_DEVICE int fl_load_i32(const int* p, long long i) { return p[i]; }
FL_DEVICE unsigned short fl_load_u16(const unsigned short* p, long long i) { return p[i]; }
// 4, 8 and 16 bytes of a plane of codes, from byte i on; i is a multiple of as many.
FL_DEVICE unsigned fl_load_word(const unsigned char* p, long long i) {
    return *(const unsigned*)(p + i);
}
FL_DEVICE uint2 fl_load_words2(const unsigned char* p, long long i) {
    return *(const uint2*)(p + i);
}
FL_DEVICE uint4 fl_load_words4(const unsigned char* p, long long i) {
    return *(const uint4*)(p + i);
}
FL_DEVICE void fl_store_f32(float* p, long long i, float x) { p[i] = x; }
FL_DEVICE void fl_store_i32(int* p, long long i, int x) { p[i] = x; }
FL_DEVICE void fl_store_u16(unsigned short* p, long long i, unsigned short x) { p[i] = x; }

// An array of n numbers in shared memory: from number `at` of what the launch asks for on, or of
// its own.
extern __shared__ float fl_shared[];
typedef float* fl_shared_floats;
#define FL_SHARED_FLOATS(name, at, n) float* const name = fl_shared + (at)
#define FL_STATIC_SHARED_FLOATS(name, n) __shared__ float name[n]
#endif

// The byte of the n-th word of a row in a chunk of narrow codes: 4 by 4 words are transposed.
FL_DEVICE int fl_word_at(int n) { return n % 4 * 16 + n / 4 * 4; }
