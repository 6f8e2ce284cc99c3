use fuseline::prelude::*;

#[decode(B = 1, H = 2, HD = 32, T = 16)]
mod block {
    pub fn f(
        x: Tensor<f32, B, H, HD>,
        kv: &mut KvCache<f32, B, H, HD, T>,
        pos: Index<B>,
    ) -> Tensor<f32, B, H, HD> {
        let early = x.attend(kv, 1.0);
        let cache = kv.append(x, x, pos);
        let again = kv.append(x, x, pos);
        early + x.attend(cache, 1.0)
    }
}

fn main() {}
