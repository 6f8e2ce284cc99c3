use fuseline::prelude::*;

#[decode(B in 1..=16, D = 64, F = 96)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, up: Weight<Q8_0, F, D>) -> Tensor<f32, B, D> {
        x.linear(up).silu()
    }

    pub fn g(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        let y = x.silu();
    }

    pub fn h(x: Tensor<f32, B, D>) {
        (x, x)
    }
}

fn main() {}
