//! The text that decodes a weight format, from its declaration: any format, built in or a
//! user's, gets the same three functions.

use super::pointwise_text::float_text;
use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, WeightFormat};
use std::fmt::Write;

/// The prefix of a format's functions.
pub fn prefix(format: &WeightFormat) -> String {
    let ascii = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("fmt_{}", format.name.chars().map(ascii).collect::<String>())
}

/// The element type of a plane in parameters.
pub fn plane_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 | DType::BF16 => "unsigned short",
        DType::I32 => "int",
    }
}

/// The function of `memory.cuh` or `convert.cuh` that loads a number.
pub fn load_function(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "fl_load_f32",
        DType::F16 => "fl_load_f16",
        DType::BF16 => "fl_load_bf16",
        DType::I32 => "fl_load_i32",
    }
}

/// The functions of a format, where `k_row` is the elements of a row: `_row` and `_group` give the
/// places of codes and of scales; `_decode8` decodes eight consecutive codes of a row, before scale
/// and offset. A table stands before them if the codes index one.
pub fn functions(format: &WeightFormat) -> String {
    let name = prefix(format);
    let mut text = format!("// {}\n", describe(format));
    text += &places(format);
    if let CodeMap::Codebook(values) = &format.code {
        let values: Vec<String> = values.iter().map(|&v| float_text(v)).collect();
        let _ = writeln!(
            text,
            "FL_TABLE float {name}_book[{}] = {{{}}};",
            values.len(),
            values.join(", ")
        );
    }
    let _ = writeln!(
        text,
        "FL_DEVICE void {name}_decode8(const unsigned char* codes, long long n, int k, int k_row, float* w) {{"
    );
    let _ = writeln!(text, "    const long long row = {name}_row(n, k, k_row);");
    let is_tiled = format.is_tiled();
    match format.bits {
        4 if is_tiled => {
            text +=
                "    const unsigned word = fl_load_word(codes, row + fl_word_at(k % 128 / 8));\n";
            for i in 0..8 {
                let code = format!("(word >> {}) & 15u", 4 * i);
                let _ = writeln!(text, "    w[{i}] = {};", map(format, &code));
            }
        }
        8 if is_tiled => {
            for half in 0..2 {
                let _ = writeln!(
                    text,
                    "    const unsigned word{half} = fl_load_word(codes, row + fl_word_at(k % 64 / 4 + {half}));"
                );
            }
            for i in 0..8 {
                let code = format!("(word{} >> {}) & 255u", i / 4, 8 * (i % 4));
                let _ = writeln!(text, "    w[{i}] = {};", map(format, &code));
            }
        }
        16 if is_tiled => {
            text += "    const uint4 words = fl_load_words4(codes, row + k % 32 * 2);\n";
            for i in 0..8 {
                let word = ["words.x", "words.y", "words.z", "words.w"][i / 2];
                let code = format!("({word} >> {}) & 65535u", 16 * (i % 2));
                let _ = writeln!(text, "    w[{i}] = {};", map(format, &code));
            }
        }
        4 => {
            text += "    const unsigned word = fl_load_word(codes, row + k / 2);\n";
            for i in 0..8 {
                let code = format!("(word >> {}) & 15u", 4 * i);
                let _ = writeln!(text, "    w[{i}] = {};", map(format, &code));
            }
        }
        8 => {
            text += "    const uint2 words = fl_load_words2(codes, row + k);\n";
            for i in 0..8 {
                let word = ["words.x", "words.y"][i / 4];
                let code = format!("({word} >> {}) & 255u", 8 * (i % 4));
                let _ = writeln!(text, "    w[{i}] = {};", map(format, &code));
            }
        }
        16 => {
            text += "    const uint4 words = fl_load_words4(codes, row + 2 * k);\n";
            for i in 0..8 {
                let word = ["words.x", "words.y", "words.z", "words.w"][i / 2];
                let code = format!("({word} >> {}) & 65535u", 16 * (i % 2));
                let _ = writeln!(text, "    w[{i}] = {};", map(format, &code));
            }
        }
        _ => {
            // Rows are padded to 16 bytes, so the second half may lie beyond the row.
            for half in 0..2 {
                let indent = if half == 0 { "    " } else { "        " };
                if half == 1 {
                    text += "    if (k + 4 < k_row) {\n";
                }
                let _ = writeln!(
                    text,
                    "{indent}const uint4 words{half} = fl_load_words4(codes, row + 4 * k + {});",
                    16 * half
                );
                for i in 0..4 {
                    let word = format!("words{half}.{}", ["x", "y", "z", "w"][i]);
                    let _ = writeln!(text, "{indent}w[{}] = {};", 4 * half + i, map(format, &word));
                }
                if half == 1 {
                    text += "    } else {\n        w[4] = w[5] = w[6] = w[7] = 0.0f;\n    }\n";
                }
            }
        }
    }
    text += "}\n";
    text
}

