use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, ids: Tokens<B>, n: Tensor<i32, B>) -> Tensor<f32, B, D> {
        x + ids.silu() + x.to::<i32>()
    }
}

fn main() {}
