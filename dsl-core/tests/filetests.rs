//! Runs every `.ir` file under `tests/ir`. The first line says what is tested:
//!
//! - `; test roundtrip`: the text comes back as it is.
//! - `; test verify`: the graph breaks the rules that follow, or none.
//! - `; test plan`: the graph has the plan that follows. `; rows N` sets the batch, `; fusion off`
//!   plans one kernel an operation.
//!
//! What is expected follows the graph in lines that begin with `;=`. `BLESS=1` writes what was
//! found in its place: read the difference before you commit it.

use fuseline_core::ir::Graph;
use fuseline_core::plan::{Options, compile};
use std::path::{Path, PathBuf};
use std::{env, fs};

#[test]
fn every_ir_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ir");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 15, "{} files under {}", files.len(), root.display());
    let bless = env::var_os("BLESS").is_some_and(|v| v == "1");
    let mut failures = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let (source, expected) = split(&text);
        let found = run(source).unwrap_or_else(|e| format!("error: {e}\n"));
        if found == expected {
            continue;
        }
        if bless {
            let lines: Vec<String> =
                found.lines().map(|l| format!(";= {l}").trim_end().to_string()).collect();
            fs::write(&path, format!("{source}{}\n", lines.join("\n"))).unwrap();
        } else {
            failures.push(format!("{}\n{}", path.display(), difference(&expected, &found)));
        }
    }
    assert!(failures.is_empty(), "{}\n(BLESS=1 rewrites them)", failures.join("\n"));
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "ir") {
            files.push(path);
        }
    }
}

/// The graph with its header, and the expected lines without their marks.
fn split(text: &str) -> (&str, String) {
    let at = text.find("\n;=").map_or(text.len(), |at| at + 1);
    let expected = text[at..].lines().map(|line| line[2..].strip_prefix(' ').unwrap_or(&line[2..]));
    (&text[..at], expected.map(|line| format!("{line}\n")).collect())
}

fn run(source: &str) -> Result<String, String> {
    let header = |key: &str| {
        source.lines().find_map(|l| l.strip_prefix("; ")?.strip_prefix(key).map(str::trim))
    };
    let graph = Graph::parse(source).map_err(|e| e.to_string())?;
    match header("test") {
        Some("roundtrip") => Ok(graph.to_text()),
        Some("verify") => Ok(match graph.verify() {
            Ok(()) => "ok\n".to_string(),
            Err(errors) => errors.iter().map(|e| format!("{e}\n")).collect(),
        }),
        Some("plan") => {
            let rows = header("rows").map(|n| n.parse().unwrap());
            let graph = rows.map_or(graph.clone(), |n| graph.with_rows(n));
            let options = Options { fusion: header("fusion") != Some("off") };
            let plan = compile(&graph, &options).map_err(|e| e.to_string())?;
            assert!(plan.product_buffers().is_empty(), "a product is stored");
            Ok(plan.explain())
        }
        other => panic!("unknown test {other:?}"),
    }
}

fn difference(expected: &str, found: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    format!("line {}:\n  expected {:?}\n  found    {:?}", same + 1, a.get(same), b.get(same))
}
