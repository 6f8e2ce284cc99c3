use fuseline::prelude::*;

#[decode(B in 1..=16, D = 64, F = 96)]
mod block {
    pub fn mlp(
        x: Tensor<f32, B, D>,
        up: Weight<Q8_0, F, D>,
        down: Weight<Q8_0, F, D>,
    ) -> Tensor<f32, B, D> {
        let h = x.linear(up);
        let (a, b) = h.split(D, D);
        x + h + h.silu().linear(down)
    }
}

fn main() {}
