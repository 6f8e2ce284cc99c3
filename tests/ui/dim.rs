use fuseline::prelude::*;

#[decode(B = 1, D = 64, H = 9)]
mod block {
    pub fn f(
        x: Tensor<f32, B, D>,
        a: Weight<Q8_0, { H - 10 }, D>,
        b: Weight<Q8_0, { D / H }, D>,
    ) -> Tensor<f32, B, D> {
        x
    }
}

fn main() {}
