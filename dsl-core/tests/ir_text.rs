//! The text form: random graphs survive it, and text that is damaged is refused, not a crash.

use fuseline_core::cases::cases;
use fuseline_core::ir::Graph;
use fuseline_core::oracle::run;
use fuseline_core::random::{GraphOptions, Rng, random_args, random_graph};

#[test]
fn random_graphs_round_trip() {
    for seed in 0..500 {
        let options = GraphOptions { steps: 1 + seed as usize % 12, ..GraphOptions::default() };
        let graph = random_graph(seed, options);
        let text = graph.to_text();
        graph.verify().unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{text}"));
        let parsed = Graph::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(parsed, graph, "seed {seed}\n{text}");
        assert_eq!(parsed.to_text(), text, "seed {seed}");
        parsed.verify().unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}\n{text}"));
    }
}

#[test]
fn parsed_graphs_compute_the_same() {
    for seed in 0..40 {
        let graph = random_graph(seed, GraphOptions::default());
        let parsed = Graph::parse(&graph.to_text()).unwrap();
        let rows = graph.batch.as_ref().map_or(1, |batch| batch.max);
        let args = random_args(&graph, rows, seed);
        let expected = run(&graph, rows, &mut args.clone()).unwrap();
        assert_eq!(run(&parsed, rows, &mut args.clone()).unwrap(), expected, "seed {seed}");
    }
}

#[test]
fn cases_round_trip() {
    for case in cases() {
        let parsed = Graph::parse(&case.graph.to_text()).unwrap();
        assert_eq!(parsed, case.graph, "{}", case.name);
    }
}

/// Reads damaged text and checks what comes of it. Neither may panic.
fn read(text: &str) {
    if let Ok(graph) = Graph::parse(text) {
        let _ = graph.verify();
        let _ = graph.to_text();
    }
}

#[test]
fn truncated_text_does_not_panic() {
    for seed in 0..8 {
        let text = random_graph(seed, GraphOptions::default()).to_text();
        for (end, _) in text.char_indices() {
            read(&text[..end]);
        }
    }
}

#[test]
fn mutated_text_does_not_panic() {
    const WORDS: [&str; 26] = [
        "",
        " ",
        "%",
        "%0",
        "%99999999999",
        ":",
        "=",
        "<=",
        "[",
        "]",
        "{",
        "}",
        ",",
        "(",
        ")",
        "0",
        "-1",
        "18446744073709551615",
        "nan",
        "é",
        "index[",
        "cache ",
        "!inline",
        " !materialize",
        "B<=0",
        "..=",
    ];
    for seed in 0..60 {
        let text = random_graph(seed, GraphOptions::default()).to_text();
        let mut rng = Rng::new(seed);
        let lines: Vec<&str> = text.lines().collect();
        for _ in 0..60 {
            // A line is damaged in one place, dropped, or repeated elsewhere.
            let at = rng.below(lines.len());
            let mut damaged: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
            match rng.below(6) {
                0 => {
                    damaged.remove(at);
                }
                1 => damaged.insert(rng.below(lines.len()), lines[at].to_string()),
                _ => {
                    let mut words: Vec<&str> = lines[at].split_inclusive(' ').collect();
                    let word = rng.below(words.len());
                    words[word] = rng.pick(&WORDS);
                    damaged[at] = words.concat();
                }
            }
            read(&damaged.join("\n"));
            // One character is replaced by a word.
            let mut chars: Vec<String> = text.chars().map(|c| c.to_string()).collect();
            let at = rng.below(chars.len());
            chars[at] = rng.pick(&WORDS).to_string();
            read(&chars.concat());
        }
    }
}

/// Sizes whose product has no room in a machine word.
#[test]
fn huge_dims_do_not_panic() {
    let huge = usize::MAX;
    for text in [
        format!("%1 = reshape %0 shape=[{huge}, {huge}] : f32[{huge}, {huge}]"),
        format!("%1 = slice %0 start={huge} len={huge} : f32[{huge}]"),
        format!("%1 = linear %0 %0 : f32[{huge}, {huge}]"),
    ] {
        read(&format!("block b\narg %0 x input f32[{huge}, 3]\n{text}\nreturn %1"));
        read(&format!("block b\narg %0 x input f32[B<={huge}, {huge}, 2]\n{text}\nreturn %1"));
    }
}

#[test]
fn errors_have_lines() {
    for (text, line, part) in [
        ("block b\nnonsense", 2, "unknown line"),
        ("block b\n\narg %1 x input f32[1]", 3, "expected %0"),
        ("block b\narg %0 x input f33[1]", 2, "unknown element type"),
        ("block b\narg %0 x input f32[1]\n%1 = grow %0 : f32[1]", 3, "unknown operation"),
        ("block b\narg %0 x input f32[1]\n%1 = neg %7 : f32[1]", 3, "not defined yet"),
        ("block b\narg %0 w weight Q9{1, 32}", 2, "unknown format"),
        ("block b\nformat F bits=4 code=codebook(1.0,2.0)", 2, "2 entries"),
        ("block b\nreturn %3", 2, "not defined yet"),
    ] {
        let error = Graph::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
}
