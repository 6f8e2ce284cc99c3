//! The activations of a launch, in the orders that the loops read them, and their group sums.

use super::planes::DotError;
use super::simd::Level;
use fuseline_core::format::WeightFormat;

/// `[m, k]` activations prepared for weights of some formats. One value can be filled again for
/// every launch, and then allocates nothing once its buffers have grown.
#[derive(Clone, Debug)]
pub struct Activations {
    level: Level,
    m: usize,
    k: usize,
    rows: Vec<f32>,
    /// Copies for 4-bit codes, for each unit in use.
    even_odd: Vec<EvenOdd>,
    sums: Vec<GroupSums>,
}

/// A copy in which each unit of a row has its even elements before its odd ones, as the nibbles
/// of a unit's bytes come. What is left of a row after whole units keeps its order.
#[derive(Clone, Debug)]
struct EvenOdd {
    unit: usize,
    filled: bool,
    rows: Vec<f32>,
}

/// Σ x of every group of a row, `[m, k / size]`: what an offset is multiplied by.
#[derive(Clone, Debug)]
struct GroupSums {
    size: usize,
    filled: bool,
    sums: Vec<f32>,
}

impl Activations {
    /// No activations yet; products will use the vector code of `level`.
    pub fn new(level: Level) -> Activations {
        Activations { level, m: 0, k: 0, rows: vec![], even_odd: vec![], sums: vec![] }
    }

    /// Takes `m` rows of `k` activations, row-major, to be multiplied by weights in `formats`.
    pub fn fill<'f>(
        &mut self,
        x: &[f32],
        m: usize,
        k: usize,
        formats: impl IntoIterator<Item = &'f WeightFormat>,
    ) -> Result<(), DotError> {
        let expected = m.saturating_mul(k);
        if x.len() != expected {
            return Err(DotError::Length { what: "activations", expected, found: x.len() });
        }
        (self.m, self.k) = (m, k);
        self.rows.clear();
        self.rows.extend_from_slice(x);
        self.even_odd.iter_mut().for_each(|copy| copy.filled = false);
        self.sums.iter_mut().for_each(|sums| sums.filled = false);
        for format in formats {
            if format.bits == 4 {
                self.fill_even_odd(self.level.for_format(format).unit());
            }
            if let Some(group) = format.group
                && group.offset.is_some()
            {
                if group.size == 0 || !k.is_multiple_of(group.size) {
                    return Err(DotError::Group { k, group: group.size });
                }
                self.fill_sums(group.size);
            }
        }
        Ok(())
    }

    /// Rows.
    pub fn m(&self) -> usize {
        self.m
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The vector code that products use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The rows in the order that codes of `format` are read in, if they were prepared.
    pub(super) fn rows_for(&self, format: &WeightFormat) -> Option<&[f32]> {
        if format.bits != 4 {
            return Some(&self.rows);
        }
        let unit = self.level.for_format(format).unit();
        let copy = self.even_odd.iter().find(|copy| copy.filled && copy.unit == unit)?;
        Some(&copy.rows)
    }

    /// The sums for the format's groups if it has offsets, else an empty slice; none if they were
    /// not prepared.
    pub(super) fn sums_for(&self, format: &WeightFormat) -> Option<&[f32]> {
        let Some(group) = format.group.filter(|group| group.offset.is_some()) else {
            return Some(&[]);
        };
        let sums = self.sums.iter().find(|sums| sums.filled && sums.size == group.size)?;
        Some(&sums.sums)
    }

    fn fill_even_odd(&mut self, unit: usize) {
        let place = self.even_odd.iter().position(|copy| copy.unit == unit);
        let place = place.unwrap_or_else(|| {
            self.even_odd.push(EvenOdd { unit, filled: false, rows: vec![] });
            self.even_odd.len() - 1
        });
        let copy = &mut self.even_odd[place];
        if copy.filled || self.k == 0 {
            copy.filled = true;
            return;
        }
        copy.filled = true;
        copy.rows.clear();
        for row in self.rows.chunks_exact(self.k) {
            let units = row.chunks_exact(unit);
            let rest = units.remainder();
            for unit in units {
                copy.rows.extend(unit.iter().step_by(2));
                copy.rows.extend(unit.iter().skip(1).step_by(2));
            }
            copy.rows.extend_from_slice(rest);
        }
    }

    fn fill_sums(&mut self, size: usize) {
        let place = self.sums.iter().position(|sums| sums.size == size);
        let place = place.unwrap_or_else(|| {
            self.sums.push(GroupSums { size, filled: false, sums: vec![] });
            self.sums.len() - 1
        });
        let group_sums = &mut self.sums[place];
        if group_sums.filled {
            return;
        }
        group_sums.filled = true;
        group_sums.sums.clear();
        // A row is whole groups, so groups may be taken across rows.
        group_sums.sums.extend(self.rows.chunks_exact(size).map(|group| {
            let mut lanes = [0.0f32; 8];
            for eight in group.chunks_exact(8) {
                for (lane, value) in lanes.iter_mut().zip(eight) {
                    *lane += value;
                }
            }
            lanes.iter().sum::<f32>()
        }));
    }
}
