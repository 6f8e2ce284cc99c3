use fuseline::prelude::*;

#[weight_format(bits = 4, codebook = [-1, 0, 1], group = 32, scale = f16)]
pub struct Ternary;

#[decode(B = 1, D = 64)]
mod block {
    #[weight_format(bits = 4, unsigned(bias = 8), group = 12, scale = f16)]
    pub struct Mine;

    pub fn f(x: Tensor<f32, B, D>, w: Weight<Mine, D, D>) -> Tensor<f32, B, D> {
        x.linear(w)
    }
}

fn main() {}
