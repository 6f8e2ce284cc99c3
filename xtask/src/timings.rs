//! How long the macro takes for the example model, compiled as Cargo compiles macros by default
//! in each profile: without optimization.

use crate::error::Error;
use crate::run;
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// The file whose blocks are expanded.
const PROGRAM: &str = "examples/smollm2/blocks.rs";

/// Where the figures go.
const RESULTS: &str = "benches/results/expansion_time.json";

/// Each profile as users know it, as `Cargo.toml` calls it, and the time that it may take.
const PROFILES: [(&str, &str, f64); 2] =
    [("release", "macro-release", 100.0), ("dev", "macro-dev", 500.0)];

/// Other work on a machine only makes a run longer, so a limit is exceeded if each of this many
/// runs exceeds it.
const N_TRIES: usize = 5;

/// What the timed program prints, as it is and read.
struct Figures {
    json: String,
    values: [f64; 5],
}

const FIELDS: [&str; 5] = ["blocks", "kernels", "planning_ms", "emission_ms", "total_ms"];

impl Figures {
    /// What the limits are for: planning and emission. `all` has parsing and writing items too,
    /// with tokens that are not the compiler's.
    fn limited_ms(&self) -> f64 {
        let [_, _, planning, emission, _] = self.values;
        planning + emission
    }
}

/// Times both profiles and prints a table. With `check` a figure above its limit is an error, else
/// the figures are written down.
pub fn run(check: bool) -> Result<(), Error> {
    let mut rows = Vec::new();
    for (name, profile, limit_ms) in PROFILES {
        let mut best = figures(profile)?;
        for _ in 1..N_TRIES {
            if best.limited_ms() < limit_ms {
                break;
            }
            let next = figures(profile)?;
            if next.limited_ms() < best.limited_ms() {
                best = next;
            }
        }
        rows.push((name, limit_ms, best));
    }
    println!("| profile | blocks | kernels | planning | emission | all | limit of both |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (name, limit_ms, figures) in &rows {
        let [blocks, kernels, planning, emission, total] = figures.values;
        println!(
            "| {name} | {blocks} | {kernels} | {planning:.1} ms | {emission:.1} ms | {total:.1} ms \
             | {limit_ms} ms |"
        );
    }
    if check {
        let slow: Vec<String> = rows
            .iter()
            .filter(|(_, limit_ms, figures)| figures.limited_ms() >= *limit_ms)
            .map(|(name, limit_ms, figures)| {
                format!("{name} {:.1} ms of {limit_ms} ms", figures.limited_ms())
            })
            .collect();
        return if slow.is_empty() { Ok(()) } else { Err(Error::TooSlow(slow.join(", "))) };
    }
    let rustc = run::output(Command::new("rustc").arg("--version").current_dir(run::root()))?;
    let mut text = String::from("{\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  \"program\": {},", string(PROGRAM));
    let _ = writeln!(text, "  \"rustc\": {},", string(rustc.trim()));
    let _ = write!(text, "  \"cpu\": {}", string(&cpu()));
    for (name, limit_ms, figures) in &rows {
        let figures = figures.json.trim_end_matches('}');
        let _ = write!(text, ",\n  {}: {figures}, \"limit_ms\": {limit_ms}}}", string(name));
    }
    text += "\n}\n";
    let path = run::root().join(RESULTS);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    fs::write(&path, text).map_err(Error::file(&path))
}

fn figures(profile: &str) -> Result<Figures, Error> {
    let args = ["run", "--quiet", "--package", "fuseline-frontend", "--example", "timings"];
    let mut command = run::cargo(&args);
    command.args(["--profile", profile, "--", PROGRAM]);
    let found = run::output(&mut command)?;
    let values = FIELDS.map(|name| field(&found, name));
    match values {
        [Some(a), Some(b), Some(c), Some(d), Some(e)] => {
            Ok(Figures { json: found.trim().to_string(), values: [a, b, c, d, e] })
        }
        _ => Err(Error::Output { command: run::line(&command), expected: "figures", found }),
    }
}

/// The number of that name in a flat JSON object.
fn field(json: &str, name: &str) -> Option<f64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let end = rest.find([',', '}'])?;
    rest[..end].trim().parse().ok()
}

/// A JSON string.
fn string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The processor's name, where the system tells it.
fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown", |(_, name)| name).to_string()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let json = r#"{"n_blocks": 7, "blocks": 3, "total_ms": 1.50}"#;
        assert_eq!(field(json, "blocks"), Some(3.0));
        assert_eq!(field(json, "total_ms"), Some(1.5));
        assert_eq!(field(json, "total"), None);
        assert_eq!(field("{\"blocks\": none}", "blocks"), None);
    }
}
