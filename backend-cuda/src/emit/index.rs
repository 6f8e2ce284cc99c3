//! Index arithmetic: sums of products with constants, quotients and remainders of variables,
//! simplified by what is known of their ranges. All numbers are non-negative.

use fuseline_core::ir::Dim;
use std::fmt;

/// `Σ factor · atom + constant`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Index {
    terms: Vec<(Atom, u64)>,
    constant: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Atom {
    /// A variable of the text, less than `extent`.
    Var { name: String, extent: u64 },
    /// A quotient, rounded down.
    Div(Box<Index>, u64),
    /// A remainder.
    Rem(Box<Index>, u64),
}

impl Index {
    /// A number.
    pub fn constant(value: usize) -> Index {
        Index { terms: Vec::new(), constant: value as u64 }
    }

    /// A variable of the text that is less than `extent`.
    pub fn var(name: &str, extent: usize) -> Index {
        let atom = Atom::Var { name: name.to_string(), extent: extent as u64 };
        Index { terms: vec![(atom, 1)], constant: 0 }
    }

    /// The sum of two.
    pub fn plus(&self, other: &Index) -> Index {
        let mut terms = self.terms.clone();
        terms.extend(other.terms.iter().cloned());
        Index { terms, constant: self.constant + other.constant }.normal()
    }

    /// The product with a number.
    pub fn times(&self, factor: usize) -> Index {
        let factor = factor as u64;
        let terms = self.terms.iter().map(|(atom, f)| (atom.clone(), f * factor)).collect();
        Index { terms, constant: self.constant * factor }.normal()
    }

    /// The quotient by a number, rounded down.
    pub fn div(&self, divisor: usize) -> Index {
        let divisor = (divisor as u64).max(1);
        let (whole, rest) = self.split(divisor);
        if rest.greatest() < divisor {
            return whole;
        }
        let quotient = Atom::Div(Box::new(rest), divisor);
        whole.plus(&Index { terms: vec![(quotient, 1)], constant: 0 })
    }

    /// The remainder by a number.
    pub fn rem(&self, divisor: usize) -> Index {
        let divisor = (divisor as u64).max(1);
        let (_, rest) = self.split(divisor);
        if rest.greatest() < divisor {
            return rest;
        }
        Index { terms: vec![(Atom::Rem(Box::new(rest), divisor), 1)], constant: 0 }
    }

    /// `self = divisor · whole + rest`, with every multiple of the divisor in `whole`.
    fn split(&self, divisor: u64) -> (Index, Index) {
        let (whole, rest): (Vec<_>, Vec<_>) =
            self.terms.iter().cloned().partition(|(_, factor)| factor % divisor == 0);
        let whole = whole.into_iter().map(|(atom, factor)| (atom, factor / divisor)).collect();
        (
            Index { terms: whole, constant: self.constant / divisor },
            Index { terms: rest, constant: self.constant % divisor },
        )
    }

    /// The largest number that it can be.
    fn greatest(&self) -> u64 {
        let terms = self.terms.iter().map(|(atom, factor)| atom.greatest().saturating_mul(*factor));
        terms.fold(self.constant, u64::saturating_add)
    }

    /// Equal atoms added up, quotient and remainder of the same put together, in a fixed order.
    fn normal(mut self) -> Index {
        self.terms.sort();
        let mut terms: Vec<(Atom, u64)> = Vec::new();
        for (atom, factor) in self.terms {
            match terms.last_mut() {
                Some((last, sum)) if *last == atom => *sum += factor,
                _ => terms.push((atom, factor)),
            }
        }
        terms.retain(|(atom, factor)| *factor > 0 && atom.greatest() > 0);
        let whole = terms.iter().find_map(|(atom, factor)| {
            let Atom::Rem(inner, divisor) = atom else { return None };
            let quotient = (Atom::Div(inner.clone(), *divisor), factor * divisor);
            terms.contains(&quotient).then(|| (inner.clone(), *factor, atom.clone(), quotient.0))
        });
        let Some((inner, factor, remainder, quotient)) = whole else {
            return Index { terms, constant: self.constant };
        };
        terms.retain(|(atom, _)| *atom != remainder && *atom != quotient);
        let rest = Index { terms, constant: self.constant };
        rest.plus(&inner.times(factor as usize))
    }
}

