//! The blocks that a path names.

use fuseline_core::ir::Graph;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A block, and what messages call it.
#[derive(Debug)]
pub struct Block {
    pub name: String,
    pub graph: Graph,
}

/// The block of an `.ir` file, or the blocks of the crate whose root is a Rust file; of these,
/// those whose path ends with `wanted`.
pub fn read(path: &Path, wanted: Option<&str>) -> Result<Vec<Block>, Box<dyn Error>> {
    let mut list = Vec::new();
    if path.extension().is_some_and(|extension| extension == "rs") {
        let found = fuseline_build::blocks(path)?;
        for warning in &found.warnings {
            eprintln!("warning: {warning}");
        }
        for block in found.blocks {
            list.push((block.path.join("::"), block.ir));
        }
    } else {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        list.push((name, text));
    }
    let names: Vec<String> = list.iter().map(|(name, _)| name.clone()).collect();
    if let Some(wanted) = wanted {
        let is_it = |name: &str| name == wanted || name.ends_with(&format!("::{wanted}"));
        list.retain(|(name, _)| is_it(name));
    }
    if list.is_empty() {
        let path = path.display();
        return Err(match (wanted, names.as_slice()) {
            (Some(wanted), names @ [_, ..]) => {
                format!("{path} has no block `{wanted}`; it has {}", names.join(", ")).into()
            }
            _ => format!("{path} has no decode block").into(),
        });
    }
    let parse = |(name, text): (String, String)| match Graph::parse(&text) {
        Ok(graph) => Ok(Block { name, graph }),
        Err(error) => Err(format!("{name}: {error}").into()),
    };
    list.into_iter().map(parse).collect()
}
