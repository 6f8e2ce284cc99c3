//! SmolLM2 as decode blocks: everything that computes is here.

use fuseline::prelude::*;

/// Llama's architecture with the sizes of SmolLM2-135M. Two configurations: the cache in f32, and
/// in f16.
#[decode(
    cache_f32 { B in 1..=16, D = 576, F = 1536, H = 9, KV = 3, HD = 64, V = 49152, T = 2048, C = f32 },
    cache_f16 { B in 1..=16, D = 576, F = 1536, H = 9, KV = 3, HD = 64, V = 49152, T = 2048, C = f16 }
)]
pub mod smollm2 {
    use fuseline::prelude::*;

    /// The rows of the table that the tokens name.
    pub fn embed(tokens: Tokens<B>, table: Weight<Q8_0, V, D>) -> Tensor<f32, B, D> {
        tokens.embed(table)
    }

    fn attention(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        q: Weight<Q4_1, { H * HD }, D>,
        k: Weight<Q4_1, { KV * HD }, D>,
        v: Weight<Q4_1, { KV * HD }, D>,
        output: Weight<Q4_1, D, { H * HD }>,
        kv: &mut KvCache<C, B, KV, HD, T>,
        pos: Index<B>,
    ) -> Tensor<f32, B, D> {
        let h = x.rms_norm(norm, 1e-5);
        let q = h.linear(q).heads(H).rope(Interleaved, pos, 100_000.0);
        let k = h.linear(k).heads(KV).rope(Interleaved, pos, 100_000.0);
        let v = h.linear(v).heads(KV);
        let a = q.attend(kv.append(k, v, pos), 0.125);
        x + a.flatten().linear(output)
    }

    fn mlp(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        gate: Weight<Q4_1, F, D>,
        up: Weight<Q4_1, F, D>,
        down: Weight<Q4_1, D, F>,
    ) -> Tensor<f32, B, D> {
        let h = x.rms_norm(norm, 1e-5);
        x + (h.linear(gate).silu() * h.linear(up)).linear(down)
    }

    /// One layer: attention and MLP, planned together. Five kernels for one row or two; with more
    /// rows the planner finds it cheaper to compute the norms once, in kernels of their own.
    #[budget(max_launches = 5, deny(product_buffer))]
    pub fn layer(
        x: Tensor<f32, B, D>,
        attn_norm: Tensor<f32, D>,
        attn_q: Weight<Q4_1, { H * HD }, D>,
        attn_k: Weight<Q4_1, { KV * HD }, D>,
        attn_v: Weight<Q4_1, { KV * HD }, D>,
        attn_output: Weight<Q4_1, D, { H * HD }>,
        ffn_norm: Tensor<f32, D>,
        ffn_gate: Weight<Q4_1, F, D>,
        ffn_up: Weight<Q4_1, F, D>,
        ffn_down: Weight<Q4_1, D, F>,
        kv: &mut KvCache<C, B, KV, HD, T>,
        pos: Index<B>,
    ) -> Tensor<f32, B, D> {
        let x = attention(x, attn_norm, attn_q, attn_k, attn_v, attn_output, kv, pos);
        mlp(x, ffn_norm, ffn_gate, ffn_up, ffn_down)
    }

    /// The logits of every row. The table is the embedding's.
    pub fn head(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        table: Weight<Q8_0, V, D>,
    ) -> Tensor<f32, B, V> {
        x.rms_norm(norm, 1e-5).linear(table)
    }

    /// The likeliest token of every row.
    pub fn likeliest(logits: Tensor<f32, B, V>) -> Tokens<B> {
        logits.argmax()
    }
}