impl Atom {
    /// The largest number that it can be.
    fn greatest(&self) -> u64 {
        match self {
            Atom::Var { extent, .. } => extent.saturating_sub(1),
            Atom::Div(inner, divisor) => inner.greatest() / divisor,
            Atom::Rem(inner, divisor) => inner.greatest().min(divisor - 1),
        }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self
            .terms
            .iter()
            .map(|(atom, factor)| match factor {
                1 => atom.to_string(),
                factor => format!("{factor} * {atom}"),
            })
            .collect();
        if self.constant > 0 || parts.is_empty() {
            parts.push(self.constant.to_string());
        }
        f.write_str(&parts.join(" + "))
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |index: &Index| {
            let text = index.to_string();
            if text.contains(' ') { format!("({text})") } else { text }
        };
        match self {
            Atom::Var { name, .. } => f.write_str(name),
            Atom::Div(inner, divisor) => write!(f, "({} / {divisor})", group(inner)),
            Atom::Rem(inner, divisor) => write!(f, "({} % {divisor})", group(inner)),
        }
    }
}

/// The place of an element in row-major order.
pub fn linearize(coords: &[Index], shape: &[Dim]) -> Index {
    coords
        .iter()
        .zip(shape)
        .fold(Index::constant(0), |sum, (coord, dim)| sum.times(dim.size).plus(coord))
}

/// The coordinates of the element at a place in row-major order.
pub fn delinearize(place: &Index, shape: &[Dim]) -> Vec<Index> {
    let mut coords = Vec::with_capacity(shape.len());
    let mut rest = place.clone();
    for (axis, dim) in shape.iter().enumerate().rev() {
        if axis == 0 {
            coords.push(rest.clone());
        } else {
            coords.push(rest.rem(dim.size));
            rest = rest.div(dim.size);
        }
    }
    coords.reverse();
    coords
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(sizes: &[usize]) -> Vec<Dim> {
        sizes.iter().map(|&size| Dim::literal(size)).collect()
    }

    fn show(coords: &[Index]) -> Vec<String> {
        coords.iter().map(Index::to_string).collect()
    }

    #[test]
    fn rows_and_columns_come_back_from_a_place() {
        let (row, col) = (Index::var("row", 16), Index::var("col", 576));
        let place = linearize(&[row, col], &dims(&[16, 576]));
        assert_eq!(place.to_string(), "col + 576 * row");
        assert_eq!(show(&delinearize(&place, &dims(&[16, 576]))), ["row", "col"]);
        assert_eq!(
            show(&delinearize(&place, &dims(&[16, 9, 64]))),
            ["row", "(col / 64)", "(col % 64)"]
        );
    }

    #[test]
    fn heads_and_back_is_the_identity() {
        let col = Index::var("col", 576);
        let heads = delinearize(&col, &dims(&[9, 64]));
        assert_eq!(linearize(&heads, &dims(&[9, 64])).to_string(), "col");
    }

    #[test]
    fn every_form_has_the_value_of_its_text() {
        // Values by exhaustive evaluation against plain arithmetic.
        let shape_a = dims(&[3, 10]);
        let shape_b = dims(&[5, 6]);
        for place in 0..30usize {
            let direct = [place / 6, place % 6];
            let coords = delinearize(&Index::constant(place), &shape_b);
            assert_eq!(show(&coords), [direct[0].to_string(), direct[1].to_string()]);
        }
        let (a, b) = (Index::var("a", 3), Index::var("b", 10));
        let coords = delinearize(&linearize(&[a, b], &shape_a), &shape_b);
        assert_eq!(show(&coords), ["((10 * a + b) / 6)", "((10 * a + b) % 6)"]);
    }
}
