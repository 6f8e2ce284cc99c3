//! Weights in tiles: what is packed comes back, nothing shares a place, and single elements are
//! where the layout says.

use fuseline_core::format::{FORMATS, INT4_G128, Packed, Q8_0, TILE_ROWS, WeightLayout};
use fuseline_core::random::Rng;
use std::collections::BTreeSet;

const TILES: WeightLayout = WeightLayout::Tiles;

fn random(format: &fuseline_core::format::WeightFormat, n: usize, k: usize) -> Packed {
    let mut rng = Rng::new((n * 1000 + k) as u64);
    let values: Vec<f32> = (0..n * k).map(|_| rng.signed() as f32).collect();
    let mut packed = match format.quantize(&values, n, k) {
        Ok(packed) => packed,
        Err(error) => panic!("{}: {error}", format.name),
    };
    // Any bits will do, but those of the padding, which is zero.
    for row in packed.codes.chunks_mut(format.code_row_bytes(k)) {
        let bytes = k * usize::from(format.bits) / 8;
        row[..bytes].iter_mut().for_each(|byte| *byte = rng.bits() as u8);
    }
    packed
}

#[test]
fn what_is_arranged_comes_back() {
    let mut n_tiled = 0;
    for format in FORMATS.iter().copied() {
        let group = format.group_size().max(8);
        for (n, k) in [(1, group), (16, 4 * group), (17, 3 * group), (65, 640), (130, 128)] {
            if !k.is_multiple_of(group) {
                continue;
            }
            let packed = random(format, n, k);
            for layout in [WeightLayout::Rows, TILES] {
                let planes = packed.clone().arranged(format, layout);
                let sizes = planes.each_ref().map(Vec::len);
                assert_eq!(sizes, format.plane_bytes(n, k, layout), "{} {n} x {k}", format.name);
                let back = Packed::from_arranged(format, (n, k), planes, layout);
                assert_eq!(back.as_ref(), Some(&packed), "{} {n} x {k}", format.name);
            }
            let mut cut = packed.arranged(format, TILES);
            cut[0].pop();
            assert_eq!(Packed::from_arranged(format, (n, k), cut, TILES), None);
            n_tiled += usize::from(format.is_tiled());
        }
    }
    assert!(n_tiled > 30, "{n_tiled}");
}

#[test]
fn no_two_places_are_one() {
    for format in FORMATS.iter().copied().filter(|format| format.is_tiled()) {
        let (n, k) = (35, 3 * format.group_size().max(96));
        let tiles = format.tiles(n, k).unwrap();
        let row_bytes = k * usize::from(format.bits) / 8;
        let codes: BTreeSet<usize> = (0..n)
            .flat_map(|row| (0..row_bytes).map(move |byte| tiles.code_at(row, byte)))
            .collect();
        assert_eq!(codes.len(), n * row_bytes, "{}", format.name);
        assert!(codes.last().is_some_and(|&last| last < tiles.code_bytes()));
        let group = format.group_size();
        let scales: BTreeSet<usize> = (0..n)
            .flat_map(|row| {
                (0..format.n_groups(k)).map(move |g| tiles.scale_at(row, g * group, group))
            })
            .collect();
        assert_eq!(scales.len(), n * format.n_groups(k), "{}", format.name);
        assert!(scales.last().is_none_or(|&last| last < tiles.n_groups()));
    }
}

/// By hand: row 25 is row 9 of the second tile; element 168 is element 40 of the second chunk, the
/// first of the chunk's word 5, which lane 1 has as its word 1.
#[test]
fn an_element_is_where_the_layout_says() {
    let (n, k) = (32, 384);
    let tiles = INT4_G128.tiles(n, k).unwrap();
    assert_eq!((tiles.n_tiles, tiles.n_chunks, tiles.chunk), (2, 3, 128));
    let chunk = 3 + 1;
    assert_eq!(tiles.code_at(25, 168 / 2), (chunk * TILE_ROWS + 9) * 64 + 16 + 4);
    // Groups are chunks; a row and the one 8 further are side by side.
    assert_eq!(tiles.scale_at(25, 168, 128), (chunk * 8 + 1) * 2 + 1);

    // Two groups of 32 in a chunk of 64; element 100 is element 36 of the second: byte 36, word 9,
    // which lane 1 has as its word 2.
    let tiles = Q8_0.tiles(n, k).unwrap();
    assert_eq!((tiles.n_chunks, tiles.block_groups), (6, 2));
    let chunk = 6 + 1;
    assert_eq!(tiles.code_at(25, 100), (chunk * TILE_ROWS + 9) * 64 + 16 + 8);
    assert_eq!(tiles.scale_at(25, 100, 32), ((chunk * 8 + 1) * 2 + 1) * 2 + 1);
}
