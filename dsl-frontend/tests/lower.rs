//! What programs become as graphs, against text written by hand from the language's rules.

mod source;

use source::graphs;

#[track_caller]
fn check(program: &str, expected: &[&str]) {
    let found = graphs(program);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        let expected: Vec<&str> =
            expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(found, expected, "\n{}", found.join("\n"));
    }
}

/// Text without its arguments, which other tests cover.
fn operations(program: &str) -> Vec<String> {
    let graphs = graphs(program);
    let skipped = ["block ", "batch ", "arg ", "format "];
    let is_operation = |line: &&str| !skipped.iter().any(|word| line.starts_with(word));
    let lines = graphs.iter().flat_map(|graph| graph.lines());
    lines.filter(is_operation).map(str::to_string).collect()
}

#[test]
fn attention_and_mlp() {
    check(
        r"
        #[decode(B = 1, D = 576, F = 1536, H = 9, KV = 3, HD = 64, T = 2048)]
        pub mod smollm2 {
            pub fn attention(
                x: Tensor<f32, B, D>,
                norm: Tensor<f32, D>,
                qkv: Weight<Q4_1, { (H + 2 * KV) * HD }, D>,
                out: Weight<Q4_1, D, { H * HD }>,
                kv: &mut KvCache<f32, B, KV, HD, T>,
                pos: Index<B>,
            ) -> Tensor<f32, B, D> {
                let h = x.rms_norm(norm, 1e-5);
                let (q, k, v) = h.linear(qkv).split(H * HD, KV * HD, KV * HD);
                let q = q.heads(H).rope(Interleaved, pos, 100_000.0);
                let k = k.heads(KV).rope(Interleaved, pos, 100_000.0);
                let a = q.attend(kv.append(k, v.heads(KV), pos), 0.125);
                x + a.flatten().linear(out)
            }

            #[budget(max_launches = 8)]
            pub fn mlp(
                x: Tensor<f32, B, D>, norm: Tensor<f32, D>,
                gate: Weight<Q4_1, F, D>, up: Weight<Q4_1, F, D>, down: Weight<Q4_1, D, F>,
            ) -> Tensor<f32, B, D> {
                let h = x.rms_norm(norm, 1e-5);
                x + (h.linear(gate).silu() * h.linear(up)).linear(down)
            }
        }",
        &[
            "block attention
            arg %0 x input f32[B:1, D:576]
            arg %1 norm weight f32[D:576]
            arg %2 qkv weight Q4_1{(H + 2 * KV) * HD:960, D:576}
            arg %3 out weight Q4_1{D:576, H * HD:576}
            arg %4 kv cache cache f32[B:1, KV:3, HD:64, T:2048]
            arg %5 pos input index[B:1]
            %6 h = rms_norm %0 %1 eps=1e-5 : f32[B:1, D:576]
            %7 = linear %6 %2 : f32[B:1, (H + 2 * KV) * HD:960]
            %8 q = slice %7 start=0 len=H * HD:576 : f32[B:1, H * HD:576]
            %9 k = slice %7 start=576 len=KV * HD:192 : f32[B:1, KV * HD:192]
            %10 v = slice %7 start=768 len=KV * HD:192 : f32[B:1, KV * HD:192]
            %11 = reshape %8 shape=[B:1, H:9, HD:64] : f32[B:1, H:9, HD:64]
            %12 q = rope %11 %5 pairing=Interleaved base=100000.0 rotary=64 : f32[B:1, H:9, HD:64]
            %13 = reshape %9 shape=[B:1, KV:3, HD:64] : f32[B:1, KV:3, HD:64]
            %14 k = rope %13 %5 pairing=Interleaved base=100000.0 rotary=64 : f32[B:1, KV:3, HD:64]
            %15 = reshape %10 shape=[B:1, KV:3, HD:64] : f32[B:1, KV:3, HD:64]
            %16 = append %4 %14 %15 %5 : cache f32[B:1, KV:3, HD:64, T:2048]
            %17 a = attend %12 %16 %5 scale=0.125 : f32[B:1, H:9, HD:64]
            %18 = reshape %17 shape=[B:1, H * HD:576] : f32[B:1, H * HD:576]
            %19 = linear %18 %3 : f32[B:1, D:576]
            %20 = add %0 %19 : f32[B:1, D:576]
            return %20",
            "block mlp
            arg %0 x input f32[B:1, D:576]
            arg %1 norm weight f32[D:576]
            arg %2 gate weight Q4_1{F:1536, D:576}
            arg %3 up weight Q4_1{F:1536, D:576}
            arg %4 down weight Q4_1{D:576, F:1536}
            %5 h = rms_norm %0 %1 eps=1e-5 : f32[B:1, D:576]
            %6 = linear %5 %2 : f32[B:1, F:1536]
            %7 = silu %6 : f32[B:1, F:1536]
            %8 = linear %5 %3 : f32[B:1, F:1536]
            %9 = mul %7 %8 : f32[B:1, F:1536]
            %10 = linear %9 %4 : f32[B:1, D:576]
            %11 = add %0 %10 : f32[B:1, D:576]
            return %11",
        ],
    );
}

