use fuseline::prelude::*;

#[decode(B in 1..=2, D = 64, F = 96)]
mod block {
    #[budget(max_launches = 2, max_scratch_bytes = 256, deny(product_buffer))]
    pub fn mlp(
        x: Tensor<f32, B, D>,
        norm: Tensor<f32, D>,
        up: Weight<Q8_0, F, D>,
        mid: Weight<Q8_0, F, F>,
        down: Weight<Q8_0, D, F>,
    ) -> Tensor<f32, B, D> {
        x + x.rms_norm(norm, 1e-5).linear(up).silu().linear(mid).silu().linear(down)
    }
}

#[budget(max_launches = 1)]
#[decode(B = 1, D = 64)]
fn two_products(
    x: Tensor<f32, B, D>,
    v: Weight<Q8_0, D, D>,
    w: Weight<Q8_0, D, D>,
) -> Tensor<f32, B, D> {
    x.linear(v).linear(w)
}

fn main() {}
