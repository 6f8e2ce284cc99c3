//! The pairs of `bf16` that a matrix instruction takes, from codes.

use super::super::format::prefix;
use fuseline_core::format::{CodeMap, WeightFormat};

/// The function that gives the four pairs of `bf16` of one piece of a lane's 16 bytes.
pub(crate) fn pairs_function(format: &WeightFormat) -> String {
    let name = prefix(format);
    let flip = match (&format.code, format.bits) {
        (CodeMap::Signed, 4) => " ^ 0x88888888u",
        (CodeMap::Signed, _) => " ^ 0x80808080u",
        _ => "",
    };
    let bias = match (&format.code, format.bits) {
        (CodeMap::Unsigned { bias }, _) => *bias as f32,
        (CodeMap::Signed, 4) => 8.0,
        (CodeMap::Signed, _) => 128.0,
        _ => 0.0,
    };
    let lines = match format.bits {
        4 => {
            // As bf16, which is the upper half of an f32.
            let less = (-(128.0 + bias)).to_bits() >> 16;
            let less = less << 16 | less;
            format!(
                "    const unsigned word = fl_component(codes, p){flip};
    FL_UNROLL
    for (int i = 0; i < 4; i++) pairs[i] = fl_add_bf16x2(fl_nibbles_bf16(word, i), {less:#x}u);
"
            )
        }
        8 => {
            let less = 8_388_608.0 + bias;
            format!(
                "    FL_UNROLL
    for (int i = 0; i < 4; i++) {{
        const unsigned word = fl_component(codes, 2 * p + i / 2){flip};
        pairs[i] = fl_bytes_bf16(word, i % 2, {less:.1}f);
    }}
"
            )
        }
        _ => "    FL_UNROLL
    for (int i = 0; i < 4; i++) pairs[i] = fl_component(codes, i);
"
        .to_string(),
    };
    format!("FL_DEVICE void {name}_pairs(uint4 codes, int p, unsigned* pairs) {{\n{lines}}}\n")
}
