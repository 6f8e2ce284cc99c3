// Fuseline's own f32 functions: the text of fuseline_core::math, operation for operation, so that
// every result that is a number has the same bits here and on the CPU. Error bounds and the source
// of the coefficients stand there; what is changed here is changed there too.
//
// Needs FL_DEVICE and no include. Compiled without contraction (--fmad=false), with subnormals and
// with IEEE division and square root. Only the wrappers in the first section name intrinsics.

#ifndef FL_HOST
FL_DEVICE float fl_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FL_DEVICE float fl_div(float a, float b) { return __fdiv_rn(a, b); }
FL_DEVICE float fl_sqrt_rn(float x) { return __fsqrt_rn(x); }
FL_DEVICE unsigned fl_bits(float x) { return __float_as_uint(x); }
FL_DEVICE float fl_from_bits(unsigned bits) { return __uint_as_float(bits); }
FL_DEVICE float fl_from_i32(int x) { return __int2float_rn(x); }
FL_DEVICE float fl_from_i64(long long x) { return __ll2float_rn(x); }
#endif

// 12582912: added to |x| < 2^22, it leaves the nearest integer in the low bits.
#define FL_SHIFT 12582912.0f
#define FL_LOG2_E 1.442695f
#define FL_LN_2 0.6931472f
#define FL_LN_2_LOW (-1.9046542e-9f)
#define FL_TWO_PI 6.2831855f
#define FL_TWO_PI_LOW (-1.7484555e-7f)
#define FL_SQRT_HALF 0.70710677f
#define FL_SQRT_HALF_BITS 0x3f3504f3u
#define FL_INFINITY_BITS 0x7f800000u
#define FL_SIGN 0x80000000u

FL_DEVICE float fl_abs(float x) { return fl_from_bits(fl_bits(x) & ~FL_SIGN); }

// magnitude, which is not negative, with the sign of sign.
FL_DEVICE float fl_with_sign(float magnitude, float sign) {
    return fl_from_bits(fl_bits(magnitude) | (fl_bits(sign) & FL_SIGN));
}

// 2^n for n in -126 ..= 127, from n as a two's complement number.
FL_DEVICE float fl_power_of_two(unsigned n) { return fl_from_bits((n + 127u) << 23); }

FL_DEVICE bool fl_is_nan(float x) { return x != x; }

// e^x. Infinite above 88.72, subnormal results correct, 0 below -103.97.
FL_DEVICE float fl_exp(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float shifted = fl_fma(x, FL_LOG2_E, FL_SHIFT);
    float n = shifted - FL_SHIFT;
    float r = fl_fma(n, -FL_LN_2_LOW, fl_fma(n, -FL_LN_2, x));
    float p = 0.001381432f;
    p = fl_fma(p, r, 0.008368851f);
    p = fl_fma(p, r, 0.0416684f);
    p = fl_fma(p, r, 0.1666652f);
    p = fl_fma(p, r, 0.49999994f);
    float e_r = fl_fma(p, r * r, r) + 1.0f;
    // Two factors: 2^128 and 2^-150 are not normal numbers. Only the second product rounds.
    unsigned bits = fl_bits(shifted) - fl_bits(FL_SHIFT);
    unsigned half = (unsigned)((int)bits >> 1);
    return e_r * fl_power_of_two(half) * fl_power_of_two(bits - half);
}

