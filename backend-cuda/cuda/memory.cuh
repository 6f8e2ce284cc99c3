// Access to memory and to the machine. Kernels touch global memory only through these functions,
// so that the same text can be run and checked without a GPU. No header is included.

#ifndef FL_HOST
#define FL_DEVICE static __device__ __forceinline__
#define FL_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define FL_TABLE static __device__ const
#define FL_SHARED __shared__
#define FL_DYNAMIC_SHARED(name) extern __shared__ float name[]
#define FL_RESTRICT __restrict__
#define FL_UNROLL _Pragma("unroll")

FL_DEVICE int fl_block() { return (int)blockIdx.x; }
FL_DEVICE int fl_thread() { return (int)threadIdx.x; }
FL_DEVICE void fl_barrier() { __syncthreads(); }
FL_DEVICE float fl_shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FL_DEVICE int fl_shuffle_xor_i32(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

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

// Widening is exact; narrowing rounds to nearest, ties to even.
FL_DEVICE float fl_f16_to_f32(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
FL_DEVICE unsigned short fl_f32_to_f16(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
FL_DEVICE unsigned short fl_f32_to_bf16(float x) {
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#endif