#[test]
fn calls_are_inlined_with_callees_declared_later() {
    check(
        r"
        #[decode(B in 1..=5, D = 8)]
        mod m {
            pub fn outer(x: Tensor<f32, B, D>, w: Weight<f32, D, D>) -> Tensor<f32, B, D> {
                let y = inner(x, w);
                inner(y * 2, w)
            }
            fn inner(h: Tensor<f32, B, D>, m: Weight<f32, D, D>) -> Tensor<f32, B, D> {
                let y = h.linear(m);
                y.silu()
            }
        }",
        &[
            "block outer
            batch B 1..=5
            arg %0 x input f32[B<=5, D:8]
            arg %1 w weight f32{D:8, D:8}
            %2 y = linear %0 %1 : f32[B<=5, D:8]
            %3 y = silu %2 : f32[B<=5, D:8]
            %4 = const value=2.0 : f32[]
            %5 = mul %3 %4 : f32[B<=5, D:8]
            %6 y = linear %5 %1 : f32[B<=5, D:8]
            %7 = silu %6 : f32[B<=5, D:8]
            return %7",
            "block inner
            batch B 1..=5
            arg %0 h input f32[B<=5, D:8]
            arg %1 m weight f32{D:8, D:8}
            %2 y = linear %0 %1 : f32[B<=5, D:8]
            %3 = silu %2 : f32[B<=5, D:8]
            return %3",
        ],
    );
}

