use fuseline::prelude::*;

#[decode(B = 1, D = 64, H = 4)]
mod block {
    pub fn f(x: Tensor<f32, B, D>, norm: Tensor<f32, D>, pos: Index<B>) -> Tensor<f32, B, D> {
        let h = x.rms_norm(norm, norm);
        let q = x.heads(H).rope(Interleaved, pos, 10_000.0, rotary(7));
        h * 1e40 + q.flatten()
    }
}

fn main() {}
