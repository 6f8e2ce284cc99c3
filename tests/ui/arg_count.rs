use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, norm: Tensor<f32, D>) -> Tensor<f32, B, D> {
        let (a, b) = x.chunk(4);
        g(x.rms_norm(norm))
    }

    fn g(x: Tensor<f32, B, D>, y: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        x.softmax(y)
    }
}

fn main() {}