#[test]
fn shadowing_tuples_and_dead_values() {
    check(
        r"
        #[decode(B in 1..=4, D = 6)]
        fn lone(x: Tensor<f32, B, D>) -> (Tensor<f32, B, 2>, Tensor<f32, B, 2>, Tensor<f32, B, D>) {
            let unused = x.exp();
            let x = -x;
            let (a, _, c) = x.chunk(3);
            let pair = (c, a);
            let (a, c) = pair;
            (a, c.sqrt(), x)
        }",
        &["block lone
            batch B 1..=4
            arg %0 x input f32[B<=4, D:6]
            %1 x = neg %0 : f32[B<=4, D:6]
            %2 a = slice %1 start=0 len=D / 3:2 : f32[B<=4, D / 3:2]
            %3 c = slice %1 start=4 len=D / 3:2 : f32[B<=4, D / 3:2]
            %4 = sqrt %2 : f32[B<=4, D / 3:2]
            return %3 %4 %1"],
    );
}

#[test]
fn results_are_rounded_to_the_declared_type_and_arguments_are_copied() {
    check(
        r"
        #[decode(B in 1..=4, D = 6, C = bf16)]
        fn f(x: Tensor<f32, B, D>, y: Tensor<C, B, D>)
            -> (Tensor<C, B, D>, Tensor<f32, B, D>, Tensor<f32, B, D>, Tensor<bf16, B, D>) {
            let z = x.exp();
            (z, x, z.to::<f16>(), y)
        }",
        &["block f
            batch B 1..=4
            arg %0 x input f32[B<=4, D:6]
            arg %1 y input bf16[B<=4, D:6]
            %2 z = exp %0 : f32[B<=4, D:6]
            %3 = to %2 dtype=f16 : f16[B<=4, D:6]
            %4 = to %2 dtype=bf16 : bf16[B<=4, D:6]
            %5 = to %0 dtype=f32 : f32[B<=4, D:6]
            %6 = to %3 dtype=f32 : f32[B<=4, D:6]
            %7 = to %1 dtype=bf16 : bf16[B<=4, D:6]
            return %4 %5 %6 %7"],
    );
}

#[test]
fn operands_of_products_are_rounded_once_each() {
    let found = operations(
        r"
        #[decode(B = 2, D = 64, KV = 1, HD = 64, T = 16, operand = bf16)]
        mod m {
            pub fn f(
                x: Tensor<f32, B, D>, w: Weight<Q8_0, D, D>, v: Weight<Q8_0, D, D>,
                kv: &mut KvCache<f16, B, KV, HD, T>, pos: Index<B>,
            ) -> Tensor<f32, B, D> {
                let h = x.exp();
                let q = h.linear(w).heads(1);
                let k = h.linear(v).heads(KV);
                let rounded = h.to::<bf16>().linear(v);
                rounded + q.attend(kv.append(k, k, pos), 1.0 / 8.0, window(4), softcap(50)).flatten()
            }
        }",
    );
    let expected = [
        "%5 h = exp %0 : f32[B:2, D:64]",
        "%6 = to %5 dtype=bf16 : bf16[B:2, D:64]",
        "%7 = linear %6 %1 : f32[B:2, D:64]",
        "%8 q = reshape %7 shape=[B:2, 1, 64] : f32[B:2, 1, 64]",
        "%9 = linear %6 %2 : f32[B:2, D:64]",
        "%10 k = reshape %9 shape=[B:2, KV:1, 64] : f32[B:2, KV:1, 64]",
        "%11 = to %5 dtype=bf16 : bf16[B:2, D:64]",
        "%12 rounded = linear %11 %2 : f32[B:2, D:64]",
        "%13 = append %3 %10 %10 %4 : cache f16[B:2, KV:1, HD:64, T:16]",
        "%14 = attend %8 %13 %4 scale=0.125 window=4 softcap=50.0 operand=bf16 : f32[B:2, 1, 64]",
        "%15 = reshape %14 shape=[B:2, 64] : f32[B:2, 64]",
        "%16 = add %12 %15 : f32[B:2, D:64]",
        "return %16",
    ];
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

#[test]
fn embedding_sinks_partial_rope_and_argmax() {
    let found = operations(
        r"
        #[decode(B in 2..=2, D = 8, V = 10, H = 2, HD = 4, T = 16)]
        mod m {
            pub fn f(
                ids: Tokens<B>, table: Weight<f16, V, D>, s: Tensor<bf16, H>, by: Scalar,
                kv: &mut KvCache<f32, B, H, HD, T>, pos: Index<B>,
            ) -> Tokens<B> {
                let x = (ids.embed(table) * by).view(B, H, HD);
                let q = x.rope(HalfSplit, pos, 10000, rotary(HD / 2));
                let a = q.attend(kv.append(q, x, pos), 0.5, sinks(s));
                a.flatten().linear(table).argmax()
            }
        }",
    );
    let expected = [
        "%6 = embed %0 %1 : f32[B<=2, D:8]",
        "%7 = mul %6 %3 : f32[B<=2, D:8]",
        "%8 x = reshape %7 shape=[B<=2, H:2, HD:4] : f32[B<=2, H:2, HD:4]",
        "%9 q = rope %8 %5 pairing=HalfSplit base=10000.0 rotary=2 : f32[B<=2, H:2, HD:4]",
        "%10 = append %4 %9 %8 %5 : cache f32[B<=2, H:2, HD:4, T:16]",
        "%11 a = attend %9 %10 %5 %2 scale=0.5 sinks=true : f32[B<=2, H:2, HD:4]",
        "%12 = reshape %11 shape=[B<=2, H * HD:8] : f32[B<=2, H * HD:8]",
        "%13 = linear %12 %1 : f32[B<=2, V:10]",
        "%14 = argmax %13 : i32[B<=2]",
        "return %14",
    ];
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

#[test]
fn rows_pointwise_and_norms() {
    let found = operations(
        r"
        #[decode(D = 4)]
        fn f(x: Tensor<f32, 3, D>, w: Tensor<f32, D>, b: Tensor<f32, D>) -> Tensor<f32, 3, 1> {
            let y = x.layer_norm(w, b, 0).clamp(-1, 1.5).softcap(30.0);
            let y = y.lt(w).select(y, b.max(y)).softmax();
            y.max() + y.sum() - y.mean() / 2e3
        }",
    );
    let expected = [
        "%3 = layer_norm %0 %1 %2 eps=0.0 : f32[3, D:4]",
        "%4 = const value=-1.0 : f32[]",
        "%5 = const value=1.5 : f32[]",
        "%6 = clamp %3 %4 %5 : f32[3, D:4]",
        "%7 = const value=30.0 : f32[]",
        "%8 y = softcap %6 %7 : f32[3, D:4]",
        "%9 = lt %8 %1 : f32[3, D:4]",
        "%10 = max %2 %8 : f32[3, D:4]",
        "%11 = select %9 %8 %10 : f32[3, D:4]",
        "%12 y = softmax %11 : f32[3, D:4]",
        "%13 = row_max %12 : f32[3, 1]",
        "%14 = row_sum %12 : f32[3, 1]",
        "%15 = add %13 %14 : f32[3, 1]",
        "%16 = row_mean %12 : f32[3, 1]",
        "%17 = const value=2000.0 : f32[]",
        "%18 = div %16 %17 : f32[3, 1]",
        "%19 = sub %15 %18 : f32[3, 1]",
        "return %19",
    ];
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

#[test]
fn configurations_share_common_entries() {
    let found = graphs(
        r"
        #[decode(B in 1..=2, small { D = 8, F = 2 * D }, large { D = 16, F = D * 4 })]
        mod m {
            pub fn f(x: Tensor<f32, B, D>, w: Weight<f32, F, D>) -> Tensor<f32, B, F> {
                x.linear(w)
            }
        }",
    );
    let firsts: Vec<&str> = found.iter().filter_map(|text| text.lines().nth(3)).collect();
    assert_eq!(firsts, ["arg %1 w weight f32{F:16, D:8}", "arg %1 w weight f32{F:64, D:16}"]);
}

#[test]
fn declared_formats_travel_with_the_graph() {
    let found = graphs(
        r"
        #[decode(B = 1, D = 32)]
        mod m {
            #[weight_format(bits = 4, codebook = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7.5], group = 16, scale = f16)]
            pub struct Cb16;
            #[weight_format(bits = 8, unsigned(bias = 128), group = 32, scale = bf16, offset = f16)]
            pub struct U8;
            pub fn f(x: Tensor<f32, B, D>, w: Weight<Cb16, D, D>, v: Weight<U8, D, D>) -> Tensor<f32, B, D> {
                x.linear(w).linear(v)
            }
        }",
    );
    let lines: Vec<&str> = found[0].lines().skip(1).take(2).collect();
    assert_eq!(
        lines,
        [
            "format Cb16 bits=4 code=codebook(-8.0,-7.0,-6.0,-5.0,-4.0,-3.0,-2.0,-1.0,0.0,1.0,2.0,3.0,4.0,5.0,6.0,7.5) group=16 scale=f16",
            "format U8 bits=8 code=unsigned(128) group=32 scale=bf16 offset=f16",
        ]
    );
}

#[test]
fn every_graph_text_reads_back() {
    for text in graphs(include_str!("programs/llama.rs")) {
        let graph = fuseline_core::ir::Graph::parse(&text).expect("the text form reads back");
        graph.verify().expect("a lowered graph keeps every rule");
        assert_eq!(graph.to_text(), text);
    }
}
