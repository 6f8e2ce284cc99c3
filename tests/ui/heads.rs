use fuseline::prelude::*;

#[decode(B = 1, D = 96, H = 3, KV = 2, HD = 32, T = 16)]
mod block {
    pub fn f(
        x: Tensor<f32, B, D>,
        k: Tensor<f32, B, { KV * HD }>,
        kv: &mut KvCache<f32, B, KV, HD, T>,
        pos: Index<B>,
    ) -> Tensor<f32, B, D> {
        let k = k.heads(KV);
        let q = x.heads(H);
        let r = x.heads(5);
        q.attend(kv.append(k, k, pos), 0.125).flatten()
    }
}

fn main() {}
