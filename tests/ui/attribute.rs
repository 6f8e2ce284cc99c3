use fuseline::prelude::*;

#[decode(B in 1..64, D: 64, operand = f64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        x.silu()
    }
}

#[budget(max_launches = 1)]
fn no_block() {}

fn main() {}
