//! Indented lines.

/// The text of a function's body.
#[derive(Debug)]
pub(crate) struct Body {
    text: String,
    depth: usize,
}

impl Body {
    pub fn new() -> Body {
        Body { text: String::new(), depth: 1 }
    }

    pub fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        self.text.push_str(&"    ".repeat(self.depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub fn lines(&mut self, lines: Vec<String>) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// A line that opens a block.
    pub fn open(&mut self, line: impl AsRef<str>) {
        self.line(line);
        self.depth += 1;
    }

    pub fn close(&mut self) {
        self.dedent();
        self.line("}");
    }

    /// Ends a block whose closing brace the next line holds.
    pub fn dedent(&mut self) {
        self.depth -= 1;
    }

    pub fn into_text(self) -> String {
        self.text
    }
}
