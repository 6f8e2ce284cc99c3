use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensr<f32, B, D>, w: Weight<Q4_K, D, D>) -> Tensor<f64, B, D> {
        x.linear(w)
    }
}

fn main() {}
