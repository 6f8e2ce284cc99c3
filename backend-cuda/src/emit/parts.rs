//! A source taken apart: kernels are compiled each for itself, on several threads, and only those
//! that are used.

/// A source's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Helpers, formats and tables: what stands before the first kernel.
    pub prelude: &'a str,
    /// Name and text of each kernel, in order.
    pub kernels: Vec<(&'a str, &'a str)>,
}

impl Parts<'_> {
    /// A source of one kernel alone.
    pub fn source_of(&self, name: &str) -> Option<String> {
        let (_, text) = self.kernels.iter().find(|(own, _)| *own == name)?;
        Some(format!("{}{text}", self.prelude))
    }
}

/// Takes a source apart that [`source`](super::source) made: a kernel begins with a line
/// `FL_KERNEL(` and ends with a line `}`.
pub fn parts(source: &str) -> Parts<'_> {
    let mut kernels = Vec::new();
    let mut prelude_end = None;
    let mut open: Option<usize> = None;
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let end = at + line.len();
        match open {
            None if line.starts_with("FL_KERNEL(") => {
                prelude_end.get_or_insert(at);
                open = Some(at);
            }
            Some(begin) if line.trim_end() == "}" => {
                let text = &source[begin..end];
                let name = text.split_once(") ").and_then(|(_, rest)| rest.split_once('('));
                kernels.push((name.map_or("", |(name, _)| name), text));
                open = None;
            }
            _ => {}
        }
        at = end;
    }
    Parts { prelude: &source[..prelude_end.unwrap_or(source.len())], kernels }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::source;
    use fuseline_core::ir::Graph;
    use fuseline_core::plan::{Options, compile};

    #[test]
    fn parts_are_all_of_the_source_but_its_reports() {
        let graph = "block two
batch B 1..=2
arg %0 x input f32[B<=2, D:8]
%1 = row_sum %0 : f32[B<=2, 1]
%2 = exp %0 : f32[B<=2, D:8]
%3 = row_max %2 : f32[B<=2, 1]
return %1 %3
";
        let graph = Graph::parse(graph).unwrap();
        let plan = |rows| compile(&graph.with_rows(rows), &Options { fusion: false }).unwrap();
        let plans = [plan(1), plan(2)];
        let text = source(&plans);
        let parts = parts(&text);
        let names: Vec<&str> = plans.iter().flat_map(|p| p.kernels()).map(|k| &*k.name).collect();
        let found: Vec<&str> = parts.kernels.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, names);
        let code = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with("//") && !line.is_empty());
            lines.map(String::from).collect()
        };
        let mut joined = code(parts.prelude);
        parts.kernels.iter().for_each(|(_, text)| joined.extend(code(text)));
        assert_eq!(joined, code(&text));
        assert!(parts.source_of("nothing").is_none());
    }
}