/// The function that decodes one code of a row, for weights that are read element by element.
pub fn single_function(format: &WeightFormat) -> String {
    let bits = u32::from(format.bits);
    let per_word = 32 / bits;
    let name = prefix(format);
    let word = match format.tiles(1, 1) {
        None => format!("k / {per_word} * 4"),
        Some(tiles) if bits > 8 => format!("k % {} / {per_word} * 4", tiles.chunk),
        Some(tiles) => format!("fl_word_at(k % {} / {per_word})", tiles.chunk),
    };
    let code = match bits {
        32 => "word".to_string(),
        _ => format!("(word >> (k % {per_word} * {bits})) & {}u", (1u32 << bits) - 1),
    };
    format!(
        "FL_DEVICE float {name}_decode1(const unsigned char* codes, long long n, int k, int k_row) {{
    const unsigned word = fl_load_word(codes, {name}_row(n, k, k_row) + {word});
    return {};
}}
",
        map(format, &code)
    )
}

/// The places of codes and scales: in tiles (`fuseline_core::format::Tiles`) if the format is kept
/// so, else row by row.
fn places(format: &WeightFormat) -> String {
    let name = prefix(format);
    let head = |what: &str| {
        format!("FL_DEVICE long long {name}_{what}(long long n, int k, int k_row) {{\n    return ")
    };
    let Some(tiles) = format.tiles(1, 1) else {
        let bytes = match usize::from(format.bits) {
            4 => "(k_row + 1) / 2".to_string(),
            bits => format!("k_row * {}", bits / 8),
        };
        let group = format.group.map_or(String::new(), |group| {
            format!("{}n * (k_row / {}) + k / {};\n}}\n", head("group"), group.size, group.size)
        });
        return format!("{}n * (({bytes} + 15) / 16 * 16);\n}}\n{group}", head("row"));
    };
    let chunk = tiles.chunk;
    let row = format!(
        "{}((n / 16 * ((k_row + {}) / {chunk}) + k / {chunk}) * 16 + n % 16) * 64;\n}}\n",
        head("row"),
        chunk - 1
    );
    let Some(group) = format.group else { return row };
    let block = chunk * tiles.block_chunks;
    let (within, groups) = match tiles.block_groups {
        1 => (String::new(), String::new()),
        n => (format!(" + k % {chunk} / {}", group.size), format!(" * {n}")),
    };
    format!(
        "{row}{}(((n / 16 * ((k_row + {}) / {block}) + k / {block}) * 8 + n % 8){groups}{within}) * 2 + n % 16 / 8;\n}}\n",
        head("group"),
        block - 1
    )
}

/// One line: how a value comes from a code.
fn describe(format: &WeightFormat) -> String {
    let code = match &format.code {
        CodeMap::Float(dtype) => format!("{dtype}(code)"),
        CodeMap::Unsigned { bias: 0 } => "code".to_string(),
        CodeMap::Unsigned { bias } => format!("(code - {bias})"),
        CodeMap::Signed => "signed(code)".to_string(),
        CodeMap::Codebook(_) => "book[code]".to_string(),
    };
    let group = match format.group {
        None => String::new(),
        Some(group) => match group.offset {
            None => format!(" * scale, {} elements a scale", group.size),
            Some(_) => format!(" * scale + offset, {} elements a scale", group.size),
        },
    };
    format!("{}: {} bits, value = {code}{group}", format.name, format.bits)
}

/// The number that a code stands for.
fn map(format: &WeightFormat, code: &str) -> String {
    match &format.code {
        CodeMap::Float(DType::F32) => format!("fl_from_bits({code})"),
        CodeMap::Float(DType::F16) => format!("fl_f16_to_f32((unsigned short)({code}))"),
        CodeMap::Float(DType::BF16) => format!("fl_bf16_to_f32((unsigned short)({code}))"),
        CodeMap::Float(DType::I32) => format!("fl_from_i32((int)({code}))"),
        CodeMap::Unsigned { bias: 0 } => format!("fl_from_i32((int)({code}))"),
        CodeMap::Unsigned { bias } => format!("fl_from_i32((int)({code}) - {bias})"),
        CodeMap::Signed => {
            let shift = 32 - u32::from(format.bits);
            format!("fl_from_i32((int)(({code}) << {shift}) >> {shift})")
        }
        CodeMap::Codebook(_) => format!("{}_book[{code}]", prefix(format)),
    }
}
