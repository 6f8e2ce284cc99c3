//! What the project keeps to beyond what compilers check: places, sizes, names, and that every
//! rule and reason of the planner has a golden plan that shows it.

use fuseline_core::format::FORMATS;
use fuseline_core::ir::Pointwise;
use fuseline_core::plan::Reason;
use fuseline_core::plan::rules::{RULES, sibling_linear};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Every tracked file, relative to the root; in a copy without Git every file but build products.
fn files() -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let mut files: Vec<PathBuf> = match listed {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .split_terminator('\0')
            .map(PathBuf::from)
            .collect(),
        Ok(_) | Err(_) => {
            let mut files = Vec::new();
            walk(Path::new(""), &mut files);
            files
        }
    };
    // Deleted, but not yet committed.
    files.retain(|path| root().join(path).is_file());
    assert!(files.len() > 50, "{} files", files.len());
    files
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        match root().join(&path).is_dir() {
            true if path == Path::new("target") || path == Path::new(".git") => {}
            true => walk(&path, files),
            false => files.push(path),
        }
    }
}

fn rust_files() -> Vec<PathBuf> {
    files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn every_module_says_what_it_does() {
    // Programs of the compile-error tests, and of the front end's, are shown as users write them.
    let is_program = |path: &Path| {
        path.starts_with("tests/ui") || path.starts_with("dsl-frontend/tests/programs")
    };
    let silent: Vec<String> = rust_files()
        .iter()
        .filter(|path| !is_program(path) && !read(&root().join(path)).starts_with("//! "))
        .map(|path| path.display().to_string())
        .collect();
    assert_none("files that do not begin with `//! `", &silent);
}

#[test]
fn no_file_is_long() {
    const MAX_LINES: usize = 700;
    let long: Vec<String> = rust_files()
        .iter()
        .map(|path| (path, read(&root().join(path)).lines().count()))
        .filter(|(_, n_lines)| *n_lines > MAX_LINES)
        .map(|(path, n_lines)| format!("{} has {n_lines} lines", path.display()))
        .collect();
    assert_none("files of more than 700 lines", &long);
}

#[test]
fn the_core_is_pure() {
    // The same input gives the same bytes, so nothing may depend on hashes, clocks or the machine.
    let impure =
        ["HashMap", "HashSet", "std::env", "std::fs", "std::time", "std::io", "std::process"];
    let mut found = Vec::new();
    for path in rust_files().iter().filter(|path| path.starts_with("dsl-core/src")) {
        for (n, line) in read(&root().join(path)).lines().enumerate() {
            if impure.iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
            }
        }
    }
    assert_none("what the core does not use", &found);

    let manifest = read(&root().join("dsl-core/Cargo.toml"));
    let dependencies: BTreeSet<&str> = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect();
    assert_eq!(dependencies, BTreeSet::from(["half", "libm"]));
}

/// The lines that golden plans expect, without their marks.
fn golden_lines() -> Vec<String> {
    let is_plan = |path: &&PathBuf| path.starts_with("dsl-core/tests/ir/plan");
    let texts: Vec<String> =
        files().iter().filter(is_plan).map(|path| read(&root().join(path))).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.filter_map(|line| line.strip_prefix(";=").map(|line| line.trim().to_string())).collect()
}

#[test]
fn every_rule_has_a_golden_plan() {
    let lines = golden_lines();
    let mut missing = Vec::new();
    for rule in RULES {
        let fused = |line: &String| line.starts_with("fuse ") && line.ends_with(rule.name);
        if !lines.iter().any(fused) {
            missing.push(rule.name.to_string());
        }
    }
    let merge = format!("  {}: one launch", sibling_linear::NAME);
    if !lines.iter().any(|line| line.starts_with("merge ") && line.contains(&merge)) {
        missing.push(sibling_linear::NAME.to_string());
    }
    assert_none("rules that fuse nothing in any golden plan", &missing);
}

#[test]
fn every_reason_has_a_golden_plan() {
    let lines = golden_lines();
    // Needs hundreds of arguments: dsl-core/tests/parameters.rs makes them.
    const ELSEWHERE: &str = "parameters";
    // `apart %3 -> %4     second use: …`: what follows the consumer.
    let reason_of = |line: &str| {
        let (_, rest) = line.strip_prefix("apart ")?.split_once(" -> ")?;
        rest.split_once(' ').map(|(_, reason)| reason.trim_start().to_string())
    };
    let reasons: Vec<String> = lines.iter().filter_map(|line| reason_of(line)).collect();
    let missing: Vec<String> = Reason::NAMES
        .iter()
        .filter(|name| **name != ELSEWHERE)
        .filter(|name| !reasons.iter().any(|reason| reason.starts_with(**name)))
        .map(|name| (*name).to_string())
        .collect();
    assert_none("reasons that no golden plan gives", &missing);
    let unknown: Vec<String> = reasons
        .into_iter()
        .filter(|reason| !Reason::NAMES.iter().any(|name| reason.starts_with(name)))
        .collect();
    assert_none("reasons that `Reason::NAMES` lacks", &unknown);
}

#[test]
fn no_file_names_a_machine() {
    // In pieces, so that this file does not contain them.
    let folders: Vec<String> =
        ["work", "root", "home"].iter().map(|name| format!("/{name}/")).collect();
    let jobs = ["/tmp/", "bash_jobs"].concat();
    let hosts: Vec<String> =
        [["py", "pi.org"], ["index.crates", ".io"], ["static.crates", ".io"], ["python", "hosted"]]
            .iter()
            .map(|parts| parts.concat())
            .collect();
    let mut found = Vec::new();
    for path in files() {
        for (n, line) in read(&root().join(&path)).lines().enumerate() {
            // A path of its own, not the end of a longer one or of a link.
            let names_folder = folders.iter().any(|folder| {
                line.match_indices(folder.as_str()).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-$}/".contains(c))
                })
            });
            let names_host = hosts.iter().any(|host| line.contains(host.as_str()));
            if names_folder || names_host || line.contains(&jobs) {
                found.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
            }
        }
    }
    assert_none("paths and hosts of a machine", &found);
}

#[test]
fn the_readme_lists_formats_and_operations() {
    let path = root().join("README.md");
    if !path.exists() {
        return;
    }
    let text = read(&path);
    // In code, whole: `silu`, `x.silu()`, `clamp(lo, hi)`.
    let words: BTreeSet<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    let operators = [("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"), ("neg", "-x")];
    let formats = FORMATS.iter().map(|format| format.name.as_ref());
    let missing: Vec<String> = formats
        .chain(Pointwise::ALL.iter().map(|op| op.name()))
        .filter(|name| {
            let operator = operators.iter().find(|(op, _)| op == name);
            let symbol = operator.is_some_and(|(_, symbol)| text.contains(&format!("`{symbol}`")));
            !words.contains(name) && !symbol
        })
        .map(String::from)
        .collect();
    assert_none("what README.md does not mention in code", &missing);
}
