use fuseline::prelude::*;

#[decode(B = 1, D = 100)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, w: Weight<Q4_1, 64, D>) -> Tensor<f32, B, 64> {
        x.linear(w)
    }
}

fn main() {}
