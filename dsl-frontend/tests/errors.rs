//! Every kind of error: what it says, and the tokens that it points at.

mod source;

use fuseline_core::diag::Code;
use source::{errors, pointed_at};

/// A program, and its errors as `Code`, pointed-at text, first line of the message.
struct Case {
    program: String,
    expected: &'static [(Code, &'static str, &'static str)],
}

/// A function `f` of a usual signature with this body.
fn body(body: &str, expected: &'static [(Code, &'static str, &'static str)]) -> Case {
    let program = format!(
        "#[decode(B in 1..=4, D = 64, F = 96, H = 4, KV = 2, HD = 16, T = 8)]
pub mod m {{
    pub fn f(
        x: Tensor<f32, B, D>, norm: Tensor<f32, D>, up: Weight<Q4_1, F, D>, sq: Weight<f16, D, D>,
        kv: &mut KvCache<f32, B, KV, HD, T>, pos: Index<B>, ids: Tokens<B>,
    ) -> Tensor<f32, B, D> {{
        {body}
    }}
}}"
    );
    Case { program, expected }
}

fn program(program: &str, expected: &'static [(Code, &'static str, &'static str)]) -> Case {
    Case { program: program.to_string(), expected }
}

fn cases() -> Vec<Case> {
    vec![
        // Syntax
        body(
            "let y = if x { x } else { x }; x",
            &[(Code::Syntax, "if", "blocks have no `if`")],
        ),
        body(
            "#[cfg(any())] let y = x.silu(); #[cfg(any())] x.exp()",
            &[
                (Code::Syntax, "cfg", "this attribute has no meaning inside a block"),
                (Code::Syntax, "cfg", "this attribute has no meaning inside a block"),
            ],
        ),
        body(
            "let k = x.linear(sq).heads(H); let q = k.attend(kv, 1.0, window(B)); x.view(B)",
            &[
                (Code::Batch, "B", "`B` is a number of rows that each call chooses"),
                (Code::Shape, "view", "[up to B = 4, D = 64] has 256 elements, [up to B = 4] has 4"),
            ],
        ),
        program(
            "#[decode(d = 4)] mod m { pub fn f(x: Tensor<f32, 4>) -> Tensor<f32, 4> { x.exp() } }",
            &[(Code::Attribute, "d", "`d` does not begin with a capital")],
        ),
        program(
            "#[decode(D = 4)] mod m {
                #[budget(max_launches = 1, max_launches = 2)]
                #[budget(max_launches = 3)]
                pub fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x.exp() }
            }",
            &[
                (Code::Attribute, "max_launches = 2", "`max_launches` is given twice"),
                (Code::Attribute, "budget", "a second budget"),
            ],
        ),
        body("return x;", &[(Code::Syntax, "return", "blocks have no `return`")]),
        body("x.exp(); x + x", &[(Code::Syntax, "x.exp()", "the value is not used")]),
        body(
            "let m = x < norm; let n = x[0]; x.silu(&norm) + m",
            &[
                (Code::Syntax, "<", "blocks do not have this operator"),
                (Code::Syntax, "x[0]", "blocks have no indexing"),
                (Code::Syntax, "&", "blocks have no references"),
                (Code::ArgCount, "silu", "`silu` takes 0 arguments, found 1"),
            ],
        ),
        body(
            "let mut y = x; let z: f32 = x; x + y",
            &[
                (Code::Syntax, "mut y", "blocks do not have this pattern"),
                (Code::Syntax, "z: f32", "blocks do not have this pattern"),
                (Code::UnknownName, "y", "no argument or `let` is called `y`"),
            ],
        ),
        program(
            "#[decode(D = 4)] mod m { const X: usize = 4; struct S; pub async fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x } }",
            &[
                (Code::Syntax, "const", "a decode module does not hold items of this kind"),
                (Code::Syntax, "S", "a struct in a decode module declares a weight format"),
                (Code::Syntax, "async", "a block is a plain function"),
            ],
        ),
        program(
            "#[decode(D = 4)] fn f((x, y): Tensor<f32, D>) -> Tensor<f32, D> { x }",
            &[(Code::Syntax, "(x, y): Tensor<f32, D>", "an argument is `name: Type`")],
        ),
        // Attribute
        program(
            "#[decode(D: 4, B in 1..3, D = 4, D = 5, Tensor = 5, operand = i32)] fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x }",
            &[
                (Code::Attribute, "D: 4", "expected `NAME = value`, `NAME in min..=max` or `name { … }`"),
                (Code::Attribute, "1..3", "the range of `B` is `min..=max`, both included"),
                (Code::Attribute, "D", "`D` is declared twice"),
                (Code::Attribute, "Tensor", "`Tensor` is a name of the language"),
                (Code::Attribute, "i32", "`operand` is an element type, found `i32`"),
            ],
        ),
        program(
            "#[decode(B in 1..=4, R in 1..=2, S in 3..=2)] fn f(x: Tensor<f32, B>) -> Tensor<f32, B> { x }",
            &[
                (Code::Attribute, "R", "`R` is a second batch dim, beside `B`"),
                (Code::Attribute, "S", "`S` is a second batch dim, beside `B`"),
            ],
        ),
        program(
            "#[decode(B in 4..=2)] fn f(x: Tensor<f32, B>) -> Tensor<f32, B> { x }",
            &[(Code::Attribute, "4..=2", "the range 4..=2 of `B` is empty or too large")],
        ),
        program(
            "#[decode(D = 4)] mod m {
                #[budget(max_kernels = 2)] pub fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { -x }
                #[budget(max_launches = 2)] fn g(x: Tensor<f32, D>) -> Tensor<f32, D> { -x }
            }",
            &[
                (Code::Attribute, "max_kernels = 2", "a budget has no such bound"),
                (Code::Attribute, "budget", "`g` has no plan of its own: it is only inlined"),
            ],
        ),
        program(
            "#[decode(a { D = 4 }, b { D = 8 })] fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x }",
            &[(Code::Attribute, "a", "a function on its own has one configuration")],
        ),
        // Names
        body(
            "let h = x.rms_norm(nrom, 1e-5); g(h) + y",
            &[
                (Code::UnknownName, "nrom", "no argument or `let` is called `nrom`"),
                (Code::UnknownName, "g", "no function `g` is in this module"),
                (Code::UnknownName, "y", "no argument or `let` is called `y`"),
            ],
        ),
        program(
            "#[decode(D = 4, E = DD)] fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x }",
            &[(Code::UnknownName, "DD", "`DD` is no dim declared before, element type or weight format")],
        ),
        program(
            "#[decode(B = 1, D = 4)] fn f(x: Tensor<f32, B, E>) -> Tensor<f32, B, { D * G }> { x }",
            &[
                (Code::UnknownName, "E", "no dim `E` is declared in the attribute"),
                (Code::UnknownName, "G", "no dim `G` is declared in the attribute"),
            ],
        ),
        body(
            "x.rmsnorm(norm, 1e-5).matmul(sq)",
            &[
                (Code::UnknownMethod, "rmsnorm", "chains have no method `rmsnorm`"),
                (Code::UnknownMethod, "matmul", "chains have no method `matmul`"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] fn f(x: Tensr<f32, B, D>, y: Tensor<f64, B, D>, w: Weight<Q4_2, D, D>) -> Vec<f32> { x }",
            &[
                (Code::UnknownType, "Tensr", "signatures have no type `Tensr`"),
                (Code::UnknownType, "f64", "`f64` is not an element type"),
                (Code::UnknownType, "Q4_2", "no weight format `Q4_2` is built in or declared in this module"),
                (Code::UnknownType, "Vec", "signatures have no type `Vec`"),
            ],
        ),
        // Arguments
        body(
            "let (a, b) = x.chunk(4); x.rms_norm(norm) + x.attend(kv, 1.0, window()) + x.attend(kv, 1, window(2), window(3))",
            &[
                (Code::ArgCount, "(a, b)", "the pattern has 2 names, the expression gives 4 values"),
                (Code::ArgCount, "rms_norm", "`rms_norm` takes 2 arguments, found 1"),
                (Code::ArgCount, "window", "`window` takes 1 argument, found 0"),
                (Code::ArgCount, "window", "`window` is given twice"),
            ],
        ),
        body(
            "x.rms_norm(norm, -1) + x.rms_norm(norm, norm) + x * 1e39",
            &[
                (Code::Literal, "-1", "the eps of `rms_norm` is a number of at least 0, found -1.0"),
                (Code::Literal, "norm", "the eps of `rms_norm` is a number of at least 0, found `norm`"),
                (Code::Literal, "1e39", "1e39 is out of the range of f32"),
            ],
        ),
        body(
            "let y = x.heads(H); y.rope(Rotated, pos, 1e4).flatten() + y.rope(HalfSplit, pos, 1e4, rotary(5)).flatten() + x * 2.0f64",
            &[
                (Code::Literal, "2.0f64", "numbers in blocks are f32, found `f64`"),
                (Code::Literal, "Rotated", "the first argument of `rope` says which elements rotate together"),
                (Code::Literal, "rope", "5 rotated elements of a head of 16"),
            ],
        ),
        // Kinds and types
        body(
            "x.linear(norm) + D + up + x.split(32, 32) + pos.heads(2)",
            &[
                (Code::Kind, "norm", "`linear` takes a `Weight` here, found a tensor"),
                (Code::Kind, "D", "`D` is a dim, a value is needed here"),
                (Code::Kind, "split", "a tuple of 2 where one value is needed"),
                (Code::Kind, "pos", "`heads` takes a tensor, found an index of up to B = 4 rows"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] fn f(x: &Tensor<f32, B, D>, kv: KvCache<f32, B, D, D, D>) -> Index<B> { x }",
            &[
                (Code::Kind, "&Tensor<f32, B, D>", "`Tensor` is passed by value"),
                (Code::Kind, "KvCache<f32, B, D, D, D>", "`KvCache` is changed by the block"),
                (Code::Kind, "Index<B>", "`Index` cannot be a result"),
            ],
        ),
        body(
            "ids.silu() + x.to::<i32>()",
            &[
                (Code::DType, "ids", "`silu` does not take i32"),
                (Code::DType, "i32", "`to` does not round to `i32`"),
            ],
        ),
        // Shapes
        body(
            "let u = x.linear(up); let (a, b) = u.split(D, D); x + u",
            &[
                (Code::Shape, "split", "the parts of `split` add up to 128 (D = 64, D = 64), a row has F = 96"),
                (Code::Shape, "u", "shape mismatch in `add`: [up to B = 4, D = 64] against [up to B = 4, F = 96]"),
            ],
        ),
        body(
            "x.linear(up).linear(sq) + x.view(B, 3, HD).flatten()",
            &[
                (Code::Shape, "sq", "shape mismatch in `linear`: a row of the input has F = 96 elements, a row of the weight D = 64"),
                (Code::Shape, "view", "[up to B = 4, D = 64] has 256 elements, [up to B = 4, 3, HD = 16] has 192"),
            ],
        ),
        body(
            "x.rope(Interleaved, pos, 1e4) + x.sum().flatten() + norm.flatten()",
            &[
                (Code::Rank, "x", "`rope` rotates `[rows, heads, head_dim]`, found [up to B = 4, D = 64]"),
                (Code::Rank, "norm", "`flatten` takes at least 2 dims, the last one not the batch dim, found [D = 64]"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] fn f(x: Tensor<f32>, i: Index<B, D>) -> Tensor<f32, B, D> { x }",
            &[
                (Code::Rank, "Tensor", "`Tensor` is written `Tensor<f32, B, D>`, with 1 to 4 dims"),
                (Code::Rank, "Index", "`Index` is written `Index<B>`"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] fn f(x: Tensor<f32, B, { D - 5 }>, y: Tensor<f32, B, { D / 3 }>, z: Tensor<f32, { D - D }>, b: Tensor<f32, 1099511627776, 2>) -> Tensor<f32, B, D> { x }",
            &[
                (Code::Dim, "D - 5", "the dim `D - 5` is negative: 4 - 5"),
                (Code::Dim, "D / 3", "the dim `D / 3` is no whole number: 4 / 3"),
                (Code::Dim, "D - D", "the dim `D - D` is 0"),
                (Code::Dim, "Tensor<f32, 1099511627776, 2>", "a value of more than 1099511627776 elements"),
            ],
        ),
        program(
            "#[decode(B in 1..=2, D = 4)] fn f(x: Tensor<f32, D, B>, y: Tensor<f32, B, { B * D }>, w: Weight<f32, B, D>) -> Tensor<f32, B, D> { x }",
            &[
                (Code::Batch, "B", "the batch dim is dim 1 of [D = 4, up to B = 2]"),
                (Code::Batch, "B", "the batch dim `B` in arithmetic"),
                (Code::Batch, "B", "the batch dim `B` does not belong here"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 40)] fn f(x: Tensor<f32, B, D>, w: Weight<Q8_0, D, D>) -> Tensor<f32, B, D> { x.linear(w) }",
            &[(Code::Group, "D", "a row of D = 40 elements does not divide into the groups of 32 that `Q8_0` has")],
        ),
        body(
            "let k = x.split(32, 32); let (k, v) = k; let k = k.heads(KV); x.heads(3).flatten() + norm.view(1, H, HD).attend(kv.append(k, v.heads(KV), pos), 1.0).flatten()",
            &[
                (Code::Heads, "heads", "a row of D = 64 elements does not divide into 3 heads"),
                (Code::Shape, "attend", "`attend` on 1 rows with positions for up to B = 4"),
            ],
        ),
        body(
            "let (q, k, _) = x.split(48, HD, 0); x",
            &[(Code::Dim, "0", "the dim `0` is 0")],
        ),
        body(
            "let (q, r) = x.split(48, HD); let (k, _) = x.split(KV * HD, 32); let k = k.heads(KV); q.heads(3).attend(kv.append(k, k, pos), 1.0).flatten()",
            &[(Code::Heads, "heads", "3 query heads do not divide among KV = 2 key heads")],
        ),
        // Formats, caches, recursion, results, budgets
        program(
            "#[decode(B = 1, D = 16)] mod m {
                #[weight_format(bits = 4, codebook = [1, 2, 3], group = 16, scale = f16)] struct A;
                #[weight_format(bits = 4, signed, group = 12, scale = f16)] struct C;
                #[weight_format(bits = 4, group = 16)] struct E;
                #[weight_format(bits = 4, signed)] struct Q4_1;
                #[weight_format(bits = 4, signed, groups = 2)] struct G;
                pub fn f(x: Tensor<f32, B, D>, w: Weight<A, D, D>) -> Tensor<f32, B, D> { x.linear(w) }
            }",
            &[
                (Code::Format, "codebook = [1, 2, 3]", "weight format `A`: the codebook has 3 entries, but codes of 4 bits need 16"),
                (Code::Format, "group = 12", "weight format `C`: `group` is 12, but a group is a multiple of 8"),
                (Code::Format, "bits", "weight format `E`: `bits` and a code map are needed"),
                (Code::Format, "bits", "weight format `Q4_1`: the name is a built-in format's"),
                (Code::Attribute, "groups = 2", "a weight format has no such property"),
            ],
        ),
        body(
            "let k = x.split(32, 32); let (k, v) = k; let (k, v) = (k.heads(KV), v.heads(KV)); let c = kv.append(k, v, pos); let d = kv.append(k, v, pos); x + x.heads(H).attend(kv, 1.0).flatten()",
            &[
                (Code::Cache, "kv", "this cache is appended to twice in one block"),
                (Code::Cache, "kv", "this cache is attended to before it is appended to"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] mod m {
                pub fn f(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { g(x) + f(x) }
                fn g(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { h(x) }
                fn h(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { f(-x) }
            }",
            &[
                (Code::Recursion, "f", "`f` calls itself through `h`"),
                (Code::Recursion, "f", "`f` calls itself"),
            ],
        ),
        body(
            "x.linear(up)",
            &[(Code::Return, "linear", "the signature of `f` returns f32 [up to B = 4, D = 64], the block ends with f32 [up to B = 4, F = 96]")],
        ),
        body(
            "(x, x)",
            &[(Code::Return, "(x, x)", "the signature of `f` declares 1 result, the block ends with 2")],
        ),
        body("x.argmax()", &[(Code::Return, "argmax", "the signature of `f` returns f32 [up to B = 4, D = 64], the block ends with i32 [up to B = 4]")]),
        body("let y = x;", &[(Code::Return, "}", "`f` does not end with an expression")]),
        program(
            "#[decode(D = 4)] fn f(x: Tensor<f32, D>) { x }",
            &[(Code::Return, "f", "`f` declares no result")],
        ),
        program(
            "#[decode(B in 1..=2, D = 64)] #[budget(max_launches = 1, max_scratch_bytes = 16)]
             fn f(x: Tensor<f32, B, D>, w: Weight<f32, D, D>, v: Weight<f32, D, D>) -> Tensor<f32, B, D> { x.linear(w).linear(v) }",
            &[
                (Code::Budget, "budget", "`f` launches 2 kernels, its budget is 1"),
                (Code::Budget, "budget", "`f` needs 256 B of scratch memory, its budget is 16 B"),
            ],
        ),
        // Pins
        body(
            "let y = x; y.inline() + up.materialize() + ids.inline() + pos.materialize() + kv.inline()",
            &[
                (Code::Pin, "inline", "`inline()` does not apply to the argument `x`"),
                (Code::Pin, "materialize", "`materialize()` does not apply to the argument `up`"),
                (Code::Pin, "inline", "`inline()` does not apply to the argument `ids`"),
                (Code::Pin, "materialize", "`materialize()` does not apply to the argument `pos`"),
                (Code::Pin, "inline", "`inline()` does not apply to the argument `kv`"),
            ],
        ),
        body(
            "let k = x.linear(sq).split(32, 32); let (k, v) = k; let k = k.heads(KV).materialize(); let c = kv.append(v.heads(KV), v.heads(KV), pos).materialize(); let n = 2.0.inline(); let m = (-1).materialize(); x",
            &[
                (Code::Pin, "materialize", "`materialize()` does not apply to a view"),
                (Code::Pin, "materialize", "`materialize()` does not apply to a cache"),
                (Code::Pin, "inline", "`inline()` does not apply to a number"),
                (Code::Pin, "materialize", "`materialize()` does not apply to a number"),
            ],
        ),
        body(
            "let a = x.linear(sq).inline(); let b = x.sum().inline(); let c = x.heads(H).inline(); let d = ids.embed(up).inline(); let e = x.rms_norm(norm, 1e-5).inline(); x.silu(a)",
            &[
                (Code::Pin, "inline", "`inline()` does not apply to the result of `linear`"),
                (Code::Pin, "inline", "`inline()` does not apply to the result of `sum`"),
                (Code::Pin, "inline", "`inline()` does not apply to a view"),
                (Code::Pin, "inline", "`inline()` does not apply to the result of `embed`"),
                (Code::Pin, "inline", "`inline()` does not apply to the result of `rms_norm`"),
                (Code::ArgCount, "silu", "`silu` takes 0 arguments, found 1"),
            ],
        ),
        body(
            "let h = x.silu(); let a = h.inline(); let b = h.materialize(); let c = x.exp().materialize().inline(); a",
            &[
                (Code::Pin, "materialize", "`materialize()` does not apply to a value that `inline()` pins already"),
                (Code::Pin, "inline", "`inline()` does not apply to a value that `materialize()` pins already"),
                (Code::Pin, "inline", "`inline()` does not apply to a result of the block"),
            ],
        ),
        body(
            "x.exp().view(B, 2, 32).flatten().inline(3)",
            &[(Code::ArgCount, "inline", "`inline` takes 0 arguments, found 1")],
        ),
        body(
            "x.exp().inline().view(B, 2, 32).flatten()",
            &[(Code::Pin, "inline", "`inline()` does not apply to a result of the block")],
        ),
        body(
            "x.split(32, 32).materialize()",
            &[(Code::Kind, "split", "a tuple of 2 where one value is needed")],
        ),
        // Errors of a configuration say so; those of an inlined function are at its call.
        program(
            "#[decode(B = 1, a { D = 32 }, b { D = 48 })] mod m {
                pub fn f(x: Tensor<f32, B, D>, w: Weight<Q8_0, D, D>) -> Tensor<f32, B, D> { x.linear(w) + y }
            }",
            &[
                (Code::UnknownName, "y", "no argument or `let` is called `y`"),
                (Code::Group, "D", "a row of D = 48 elements does not divide into the groups of 32 that `Q8_0` has (in `b`)"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] mod m {
                pub fn f(x: Tensor<f32, B, 1, D>, kv: &mut KvCache<f32, B, 1, D, D>, pos: Index<B>) -> Tensor<f32, B, 1, D> {
                    g(x, kv, pos) + g(x, kv, pos)
                }
                pub fn g(x: Tensor<f32, B, 1, D>, kv: &mut KvCache<f32, B, 1, D, D>, pos: Index<B>) -> Tensor<f32, B, 1, D> {
                    x.attend(kv.append(x, x, pos), 1)
                }
                pub fn h(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { g(x, x) + k(x, x) }
                pub fn k(x: Tensor<f32, B, 2>, y: Index<B>) -> Tensor<f32, B, D> { x }
            }",
            &[
                (Code::Cache, "g", "this cache is appended to twice in one block"),
                (Code::Return, "x", "the signature of `k` returns f32 [B = 1, D = 4], the block ends with f32 [B = 1, 2]"),
                (Code::ArgCount, "g", "`g` takes 3 arguments, found 2"),
            ],
        ),
        program(
            "#[decode(B = 1, D = 4)] mod m {
                pub fn h(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { k(x, x) }
                pub fn k(x: Tensor<f32, B, 2>, y: Index<B>) -> Tensor<f32, B, 2> { x }
            }",
            &[
                (Code::Shape, "x", "argument `x` is declared as f32 [B = 1, 2], found f32 [B = 1, D = 4]"),
                (Code::Kind, "x", "argument `y` is declared as an index of B = 1 rows, found f32 [B = 1, D = 4]"),
            ],
        ),
        program(
            "#[decode(B = 1)] fn f(x: Scalar) -> Tensor<f32, B> { x }",
            &[(Code::Kind, "f", "`f` has no argument in device memory")],
        ),
    ]
}

#[test]
fn every_error_says_what_and_where() {
    let mut wrong = String::new();
    for Case { program, expected } in cases() {
        let errors = errors(&program);
        let found: Vec<(Code, String, String)> = errors
            .list()
            .iter()
            .map(|error| {
                let first = error.diagnostic.message.lines().next().unwrap_or("").to_string();
                (error.diagnostic.code, pointed_at(&program, error), first)
            })
            .collect();
        let found: Vec<_> =
            found.iter().map(|(c, at, text)| (*c, at.as_str(), text.as_str())).collect();
        if found != expected {
            wrong += &format!("{program}\n  expected {expected:#?}\n  found {found:#?}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_code_has_a_case() {
    let cases = cases();
    for code in Code::ALL {
        let has_case = |case: &Case| case.expected.iter().any(|(found, ..)| found == code);
        assert!(cases.iter().any(has_case), "no case for {code:?}");
    }
}

/// House style: lower case or a quoted name first, no full stop, help that says something.
#[test]
fn messages_keep_to_the_style() {
    for Case { program, .. } in cases() {
        for error in errors(&program).list() {
            for text in [&error.diagnostic.message, &error.diagnostic.help] {
                let first = text.chars().next().unwrap_or('a');
                assert!(!first.is_uppercase(), "{text}");
                assert!(!text.ends_with('.') && !text.contains("illegal"), "{text}");
            }
        }
    }
}

#[test]
fn helps_name_the_slip_of_the_keyboard() {
    let case = body("x.rmsnorm(norm, 1e-5) + x.rms_norm(nornm, 1e-5) + x.exp().materialise()", &[]);
    let helps: Vec<String> =
        errors(&case.program).list().iter().map(|error| error.diagnostic.help.clone()).collect();
    assert_eq!(
        helps,
        ["did you mean `rms_norm`?", "did you mean `norm`?", "did you mean `materialize`?"]
    );
}
