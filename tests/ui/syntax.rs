use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, gate: Tensor<f32, B, D>) -> Tensor<f32, B, D> {
        let y = if gate < 0.0 { x } else { gate };
        let z = y[0] + (gate >= x);
        return z;
    }
}

fn main() {}
