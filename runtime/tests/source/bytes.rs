//! Making files: a writer of GGUF fields, and what turns a valid file into a wrong one.

/// A file that is written field by field, little endian.
#[derive(Clone, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// The fixed head of a GGUF file.
    pub fn gguf(version: u32, n_tensors: u64, n_pairs: u64) -> Writer {
        Writer(b"GGUF".to_vec()).u32(version).u64(n_tensors).u64(n_pairs)
    }

    pub fn raw(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u32(self, value: u32) -> Writer {
        self.raw(&value.to_le_bytes())
    }

    pub fn u64(self, value: u64) -> Writer {
        self.raw(&value.to_le_bytes())
    }

    pub fn string(self, value: &str) -> Writer {
        self.u64(value.len() as u64).raw(value.as_bytes())
    }

    /// A key and the number of its value's type; the value comes next.
    pub fn key(self, key: &str, value_type: u32) -> Writer {
        self.string(key).u32(value_type)
    }

    /// The header of a tensor, dims innermost first.
    pub fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Writer {
        let named = self.string(name).u32(dims.len() as u32);
        dims.iter().fold(named, |writer, &dim| writer.u64(dim)).u32(type_id).u64(offset)
    }

    pub fn pad_to(mut self, alignment: usize) -> Writer {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }
}

/// The splitmix64 generator: enough for tests, and the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// `file` with one to four random changes: bytes and 8-byte fields overwritten (by extreme
/// numbers among others), bytes inserted, removed, the end cut off.
pub fn mutate(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut mutated = file.to_vec();
    for _ in 0..1 + random.below(4) {
        if mutated.is_empty() {
            break;
        }
        let at = random.below(mutated.len());
        match random.below(6) {
            0 => mutated[at] = random.next() as u8,
            1 => mutated[at] ^= 1 << random.below(8),
            2 => {
                let extremes = [0, 1, u64::MAX, u64::MAX - 4, 1 << 63, 1 << 32, 1 << 48];
                let field = extremes[random.below(extremes.len())].to_le_bytes();
                let len = field.len().min(mutated.len() - at);
                mutated[at..at + len].copy_from_slice(&field[..len]);
            }
            3 => mutated.insert(at, random.next() as u8),
            4 => drop(mutated.remove(at)),
            _ => mutated.truncate(at),
        }
    }
    mutated
}
