use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, norm: Tensor<f32, D>) -> Tensor<f32, B, D> {
        let hidden = x.rms_norm(norms, 1e-5);
        hiden + mlp(hidden)
    }
}

fn main() {}
