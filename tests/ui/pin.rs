use fuseline::prelude::*;

#[decode(B = 1, D = 64)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, w: Weight<Q4_1, D, D>) -> Tensor<f32, B, D> {
        let a = x.materialize();
        let b = x.linear(w).inline();
        let c = x.silu().materialize();
        let d = c.inline();
        let e = x.view(B, 8, 8).materialize();
        c.exp().inline()
    }
}

fn main() {}
