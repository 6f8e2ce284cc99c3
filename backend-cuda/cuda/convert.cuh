// Rounding to narrower types, and loads and stores that widen and round.

FL_DEVICE float fl_bf16_to_f32(unsigned short x) { return fl_from_bits((unsigned)x << 16); }
FL_DEVICE float fl_round_f32(float x) { return x; }
FL_DEVICE float fl_round_f16(float x) { return fl_f16_to_f32(fl_f32_to_f16(x)); }
FL_DEVICE float fl_round_bf16(float x) { return fl_bf16_to_f32(fl_f32_to_bf16(x)); }

FL_DEVICE float fl_load_f16(const unsigned short* p, long long i) {
    return fl_f16_to_f32(fl_load_u16(p, i));
}
FL_DEVICE float fl_load_bf16(const unsigned short* p, long long i) {
    return fl_bf16_to_f32(fl_load_u16(p, i));
}
FL_DEVICE void fl_store_f16(unsigned short* p, long long i, float x) {
    fl_store_u16(p, i, fl_f32_to_f16(x));
}
FL_DEVICE void fl_store_bf16(unsigned short* p, long long i, float x) {
    fl_store_u16(p, i, fl_f32_to_bf16(x));
}
