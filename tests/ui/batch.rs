use fuseline::prelude::*;

#[decode(B in 1..=16, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, D, B>, y: Tensor<f32, { B * D }>) -> Tensor<f32, B, D> {
        x
    }
}

fn main() {}
