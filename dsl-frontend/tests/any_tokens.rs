//! No tokens make the front end panic, and what it gives is always a list of Rust items: random
//! tokens of the language's own vocabulary, and valid programs with tokens changed.

mod source;

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The 64-bit generator SplitMix64: a seed names a whole case.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const WORDS: &[&str] = &[
    "pub",
    "mod",
    "fn",
    "let",
    "struct",
    "use",
    "return",
    "if",
    "else",
    "mut",
    "in",
    "as",
    "m",
    "f",
    "g",
    "x",
    "y",
    "w",
    "kv",
    "pos",
    "norm",
    "B",
    "D",
    "H",
    "HD",
    "KV",
    "F",
    "T",
    "Tensor",
    "Weight",
    "KvCache",
    "Index",
    "Tokens",
    "Scalar",
    "f32",
    "f16",
    "bf16",
    "i32",
    "Q4_1",
    "Q8_0",
    "operand",
    "weight_format",
    "budget",
    "decode",
    "max_launches",
    "deny",
    "product_buffer",
    "bits",
    "group",
    "scale",
    "signed",
    "unsigned",
    "codebook",
    "rms_norm",
    "layer_norm",
    "linear",
    "split",
    "chunk",
    "view",
    "heads",
    "flatten",
    "rope",
    "append",
    "attend",
    "embed",
    "window",
    "softcap",
    "sinks",
    "rotary",
    "Interleaved",
    "HalfSplit",
    "silu",
    "inline",
    "materialize",
    "max",
    "clamp",
    "select",
    "to",
    "sum",
    "softmax",
    "argmax",
    "_",
    "self",
];
const PUNCTS: &[char] =
    &['.', ',', ';', ':', '=', '+', '-', '*', '/', '<', '>', '&', '#', '!', '|', '?'];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "16",
    "64",
    "1e-5",
    "0.125",
    "1e39",
    "18446744073709551615",
    "99999999999999999999999",
    "1099511627776",
    "0x10",
    "1.5f64",
    "\"text\"",
    "'c'",
    "b\"x\"",
];

fn token(random: &mut Random, depth: usize) -> TokenTree {
    match random.below(10) {
        0..=3 => Ident::new(random.pick(WORDS), Span::call_site()).into(),
        4..=6 => {
            let spacing = random.pick(&[Spacing::Alone, Spacing::Joint]);
            Punct::new(random.pick(PUNCTS), spacing).into()
        }
        7 => random.pick(NUMBERS).parse::<Literal>().expect("a literal").into(),
        _ if depth == 0 => Ident::new("x", Span::call_site()).into(),
        _ => {
            let kinds =
                [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None];
            Group::new(random.pick(&kinds), tokens(random, depth - 1)).into()
        }
    }
}

fn tokens(random: &mut Random, depth: usize) -> TokenStream {
    let n = random.below(12);
    (0..n).map(|_| token(random, depth)).collect()
}

/// The stream with about one in `rate` tokens dropped, doubled, replaced or swapped.
fn mutate(random: &mut Random, stream: TokenStream, rate: usize) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for tree in stream {
        let tree = match tree {
            TokenTree::Group(group) => {
                let inner = mutate(random, group.stream(), rate);
                Group::new(group.delimiter(), inner).into()
            }
            other => other,
        };
        if random.below(rate) != 0 {
            out.push(tree);
            continue;
        }
        match random.below(5) {
            0 => {}
            1 => out.extend([tree.clone(), tree]),
            2 => out.push(token(random, 2)),
            3 => out.extend([tree, token(random, 1)]),
            _ => {
                let at = random.below(out.len() + 1);
                out.insert(at, tree);
            }
        }
    }
    out.into_iter().collect()
}

/// Programs that are right, or nearly.
const PROGRAMS: &[&str] = &[
    include_str!("programs/llama.rs"),
    "#[decode(B = 1, D = 64, F = 96, H = 4, KV = 2, HD = 16, T = 8)]
     pub mod m {
        #[weight_format(bits = 8, unsigned(bias = 8), group = 32, scale = f16, offset = f16)]
        pub struct Mine;
        #[budget(max_launches = 9, max_scratch_bytes = 40960, deny(product_buffer))]
        pub fn f(
            x: Tensor<f32, B, D>, norm: Tensor<bf16, D>, up: Weight<Q4_1, F, D>,
            qkv: Weight<Mine, { (H + 2 * KV) * HD }, D>, s: Tensor<f32, H>, by: Scalar,
            kv: &mut KvCache<f16, B, KV, HD, T>, pos: Index<B>, ids: Tokens<B>,
        ) -> (Tensor<f32, B, F>, Tensor<bf16, B, D>, Tokens<B>) {
            let h = x.rms_norm(norm, 1e-5) * by;
            let (q, k, v) = h.linear(qkv).split(H * HD, KV * HD, KV * HD);
            let q = q.heads(H).rope(Interleaved, pos, 100_000.0, rotary(8));
            let k = k.heads(KV).rope(HalfSplit, pos, 1e4);
            let cache = kv.append(k, v.heads(KV), pos);
            let a = q.attend(cache, 1.0 / 4.0, window(4), softcap(50.0), sinks(s)).flatten();
            let (b, _) = g(a, x).chunk(2);
            (h.linear(up).softmax(), a.clamp(-1, 1).lt(x).select(a, b.sum()), a.argmax())
        }
        fn g(a: Tensor<f32, B, D>, b: Tensor<f32, B, D>) -> Tensor<f32, B, D> { -(a + b) / 2.0 }
     }",
    "#[decode(B in 1..=3, D = 8)] fn lone(x: Tensor<f32, B, D>) -> Tensor<f32, B, 2, 4> { x.view(B, 2, 4) }",
];

