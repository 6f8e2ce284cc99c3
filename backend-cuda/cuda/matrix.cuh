// Matrix instructions, and what their operands are made of: pairs of bf16 in a word, the element of
// the lower index in the lower half.

#ifndef FL_HOST
// Arrays in shared memory, of 4 and of 16 bytes, from number `at` of what the launch asks for on.
typedef unsigned* fl_shared_words;
typedef uint4* fl_shared_words4;
#define FL_SHARED_WORDS(name, at, n) unsigned* const name = (unsigned*)(fl_shared + (at))
#define FL_SHARED_WORDS4(name, at, n) uint4* const name = (uint4*)(fl_shared + (at))

// Copies from a weight to element i of an array, while the thread goes on: of n words or of four,
// from a byte on that is a multiple of as many. No kernel writes weights, so that they may be asked
// for before other kernels are done.
FL_DEVICE void fl_copy_words4(fl_shared_words4 to, int i, const unsigned char* p, long long at) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(to + i);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(place), "l"(p + at)
                 : "memory");
}
template <int n>
FL_DEVICE void fl_copy_words(fl_shared_words to, int i, const void* p, long long at) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(to + i);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place),
                 "l"((const unsigned char*)p + at), "n"(4 * n)
                 : "memory");
}
// Ends a group of a thread's copies; and waits until all but its last n groups are there. Other
// threads do not see them then.
FL_DEVICE void fl_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> FL_DEVICE void fl_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

// d += a · b of 16 rows, 8 columns and 16 elements along K; lane 4·r + t has
//   a: rows r, r + 8 (a0, a1) of elements 2t, 2t + 1, and (a2, a3) of 2t + 8, 2t + 9;
//   b: column r of elements 2t, 2t + 1 (b0) and 2t + 8, 2t + 9 (b1);
//   d: rows r (d0, d1) and r + 8 (d2, d3) of columns 2t, 2t + 1.
FL_DEVICE void fl_multiply_bf16(float* d, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// a + b of both halves, rounded once.
FL_DEVICE unsigned fl_add_bf16x2(unsigned a, unsigned b) {
    unsigned y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(0x3f803f80u), "r"(b));
    return y;
}
// Two numbers, rounded.
FL_DEVICE unsigned fl_pack_bf16x2(float low, float high) {
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
// (a & b) | c
FL_DEVICE unsigned fl_and_or(unsigned a, unsigned b, unsigned c) {
    unsigned y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}
// Bytes of a and b, picked by the four lower digits of `digits`: 0 to 3 are a's, 4 to 7 b's.
FL_DEVICE unsigned fl_pick_bytes(unsigned a, unsigned b, unsigned digits) {
    return __byte_perm(a, b, digits);
}
#endif

FL_DEVICE int fl_lesser_i32(int a, int b) { return a < b ? a : b; }
FL_DEVICE unsigned fl_component(uint4 x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

// Four codes of 4 bits, 8 apart in `word`, as two pairs of 128 + code: `first` is 0 or 8, of bits
// first.. and first + 4.. The sum is exact: 128 is 2^7, and bf16 holds eight bits.
FL_DEVICE unsigned fl_nibbles_bf16(unsigned word, int i) {
    return fl_and_or(word >> (4 * i), 0x000f000fu, 0x43004300u);
}
// Codes 2i and 2i + 1 of 8 bits, less 128 if they were flipped from two's complement.
FL_DEVICE unsigned fl_bytes_bf16(unsigned word, int i, float bias) {
    // The code in the last bits of 2^23.
    const float low = fl_from_bits(fl_pick_bytes(word, 0x4b000000u, 0x7440u + 2u * (unsigned)i));
    const float high = fl_from_bits(fl_pick_bytes(word, 0x4b000000u, 0x7441u + 2u * (unsigned)i));
    return fl_pack_bf16x2(low - bias, high - bias);
}

// Half j of four words.
FL_DEVICE void fl_put_half(unsigned* words, int j, unsigned short x) {
    words[j / 2] = j % 2 ? words[j / 2] | (unsigned)x << 16 : (unsigned)x;
}
// The number with the first eight significant bits of x: what is left of x is exact. Infinity and
// NaN are all that is left of themselves.
FL_DEVICE unsigned short fl_first_bits(float x, float* rest) {
    const bool finite = (fl_bits(x) & 0x7f800000u) != 0x7f800000u;
    const float first = fl_from_bits(fl_bits(x) & 0xffff0000u);
    *rest = finite ? x - first : 0.0f;
    return finite ? (unsigned short)(fl_bits(x) >> 16) : fl_f32_to_bf16(x);
}
// The nearest bf16, which leaves half as much; but for the largest numbers, which it would make
// infinite.
FL_DEVICE unsigned short fl_nearest_bits(float x, float* rest) {
    const unsigned short near = fl_f32_to_bf16(x);
    if ((near & 0x7f80u) == 0x7f80u) return fl_first_bits(x, rest);
    *rest = x - fl_bf16_to_f32(near);
    return near;
}
FL_DEVICE void fl_split2(float x, int j, unsigned* a, unsigned* b) {
    float rest;
    fl_put_half(a, j, fl_nearest_bits(x, &rest));
    fl_put_half(b, j, fl_f32_to_bf16(rest));
}
FL_DEVICE void fl_split3(float x, int j, unsigned* a, unsigned* b, unsigned* c) {
    float rest;
    fl_put_half(a, j, fl_first_bits(x, &rest));
    fl_put_half(b, j, fl_first_bits(rest, &rest));
    fl_put_half(c, j, fl_f32_to_bf16(rest));
}
// A lane's eight elements of a piece of a bf16 row, from byte i on, in the order of codes of so many
// bits.
FL_ACCESS uint4 fl_load_pairs4(const unsigned char* p, long long i) {
    // Elements j and j + 4 in one word.
    const uint4 x = fl_load_words4(p, i);
    return uint4{fl_pick_bytes(x.x, x.z, 0x5410u), fl_pick_bytes(x.x, x.z, 0x7632u),
                 fl_pick_bytes(x.y, x.w, 0x5410u), fl_pick_bytes(x.y, x.w, 0x7632u)};
}
FL_ACCESS uint4 fl_load_pairs8(const unsigned char* p, long long i) {
    const uint2 low = fl_load_words2(p, i), high = fl_load_words2(p, i + 32);
    return uint4{low.x, low.y, high.x, high.y};
}
FL_ACCESS uint4 fl_load_pairs16(const unsigned char* p, long long i) {
    return fl_load_words4(p, i);
}
// Part `part` of x, split into `n_parts` as above.
FL_DEVICE unsigned short fl_part(float x, int part, int n_parts) {
    float rest;
    if (n_parts == 2) {
        const unsigned short first = fl_nearest_bits(x, &rest);
        return part == 0 ? first : fl_f32_to_bf16(rest);
    }
    const unsigned short first = fl_first_bits(x, &rest);
    if (part == 0) return first;
    const unsigned short second = fl_first_bits(rest, &rest);
    return part == 1 ? second : fl_f32_to_bf16(rest);
}
