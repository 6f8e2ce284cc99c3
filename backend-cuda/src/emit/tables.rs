//! Tables of a source file: rotation frequencies, each once.

use fuseline_core::math;

/// The rotations that kernels of one file use.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    ropes: Vec<(f64, usize)>,
}

impl Tables {
    /// The name of the table of a rotation.
    pub fn rope(&mut self, base: f64, rotary: usize) -> String {
        let same = |&(b, r): &(f64, usize)| b.to_bits() == base.to_bits() && r == rotary;
        let index = self.ropes.iter().position(same).unwrap_or_else(|| {
            self.ropes.push((base, rotary));
            self.ropes.len() - 1
        });
        format!("rope_turns_{index}")
    }

    /// The text of all tables.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, &(base, rotary)) in self.ropes.iter().enumerate() {
            let turns: Vec<String> = (0..rotary / 2)
                .map(|pair| format!("0x{:016x}ull", math::turns(base, rotary, pair)))
                .collect();
            text += &format!(
                "// pair i turns by {base:?}^(-2i / {rotary}) radians a position: 2^-64 turns\n\
                 FL_TABLE unsigned long long rope_turns_{index}[{}] = {{\n    {}}};\n",
                turns.len(),
                wrap(&turns)
            );
        }
        text
    }
}

fn wrap(items: &[String]) -> String {
    let lines: Vec<String> = items.chunks(4).map(|chunk| chunk.join(", ")).collect();
    lines.join(",\n    ")
}