/// How many seeds: `FUSELINE_SEEDS` times as many, for a longer search.
fn seeds(usual: u64) -> u64 {
    let times = std::env::var("FUSELINE_SEEDS").ok().and_then(|times| times.parse().ok());
    usual * times.unwrap_or(1)
}

fn check(seed: u64, attr: &TokenStream, item: &TokenStream) {
    let run = || {
        let expanded = fuseline_frontend::decode(attr.clone(), item.clone());
        syn::parse2::<syn::File>(expanded.clone()).map_err(|error| format!("{error}\n{expanded}"))
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            panic!("seed {seed}: not a list of items: {error}\n#[decode({attr})] {item}")
        }
        Err(_) => panic!("seed {seed}: panicked on\n#[decode({attr})] {item}"),
    }
}

#[test]
fn random_tokens() {
    for seed in 0..seeds(600) {
        let mut random = Random(seed);
        let (attr, item) = (tokens(&mut random, 2), tokens(&mut random, 4));
        check(seed, &attr, &item);
        let _ = fuseline_frontend::weight_format(attr.clone(), item.clone());
        let _ = fuseline_frontend::budget(attr, item);
    }
}

#[test]
fn random_bodies() {
    for seed in 0..seeds(600) {
        let mut random = Random(seed);
        let (first, second) = (tokens(&mut random, 3), tokens(&mut random, 3));
        let (attr, item) = source::split(
            "#[decode(B in 1..=4, D = 64, H = 4, HD = 16, KV = 2, T = 8, operand = f16)]
             mod m { pub fn f(x: Tensor<f32, B, D>, w: Weight<Q4_1, D, D>, norm: Tensor<f32, D>,
                kv: &mut KvCache<f32, B, KV, HD, T>, pos: Index<B>) -> Tensor<f32, B, D> {} }",
        );
        let body = quote::quote!({ let y = #first; let (a, b) = x.split(48, HD); #second });
        let item = replace_empty_braces(item, &body);
        check(seed, &attr, &item);
    }
}

fn replace_empty_braces(stream: TokenStream, body: &TokenStream) -> TokenStream {
    let replace = |tree| match tree {
        TokenTree::Group(group)
            if group.delimiter() == Delimiter::Brace && group.stream().is_empty() =>
        {
            body.clone()
        }
        TokenTree::Group(group) => {
            let inner = replace_empty_braces(group.stream(), body);
            TokenTree::from(Group::new(group.delimiter(), inner)).into()
        }
        other => other.into(),
    };
    stream.into_iter().map(replace).collect::<TokenStream>()
}

#[test]
fn changed_programs() {
    for (index, program) in PROGRAMS.iter().enumerate() {
        let (attr, item) = source::split(program);
        check(0, &attr, &item);
        for seed in 0..seeds(300) {
            let mut random = Random(seed + ((index as u64) << 32));
            let rate = 20 + random.below(200);
            let changed_attr = match random.below(3) {
                0 => mutate(&mut random, attr.clone(), rate / 4),
                _ => attr.clone(),
            };
            let changed = mutate(&mut random, item.clone(), rate);
            check(seed, &changed_attr, &changed);
        }
    }
}

/// Nesting and length are refused before any parser or destructor recurses too deep.
#[test]
fn deep_and_long_expressions_do_not_overflow_the_stack() {
    let bodies = [
        ("x".to_string() + &".exp()".repeat(100), true),
        ("x".to_string() + &".exp()".repeat(20_000), false),
        ("x".to_string() + &" + x".repeat(100), true),
        ("x".to_string() + &" + x".repeat(20_000), false),
        ("(".repeat(30) + "x" + &")".repeat(30), true),
        ("-".repeat(60) + "x", true),
        ("-".repeat(20_000) + "x", false),
        ("x.max(".repeat(25) + "x" + &")".repeat(25), true),
        ("x.max(".repeat(60) + "x" + &")".repeat(60), false),
        ("-".repeat(30) + "(" + &"-".repeat(30) + "x)", true),
        ("[".repeat(36) + &"]".repeat(36), false),
    ];
    for (body, fits) in bodies {
        let program = format!(
            "#[decode(B = 1, D = 4)] mod m {{
                pub fn f(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> {{ {body} }} }}"
        );
        let parsed: TokenStream = program.parse().expect("tokens");
        // `split` would parse the item, which is what must not be done unchecked.
        let mut trees = parsed.into_iter().skip(2);
        let item: TokenStream = trees.by_ref().collect();
        let attr: TokenStream = "B = 1, D = 4".parse().expect("tokens");
        let (_, errors) = fuseline_frontend::blocks(attr.clone(), item.clone());
        assert_eq!(errors.is_empty(), fits, "{}", source::show(&errors));
        check(0, &attr, &item);
    }
    let types = ["Tensor<".repeat(5_000), "A<B, ".repeat(5_000), "&".repeat(5_000)];
    for ty in types {
        let item: TokenStream =
            format!("fn f(x: {ty}f32) -> Tensor<f32, B> {{ x }}").parse().expect("tokens");
        check(0, &TokenStream::new(), &item);
    }
}
