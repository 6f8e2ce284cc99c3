//! What is wrong with a user's program, as data without source spans. Whoever holds the source
//! (the macro) turns [`At`] into a span.

use std::fmt;

macro_rules! codes {
    ($($name:ident $text:literal,)*) => {
        /// The kinds of errors that a program can have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $text] $name,)*
        }

        impl Code {
            /// Every kind, so that tests can show that each has a case.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// One line about the kind.
            pub fn doc(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

codes! {
    Syntax "an expression, statement or item that blocks do not have",
    Attribute "an attribute's arguments do not parse or contradict each other",
    UnknownName "a name that nothing declares",
    UnknownMethod "a method that chains do not have",
    UnknownType "a type that signatures do not have",
    ArgCount "a method or function with too many or too few arguments",
    Literal "a literal was needed, or its value is out of range",
    Kind "a weight, cache, index or tensor where another kind was needed",
    DType "an element type that the operation does not take",
    Shape "two shapes that do not fit together",
    Rank "a tensor with too many or too few dimensions",
    Dim "arithmetic on dims that has no positive result",
    Batch "the batch dim somewhere else than first",
    Group "a row that does not divide into the weight format's groups",
    Heads "head counts that do not divide",
    Format "a weight format's declaration that cannot be packed",
    Cache "a cache appended to twice, or attended to before an append",
    Recursion "a function that calls itself",
    Return "a result of another type than the signature says",
    Pin "a pin on a value whose place nobody can choose, or two on one value",
    Budget "a plan that exceeds its budget",
}

/// The part of an operation that a diagnostic points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The operation's own name.
    Op,
    /// Its n-th operand, the receiver being operand 0.
    Operand(usize),
}

/// One error: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind.
    pub code: Code,
    /// What is wrong: lower case, no full stop, the user's own names, numbers with units.
    pub message: String,
    /// What to do, with the legal choices.
    pub help: String,
    /// Where.
    pub at: At,
}

impl Diagnostic {
    /// An error at an operation's name.
    pub fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        Diagnostic { code, message: message.into(), help: help.into(), at: At::Op }
    }

    /// The same error at operand `index`.
    pub fn at_operand(mut self, index: usize) -> Diagnostic {
        self.at = At::Operand(index);
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if !self.help.is_empty() {
            write!(f, "\nhelp: {}", self.help)?;
        }
        Ok(())
    }
}

/// The known name nearest to `name`, if one is near enough to be a slip of the keyboard.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(3))
        .min()
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
