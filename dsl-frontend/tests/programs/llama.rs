#[decode(
    operand = bf16,
    T = 4096,
    llama_1b { B in 1..=64, D = 2048, F = 8192, H = 32, KV = 8, HD = 64, V = 128256 },
    llama_8b { B in 1..=8, D = 4096, F = 14336, H = 32, KV = 8, HD = D / H, V = 128256 },
)]
pub mod llama {
    #[weight_format(bits = 4, unsigned(bias = 8), group = 32, scale = f16)]
    pub struct Mine;

    fn attention(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        q: Weight<Mine, { H * HD }, D>,
        k: Weight<Q8_0, { KV * HD }, D>,
        v: Weight<Q8_0, { KV * HD }, D>,
        out: Weight<Mine, D, { H * HD }>,
        kv: &mut KvCache<f16, B, KV, HD, T>,
        pos: Index<B>,
    ) -> Tensor<f32, B, D> {
        let h = x.rms_norm(norm, 1e-5);
        let q = h.linear(q).heads(H).rope(HalfSplit, pos, 500_000.0);
        let k = h.linear(k).heads(KV).rope(HalfSplit, pos, 500_000.0);
        let cache = kv.append(k, h.linear(v).heads(KV), pos);
        q.attend(cache, 0.125).flatten().linear(out) + x
    }

    /// One layer.
    pub fn layer(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        q: Weight<Mine, { H * HD }, D>,
        k: Weight<Q8_0, { KV * HD }, D>,
        v: Weight<Q8_0, { KV * HD }, D>,
        out: Weight<Mine, D, { H * HD }>,
        kv: &mut KvCache<f16, B, KV, HD, T>,
        pos: Index<B>,
        mlp_norm: Tensor<f32, D>,
        gate: Weight<Mine, F, D>,
        up: Weight<Mine, F, D>,
        down: Weight<Mine, D, F>,
    ) -> Tensor<f32, B, D> {
        let x = attention(x, norm, q, k, v, out, kv, pos);
        let h = x.rms_norm(mlp_norm, 1e-5);
        x + (h.linear(gate).silu() * h.linear(up)).linear(down)
    }

    pub fn head(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        table: Weight<Q8_0, V, D>,
    ) -> (Tokens<B>, Tensor<bf16, B, V>) {
        let logits = x.rms_norm(norm, 1e-5).linear(table);
        (logits.argmax(), logits.softmax())
    }
}
