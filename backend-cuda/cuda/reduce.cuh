// Reductions of a warp and of a block, in an order that depends on nothing but their size. Every
// thread of the warp or block calls them, and every thread gets the result.

#define FL_NEGATIVE_INFINITY fl_from_bits(0xff800000u)
#define FL_NAN fl_from_bits(0x7fc00000u)

FL_DEVICE float fl_warp_sum(float x) {
    FL_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) x += fl_shuffle_xor(x, mask);
    return x;
}

FL_DEVICE float fl_warp_max(float x) {
    FL_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) x = fl_max(x, fl_shuffle_xor(x, mask));
    return x;
}

// `partial` has room for one number a warp.
FL_DEVICE float fl_block_sum(float x, fl_shared_floats partial, int n_warps) {
    x = fl_warp_sum(x);
    fl_barrier();
    if (fl_thread() % 32 == 0) partial[fl_thread() / 32] = x;
    fl_barrier();
    float sum = 0.0f;
    for (int warp = 0; warp < n_warps; warp++) sum += partial[warp];
    return sum;
}

FL_DEVICE float fl_block_max(float x, fl_shared_floats partial, int n_warps) {
    x = fl_warp_max(x);
    fl_barrier();
    if (fl_thread() % 32 == 0) partial[fl_thread() / 32] = x;
    fl_barrier();
    float max = partial[0];
    for (int warp = 1; warp < n_warps; warp++) max = fl_max(max, partial[warp]);
    return max;
}

// Whether a comes before b among candidates for the largest: NaN first, then the larger, then
// the smaller index.
FL_DEVICE bool fl_beats(float a, int a_index, float b, int b_index) {
    if (fl_is_nan(a) != fl_is_nan(b)) return fl_is_nan(a);
    if (a > b) return true;
    if (a < b) return false;
    return a_index < b_index;
}

// The index of the largest x of the block; x and index are a thread's own candidate.
FL_DEVICE int fl_block_argmax(float x, int index, fl_shared_floats partial, int n_warps) {
    FL_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
        float other = fl_shuffle_xor(x, mask);
        int other_index = fl_shuffle_xor_i32(index, mask);
        if (fl_beats(other, other_index, x, index)) {
            x = other;
            index = other_index;
        }
    }
    fl_barrier();
    if (fl_thread() % 32 == 0) {
        partial[fl_thread() / 32] = x;
        partial[n_warps + fl_thread() / 32] = fl_from_bits((unsigned)index);
    }
    fl_barrier();
    x = partial[0];
    index = (int)fl_bits(partial[n_warps]);
    for (int warp = 1; warp < n_warps; warp++) {
        float other = partial[warp];
        int other_index = (int)fl_bits(partial[n_warps + warp]);
        if (fl_beats(other, other_index, x, index)) {
            x = other;
            index = other_index;
        }
    }
    return index;
}

// An element x of a rotated pair: the first becomes x·cos - partner·sin, the second
// x·cos + partner·sin.
FL_DEVICE float fl_rotate(float x, float partner, bool second, unsigned long long turn) {
    float sin, cos;
    fl_sin_cos_turns(turn, &sin, &cos);
    return fl_fma(x, cos, second ? partner * sin : -(partner * sin));
}