// The natural logarithm. -inf at 0, NaN below.
FL_DEVICE float fl_log(float x) {
    bool subnormal = x < 1.17549435e-38f;
    float normal = subnormal ? x * 8388608.0f : x;
    float bias = subnormal ? -23.0f : 0.0f;
    // Exponent and significand of a number between sqrt(1/2) and sqrt(2).
    unsigned bits = fl_bits(normal) - FL_SQRT_HALF_BITS;
    float n = fl_from_i32((int)bits >> 23) + bias;
    float f = fl_from_bits((bits & 0x007fffffu) + FL_SQRT_HALF_BITS) - 1.0f;
    float p = -0.07634498f;
    p = fl_fma(p, f, 0.12761578f);
    p = fl_fma(p, f, -0.13160183f);
    p = fl_fma(p, f, 0.14201757f);
    p = fl_fma(p, f, -0.16623357f);
    p = fl_fma(p, f, 0.20001227f);
    p = fl_fma(p, f, -0.2500082f);
    p = fl_fma(p, f, 0.3333333f);
    float curve = fl_fma(p, f, -0.5f);
    float low = fl_fma(f * f, curve, n * FL_LN_2_LOW);
    float result = fl_fma(n, FL_LN_2, f + low);
    result = x < fl_from_bits(FL_INFINITY_BITS) ? result : x;
    result = x == 0.0f ? fl_from_bits(FL_INFINITY_BITS | FL_SIGN) : result;
    return x < 0.0f ? fl_from_bits(0x7fc00000u) : result;
}

// The hyperbolic tangent.
FL_DEVICE float fl_tanh(float x) {
    float a = fl_abs(x);
    float square = a * a;
    float p = -0.0062742396f;
    p = fl_fma(p, square, 0.02107168f);
    p = fl_fma(p, square, -0.05385231f);
    p = fl_fma(p, square, 0.13332586f);
    p = fl_fma(p, square, -0.33333316f);
    float small = fl_fma(a * square, p, a);
    float large = 1.0f - fl_div(2.0f, fl_exp(a + a) + 1.0f);
    return fl_with_sign(a < 0.55f ? small : large, x);
}

// erf(a) for a on [0, 1].
FL_DEVICE float fl_erf_small(float a) {
    float square = a * a;
    float p = 7.8538615e-5f;
    p = fl_fma(p, square, -0.00080101937f);
    p = fl_fma(p, square, 0.0051883277f);
    p = fl_fma(p, square, -0.026853813f);
    p = fl_fma(p, square, 0.112835854f);
    p = fl_fma(p, square, -0.37612626f);
    p = fl_fma(p, square, 0.12837917f);
    return fl_fma(a, p, a);
}

// 1 - erf(a) for a from 1 on.
FL_DEVICE float fl_erfc_large(float a) {
    float p = 5.7664046e-8f;
    p = fl_fma(p, a, -2.5639838e-6f);
    p = fl_fma(p, a, 5.0631148e-5f);
    p = fl_fma(p, a, -0.0005920123f);
    p = fl_fma(p, a, 0.0046186633f);
    p = fl_fma(p, a, -0.02578241f);
    p = fl_fma(p, a, 0.10863114f);
    p = fl_fma(p, a, 0.6336418f);
    p = fl_fma(p, a, 1.1290404f);
    return fl_exp(-(a * p));
}

// The error function.
FL_DEVICE float fl_erf(float x) {
    float a = fl_abs(x);
    float large = 1.0f - fl_erfc_large(a);
    return fl_with_sign(a < 1.0f ? fl_erf_small(a) : large, x);
}

// 1 / (1 + e^-x).
FL_DEVICE float fl_sigmoid(float x) {
    // With e^-|x| nothing overflows.
    float e = fl_exp(-fl_abs(x));
    return fl_div(x < 0.0f ? e : 1.0f, 1.0f + e);
}

// x * weight for a weight that is 0 at -200 and below: -0 there, also for x = -inf.
FL_DEVICE float fl_gate(float x, float weight) { return (x < -200.0f ? -200.0f : x) * weight; }

// x * sigmoid(x). -0 at -inf, the limit.
FL_DEVICE float fl_silu(float x) { return fl_gate(x, fl_sigmoid(x)); }

// The tanh form of GELU, as x * sigmoid(2u). -0 at -inf.
FL_DEVICE float fl_gelu_tanh(float x) {
    float slope = fl_fma(x * x, 0.071354814f, 1.5957692f);
    return fl_gate(x, fl_sigmoid(x * slope));
}

