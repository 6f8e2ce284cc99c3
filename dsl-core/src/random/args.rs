//! Random arguments for a graph.

use super::Rng;
use crate::dtype::DType;
use crate::format::{CodeMap, Packed, WeightFormat};
use crate::ir::{Dim, Graph, Op, Type, ValueId};
use crate::oracle::Datum;

/// Arguments for a call of `rows` rows of a verified graph.
///
/// Elements are between -1 and 1 and never 0. Weights have random codes, scales and offsets, and
/// elements of about `k^-½`, so that products with them keep the size of their input. Caches are
/// filled, beyond the positions of the call too. Rows have distinct places in the caches; in some
/// calls they are consecutive positions of one sequence.
pub fn random_args(graph: &Graph, rows: usize, seed: u64) -> Vec<Datum> {
    let mut rng = Rng::new(seed);
    let live = |dim: &Dim| if dim.batch { rows } else { dim.size };
    let datum = |rng: &mut Rng, value: ValueId| match &graph[value].ty {
        Type::Tensor { dtype: DType::I32, shape } => {
            let n_rows = table_rows(graph, value);
            let n: usize = shape.iter().map(live).product();
            Datum::Tokens((0..n).map(|_| rng.below(n_rows) as i32).collect())
        }
        Type::Tensor { shape, .. } if shape.is_empty() => Datum::Scalar(rng.signed() as f32),
        Type::Tensor { dtype, shape } => {
            let n: usize = shape.iter().map(live).product();
            Datum::Tensor(elements(rng, *dtype, n))
        }
        Type::Weight { format, n, k } => Datum::Weight(random_weight(rng, format, n.size, k.size)),
        Type::Cache { dtype, batch, kv_heads, head_dim, capacity } => {
            let n = batch.size * kv_heads.size * head_dim.size * capacity.size;
            Datum::Cache { keys: elements(rng, *dtype, n), values: elements(rng, *dtype, n) }
        }
        Type::Index { rows } => {
            let (sequences, capacity) = index_range(graph, value);
            random_index(rng, live(rows), sequences, capacity)
        }
    };
    graph.args.iter().map(|arg| datum(&mut rng, arg.value)).collect()
}

fn elements(rng: &mut Rng, dtype: DType, n: usize) -> Vec<f64> {
    (0..n).map(|_| dtype.round(rng.signed())).collect()
}

/// Rows of the smallest table that the tokens select from.
fn table_rows(graph: &Graph, tokens: ValueId) -> usize {
    let tables = graph.values.iter().filter(|v| v.op == Op::Embed && v.inputs[0] == tokens);
    let sizes = tables.filter_map(|value| match &graph[value.inputs[1]].ty {
        Type::Weight { n, .. } => Some(n.size),
        _ => None,
    });
    sizes.min().unwrap_or(1)
}

/// Sequences and positions that every cache of the index has.
fn index_range(graph: &Graph, index: ValueId) -> (usize, usize) {
    let mut range = None;
    for value in &graph.values {
        let of_index = match value.op {
            Op::Append => value.inputs[3] == index,
            Op::Attend { .. } => value.inputs[2] == index,
            _ => false,
        };
        let cache = value.inputs.iter().find_map(|&input| match &graph[input].ty {
            Type::Cache { batch, capacity, .. } => Some((batch.size, capacity.size)),
            _ => None,
        });
        if let (true, Some((sequences, capacity))) = (of_index, cache) {
            let (s, c) = range.unwrap_or((usize::MAX, usize::MAX));
            range = Some((sequences.min(s), capacity.min(c)));
        }
    }
    // Without a cache, anything goes.
    range.unwrap_or((8, 100))
}

fn random_index(rng: &mut Rng, rows: usize, sequences: usize, capacity: usize) -> Datum {
    let n_places = (sequences * capacity).max(1);
    let mut places = Vec::new();
    if rows <= capacity && rng.chance(30) {
        let sequence = rng.below(sequences);
        let first = sequence * capacity + rng.below(capacity - rows + 1);
        places.extend(first..first + rows);
    }
    while places.len() < rows {
        let mut place = rng.below(n_places);
        // More rows than places repeat some.
        while places.contains(&place) && places.len() < n_places {
            place = (place + 1) % n_places;
        }
        places.push(place);
    }
    let capacity = capacity.max(1);
    Datum::Index {
        positions: places.iter().map(|place| (place % capacity) as i32).collect(),
        sequences: places.iter().map(|place| (place / capacity) as i32).collect(),
    }
}

/// An `[n, k]` weight of any format, with elements of about `k^-½`.
pub fn random_weight(rng: &mut Rng, format: &WeightFormat, n: usize, k: usize) -> Packed {
    let size = 1.7 / (k.max(1) as f64).sqrt();
    if let (CodeMap::Float(_), None) = (&format.code, format.group) {
        let values: Vec<f32> = (0..n * k).map(|_| (rng.signed() * size) as f32).collect();
        return format.quantize(&values, n, k).unwrap_or_else(|_| empty(n, k));
    }
    let codes: Vec<u32> = match &format.code {
        CodeMap::Float(dtype) => {
            (0..n * k).map(|_| float_code(*dtype, rng.signed() as f32)).collect()
        }
        CodeMap::Unsigned { .. } | CodeMap::Signed | CodeMap::Codebook(_) => {
            (0..n * k).map(|_| rng.below(1 << format.bits) as u32).collect()
        }
    };
    let (low, high) = match &format.code {
        CodeMap::Float(_) => (-1.0, 1.0),
        CodeMap::Unsigned { .. } | CodeMap::Signed | CodeMap::Codebook(_) => {
            let map = (0..1u32 << format.bits).map(|code| format.map_code(code));
            map.fold((0.0f64, 0.0f64), |(low, high), x| (low.min(x), high.max(x)))
        }
    };
    let reach = high.max(-low);
    let n_groups = n * format.n_groups(k);
    let has_offset = format.group.is_some_and(|group| group.offset.is_some());
    // An offset puts the middle of the codes' range near zero.
    let (unit, middle) = if has_offset {
        (2.0 / (high - low), -(high + low) / (high - low))
    } else {
        (1.0 / reach, 0.0)
    };
    let factors: Vec<f64> = (0..n_groups).map(|_| (1.0 + 0.5 * rng.signed()) * size).collect();
    let scales: Vec<f32> = factors.iter().map(|factor| (factor * unit) as f32).collect();
    let offsets: Vec<f32> = factors
        .iter()
        .filter(|_| has_offset)
        .map(|factor| (factor * (middle + 0.2 * rng.signed())) as f32)
        .collect();
    format.pack_planes(&codes, &scales, &offsets, n, k).unwrap_or_else(|_| empty(n, k))
}

/// What cannot be packed: the oracle and back ends refuse it.
fn empty(n: usize, k: usize) -> Packed {
    Packed { n, k, codes: Vec::new(), scales: Vec::new(), offsets: Vec::new() }
}

fn float_code(dtype: DType, value: f32) -> u32 {
    match dtype {
        DType::F32 => value.to_bits(),
        DType::F16 => u32::from(half::f16::from_f32(value).to_bits()),
        DType::BF16 => u32::from(half::bf16::from_f32(value).to_bits()),
        DType::I32 => value as i32 as u32,
    }
}
