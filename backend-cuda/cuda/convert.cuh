// Rounding to narrower types, and loads and stores that widen and round. Widening is exact;
// narrowing rounds to nearest, ties to even.

#ifndef FL_HOST
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
#if __CUDA_ARCH__ >= 890
// Eight bits: beyond the largest number, infinity included, the largest; NaN stays.
FL_DEVICE unsigned char fl_f32_to_e4m3(float x) {
    unsigned short y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
    return (unsigned char)y;
}
FL_DEVICE unsigned char fl_f32_to_e5m2(float x) {
    unsigned short y;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
    return (unsigned char)y;
}
FL_DEVICE float fl_e4m3_to_f32(unsigned char x) {
    unsigned y;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"((unsigned short)x));
    return fl_f16_to_f32((unsigned short)y);
}
FL_DEVICE float fl_e5m2_to_f32(unsigned char x) {
    unsigned y;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(y) : "h"((unsigned short)x));
    return fl_f16_to_f32((unsigned short)y);
}
#endif
#endif

FL_DEVICE float fl_bf16_to_f32(unsigned short x) { return fl_from_bits((unsigned)x << 16); }
FL_DEVICE float fl_round_f32(float x) { return x; }
FL_DEVICE float fl_round_f16(float x) { return fl_f16_to_f32(fl_f32_to_f16(x)); }
FL_DEVICE float fl_round_bf16(float x) { return fl_bf16_to_f32(fl_f32_to_bf16(x)); }

FL_ACCESS float fl_load_f16(const unsigned short* p, long long i) {
    return fl_f16_to_f32(fl_load_u16(p, i));
}
FL_ACCESS float fl_load_bf16(const unsigned short* p, long long i) {
    return fl_bf16_to_f32(fl_load_u16(p, i));
}
FL_ACCESS void fl_store_f16(unsigned short* p, long long i, float x) {
    fl_store_u16(p, i, fl_f32_to_f16(x));
}
FL_ACCESS void fl_store_bf16(unsigned short* p, long long i, float x) {
    fl_store_u16(p, i, fl_f32_to_bf16(x));
}

// Four or eight elements from element i on, where the plane begins at a multiple of 16 bytes and i
// is a multiple of as many.
FL_ACCESS void fl_load4_f32(const float* p, long long i, float* x) {
    const uint4 words = fl_load_words4((const unsigned char*)p, 4 * i);
    x[0] = fl_from_bits(words.x);
    x[1] = fl_from_bits(words.y);
    x[2] = fl_from_bits(words.z);
    x[3] = fl_from_bits(words.w);
}
FL_DEVICE void fl_widen_bf16x2(unsigned word, float* x) {
    x[0] = fl_from_bits(word << 16);
    x[1] = fl_from_bits(word & 0xffff0000u);
}
FL_DEVICE void fl_widen_f16x2(unsigned word, float* x) {
    x[0] = fl_f16_to_f32((unsigned short)word);
    x[1] = fl_f16_to_f32((unsigned short)(word >> 16));
}
FL_ACCESS void fl_load4_bf16(const unsigned short* p, long long i, float* x) {
    const uint2 words = fl_load_words2((const unsigned char*)p, 2 * i);
    fl_widen_bf16x2(words.x, x);
    fl_widen_bf16x2(words.y, x + 2);
}
FL_ACCESS void fl_load4_f16(const unsigned short* p, long long i, float* x) {
    const uint2 words = fl_load_words2((const unsigned char*)p, 2 * i);
    fl_widen_f16x2(words.x, x);
    fl_widen_f16x2(words.y, x + 2);
}
FL_ACCESS void fl_load8_f32(const float* p, long long i, float* x) {
    fl_load4_f32(p, i, x);
    fl_load4_f32(p, i + 4, x + 4);
}
FL_ACCESS void fl_load8_bf16(const unsigned short* p, long long i, float* x) {
    const uint4 words = fl_load_words4((const unsigned char*)p, 2 * i);
    fl_widen_bf16x2(words.x, x);
    fl_widen_bf16x2(words.y, x + 2);
    fl_widen_bf16x2(words.z, x + 4);
    fl_widen_bf16x2(words.w, x + 6);
}
FL_ACCESS void fl_load8_f16(const unsigned short* p, long long i, float* x) {
    const uint4 words = fl_load_words4((const unsigned char*)p, 2 * i);
    fl_widen_f16x2(words.x, x);
    fl_widen_f16x2(words.y, x + 2);
    fl_widen_f16x2(words.z, x + 4);
    fl_widen_f16x2(words.w, x + 6);
}