// GELU with the error function. -0 at -inf.
FL_DEVICE float fl_gelu_erf(float x) {
    float scaled = x * FL_SQRT_HALF;
    float a = fl_abs(scaled);
    float small = fl_fma(fl_with_sign(fl_erf_small(a), scaled), 0.5f, 0.5f);
    // 1 + erf(-a) = erfc(a), which does not cancel.
    float tail = 0.5f * fl_erfc_large(a);
    float large = x < 0.0f ? tail : 1.0f - tail;
    return fl_gate(x, a < 1.0f ? small : large);
}

// cap * tanh(x / cap).
FL_DEVICE float fl_softcap(float x, float cap) { return cap * fl_tanh(fl_div(x, cap)); }

FL_DEVICE float fl_recip(float x) { return fl_div(1.0f, x); }

FL_DEVICE float fl_sqrt(float x) { return fl_sqrt_rn(x); }

// 1 / sqrt(x), rounded twice.
FL_DEVICE float fl_rsqrt(float x) { return fl_div(1.0f, fl_sqrt_rn(x)); }

// The nearest integer, halves to the even one; the sign stays, of zeros too. 8388608 is 2^23: from
// there on every number is an integer, and below it the sum is rounded to one.
FL_DEVICE float fl_round(float x) {
    float a = fl_abs(x);
    return a < 8388608.0f ? fl_with_sign(a + 8388608.0f - 8388608.0f, x) : x;
}

// x where it is positive, else +0; NaN stays.
FL_DEVICE float fl_relu(float x) { return x <= 0.0f ? 0.0f : x; }

// The lesser number. NaN if either is; -0 is less than +0.
FL_DEVICE float fl_min(float a, float b) {
    float lesser = a < b || fl_is_nan(a) ? a : b;
    return a == b ? fl_from_bits(fl_bits(a) | fl_bits(b)) : lesser;
}

// The greater number. NaN if either is; +0 is greater than -0.
FL_DEVICE float fl_max(float a, float b) {
    float greater = a > b || fl_is_nan(a) ? a : b;
    return a == b ? fl_from_bits(fl_bits(a) & fl_bits(b)) : greater;
}

// min(max(x, low), high). NaN if any of them is; high if the bounds are crossed.
FL_DEVICE float fl_clamp(float x, float low, float high) { return fl_min(fl_max(x, low), high); }

// The angle of a position, in units of 2^-64 turn: exact, whole turns dropped.
FL_DEVICE unsigned long long fl_rope_turn(int position, unsigned long long frequency) {
    return (unsigned long long)(long long)position * frequency;
}

// Sine and cosine of an angle in units of 2^-64 turn.
FL_DEVICE void fl_sin_cos_turns(unsigned long long turn, float* sin, float* cos) {
    // The nearest quarter, and the signed rest of at most an eighth of a turn.
    unsigned long long nearest = (turn + (1ull << 61)) >> 62;
    long long rest = (long long)(turn - (nearest << 62));
    float t = fl_from_i64(rest) * 5.421011e-20f;  // 2^-64
    float square = t * t;
    float p = -75.4534f;
    p = fl_fma(p, square, 81.59394f);
    p = fl_fma(p, square, -41.341675f);
    float curve = fl_fma(p, square, FL_TWO_PI_LOW);
    float s = fl_fma(t, FL_TWO_PI, t * curve);
    p = 59.245964f;
    p = fl_fma(p, square, -85.44374f);
    p = fl_fma(p, square, 64.93932f);
    p = fl_fma(p, square, -19.739208f);
    float c = fl_fma(p, square, 1.0f);
    unsigned quarter = (unsigned)nearest;
    bool swap = (quarter & 1u) == 1u;
    unsigned sin_sign = (quarter & 2u) << 30;
    unsigned cos_sign = ((quarter + 1u) & 2u) << 30;
    *sin = fl_from_bits(fl_bits(swap ? c : s) ^ sin_sign);
    *cos = fl_from_bits(fl_bits(swap ? s : c) ^ cos_sign);
}
