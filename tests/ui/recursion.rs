use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        g(x.silu())
    }

    fn g(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        f(x) + x
    }
}

fn main() {}
