use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, norm: Tensor<f32, D>, w: Weight<Q4_1, D, D>) -> Tensor<f32, B, D> {
        x.linear(norm) + w * D
    }

    pub fn g(kv: KvCache<f32, B, 1, D, 16>, pos: Index<B>) -> Index<B> {
        pos
    }
}

fn main() {}
