//! The README's block has the plan and the loop that the README shows. `BLESS=1` writes them
//! into it, to be read.

use fuseline::prelude::*;

/// The README's block, word for word.
#[decode(B = 1, D = 576, F = 1536)]
pub mod model {
    #[budget(max_launches = 2, deny(product_buffer))]
    pub fn mlp(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        gate: Weight<Q4_1, F, D>, // [out, in], as in every checkpoint
        up: Weight<Q4_1, F, D>,
        down: Weight<Q4_1, D, F>,
    ) -> Tensor<f32, B, D> {
        let h = x.rms_norm(norm, 1e-5);
        x + (h.linear(gate).silu() * h.linear(up)).linear(down)
    }
}

/// Where the text of the one fenced section of this language is.
fn section(text: &str, language: &str) -> std::ops::Range<usize> {
    let opening = format!("\n```{language}\n");
    let start = text.find(&opening).expect("the section is there") + opening.len();
    let len = text[start..].find("\n```").expect("the section ends");
    start..start + len
}

/// The loop over a kernel's weights, without its indentation.
fn main_loop(source: &str, kernel: &str) -> String {
    let kernel = source.find(&format!(") {kernel}(")).expect("the kernel is there");
    let lines = source[kernel..].lines().skip_while(|line| !line.contains("for (int c = c_begin"));
    let mut lines = lines.peekable();
    let indent = lines.peek().map_or(0, |line| line.len() - line.trim_start().len());
    let end = format!("{}}}", " ".repeat(indent));
    let mut text = String::new();
    for line in lines {
        text += &format!("{}\n", line.get(indent..).unwrap_or(""));
        if line == end {
            break;
        }
    }
    text
}

#[test]
fn the_plan_and_the_kernel_are_what_the_readme_shows() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let mut readme = std::fs::read_to_string(&path).unwrap();
    let main_loop = main_loop(model::mlp::CUDA, "mlp_1");
    let texts = [("text", model::mlp::EXPLAIN), ("cuda", &main_loop)];
    for (language, found) in texts {
        let place = section(&readme, language);
        if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
            readme.replace_range(place, found.trim_end());
            std::fs::write(&path, &readme).unwrap();
        } else {
            assert_eq!(&readme[place], found.trim_end(), "BLESS=1 rewrites the README");
        }
    }
}

#[test]
fn the_block_is_the_readmes() {
    let readme = include_str!("../README.md");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let this = include_str!("readme.rs");
    let start = this.find("#[decode(B = 1").unwrap();
    let end = start + this[start..].find("\n}\n").unwrap() + 2;
    assert!(words(readme).contains(&words(&this[start..end])));
}
