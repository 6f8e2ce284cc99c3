use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, pos: Index<B>) -> Tensor<f32, B, D> {
        x.rope(HalfSplit, pos, 10_000.0)
    }

    pub fn g(x: Tensor<f32, B, 1, 1, 1, D>) -> Tensor<f32, B, D> {
        x.flatten()
    }
}

fn main() {}
