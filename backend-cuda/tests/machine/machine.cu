// Kernels that use each function of threads.cuh and convert.cuh in a way whose result is known:
// what stands for the machine under emulation is to be what the machine does.

// Out: 8 words a thread.
FL_KERNEL(64, 1) exchanges(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_thread();
    const int x = fl_load_i32(words, i);
    const float y = fl_from_bits((unsigned)x);
    fl_store_i32(out, 8 * i, (int)fl_bits(fl_shuffle(y, (7 * i + 3) % 32)));
    fl_store_i32(out, 8 * i + 1, (int)fl_bits(fl_shuffle_xor(y, 5)));
    fl_store_i32(out, 8 * i + 2, fl_shuffle_xor_i32(x, 24));
    fl_store_i32(out, 8 * i + 3, (int)fl_bits(fl_shuffle_down(y, 3)));
    fl_store_i32(out, 8 * i + 4, (int)fl_bits(fl_shuffle_up(y, 9)));
    fl_store_i32(out, 8 * i + 5, (int)fl_ballot(x % 2 != 0));
    fl_store_i32(out, 8 * i + 6, fl_any(x % 1024 == 0) ? 1 : 0);
    fl_store_i32(out, 8 * i + 7, fl_all(x % 1024 != 0) ? 1 : 0);
}

// A warp passes its words along through shared memory, with nothing but its own barrier; then
// the block does.
FL_KERNEL(64, 1) barriers(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    FL_STATIC_SHARED_FLOATS(own, 64);
    FL_SHARED_FLOATS(all, 0, 64);
    const int i = fl_thread();
    own[i] = fl_from_i32(fl_load_i32(words, i) % 4096);
    fl_warp_barrier();
    const float neighbour = own[i / 32 * 32 + (i + 1) % 32];
    fl_warp_barrier();
    own[i] = neighbour;
    all[i] = neighbour;
    fl_barrier();
    const float opposite = all[63 - i];
    fl_store_i32(out, i, (int)(opposite + own[i]));
}

// Counters: sums, a sum of floats without rounding, a maximum, a sum by compare-and-exchange, and
// how many threads found the flag unset.
FL_KERNEL(64, 1) atomics(const int* FL_RESTRICT words, int* FL_RESTRICT counters, float* FL_RESTRICT sums,
                      int rows) {
    const int i = fl_block() * 64 + fl_thread();
    const int x = fl_load_i32(words, i) % 1000;
    fl_atomic_add_i32(counters, i % 3, x);
    fl_atomic_max_i32(counters, 3, x);
    int seen = 0;
    for (;;) {
        const int before = fl_atomic_compare_i32(counters, 4, seen, seen + x);
        if (before == seen) break;
        seen = before;
    }
    if (fl_atomic_exchange_i32(counters, 5, 1) == 0) fl_atomic_add_i32(counters, 6, 1);
    fl_atomic_add_f32(sums, i % 2, fl_from_i32(x));
}

// A word's lower half as f16 and as bf16, and its lowest byte in both types of 8 bits.
FL_KERNEL(64, 1) widen(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_block() * 64 + fl_thread();
    if (i >= rows) return;
    const unsigned x = (unsigned)fl_load_i32(words, i);
    fl_store_i32(out, 2 * i, (int)fl_bits(fl_f16_to_f32((unsigned short)x)));
    fl_store_i32(out, 2 * i + 1, (int)fl_bits(fl_bf16_to_f32((unsigned short)x)));
}

// A word as a number, in both types of 16 bits.
FL_KERNEL(64, 1) narrow(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_block() * 64 + fl_thread();
    if (i >= rows) return;
    const float x = fl_from_bits((unsigned)fl_load_i32(words, i));
    fl_store_i32(out, 2 * i, fl_f32_to_f16(x));
    fl_store_i32(out, 2 * i + 1, fl_f32_to_bf16(x));
}

#if defined(FL_HOST) || __CUDA_ARCH__ >= 890
FL_KERNEL(64, 1) widen_bytes(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_block() * 64 + fl_thread();
    if (i >= rows) return;
    const unsigned x = (unsigned)fl_load_i32(words, i);
    fl_store_i32(out, 2 * i, (int)fl_bits(fl_e4m3_to_f32((unsigned char)x)));
    fl_store_i32(out, 2 * i + 1, (int)fl_bits(fl_e5m2_to_f32((unsigned char)x)));
}

FL_KERNEL(64, 1) narrow_bytes(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_block() * 64 + fl_thread();
    if (i >= rows) return;
    const float x = fl_from_bits((unsigned)fl_load_i32(words, i));
    fl_store_i32(out, 2 * i, fl_f32_to_e4m3(x));
    fl_store_i32(out, 2 * i + 1, fl_f32_to_e5m2(x));
}
#endif

// A number from three bits of a word.
FL_DEVICE float small_number(unsigned x, int n) {
    return fl_from_i32((int)(x >> (2 * n) & 7u) - 3);
}

// Out: 4 words a thread, of a matrix instruction on small whole numbers.
FL_KERNEL(64, 1) products(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_thread();
    const unsigned x = (unsigned)fl_load_i32(words, i);
    unsigned pairs[6];
    for (int j = 0; j < 6; j++) {
        pairs[j] = fl_pack_bf16x2(small_number(x, 2 * j), small_number(x, 2 * j + 1));
    }
    float d[4] = {fl_from_i32(i), 0.0f, -1.0f, 0.5f};
    fl_multiply_bf16(d, pairs[0], pairs[1], pairs[2], pairs[3], pairs[4], pairs[5]);
    for (int j = 0; j < 4; j++) fl_store_i32(out, 4 * i + j, (int)fl_bits(d[j]));
}

// Out: 4 words a thread.
FL_KERNEL(64, 1) pairs(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    const int i = fl_thread();
    const unsigned x = (unsigned)fl_load_i32(words, i);
    fl_store_i32(out, 4 * i, (int)fl_add_bf16x2(fl_nibbles_bf16(x, 1), 0xc308c308u));
    fl_store_i32(out, 4 * i + 1, (int)fl_bytes_bf16(x, 1, 8388736.0f));
    fl_store_i32(out, 4 * i + 2, (int)fl_pick_bytes(x, ~x, 0x7214u));
    fl_store_i32(out, 4 * i + 3, (int)fl_and_or(x, 0x0f0f0f0fu, 0x40004000u));
}

// Copies that arrive in groups. Out: 5 words a thread.
FL_KERNEL(64, 1) copies(const int* FL_RESTRICT words, int* FL_RESTRICT out, int rows) {
    FL_SHARED_WORDS4(four, 0, 64);
    FL_SHARED_WORDS(one, 256, 64);
    const int i = fl_thread();
    fl_copy_words4(four, i, (const unsigned char*)words, 16 * (i % 16));
    fl_copy_commit();
    fl_copy_words<1>(one, i, words, 4 * (63 - i));
    fl_copy_commit();
    fl_copy_wait<1>();
    const uint4 x = four[i];
    for (int j = 0; j < 4; j++) fl_store_i32(out, 5 * i + j, (int)fl_component(x, j));
    fl_copy_wait<0>();
    fl_store_i32(out, 5 * i + 4, (int)(unsigned)one[i]);
}
