//! Collects what is wrong, with where, and turns it into `compile_error!` items.

use fuseline_core::diag::{Code, Diagnostic};
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// From one token to another: on stable Rust two spans cannot be joined into one.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The first token.
    pub start: Span,
    /// The last token.
    pub end: Span,
}

impl Extent {
    /// The extent of a piece of syntax; of the macro call if it has no tokens.
    pub fn of(syntax: &impl ToTokens) -> Extent {
        let mut tokens = syntax.to_token_stream().into_iter();
        let Some(first) = tokens.next() else { return Extent::from(Span::call_site()) };
        let last = tokens.last().unwrap_or_else(|| first.clone());
        // `span_close` is one character wide, so that a call ends at its closing bracket.
        let end = match &last {
            TokenTree::Group(group) => group.span_close(),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => last.span(),
        };
        let start = match &first {
            TokenTree::Group(group) => group.span_open(),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => first.span(),
        };
        Extent { start, end }
    }

    /// From the first token of `self` to the last of `other`.
    pub fn to(self, other: Extent) -> Extent {
        Extent { start: self.start, end: other.end }
    }
}

impl From<Span> for Extent {
    fn from(span: Span) -> Extent {
        Extent { start: span, end: span }
    }
}

/// One error and where it is.
#[derive(Clone, Debug)]
pub struct Error {
    /// What is wrong, and what to do.
    pub diagnostic: Diagnostic,
    /// The tokens that it points at.
    pub extent: Extent,
}

impl Error {
    /// An error at `place`.
    pub fn new(
        place: impl Into<Extent>,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Error {
        Error { diagnostic: Diagnostic::new(code, message, help), extent: place.into() }
    }

    /// The error as an item that fails to compile with its text.
    fn to_item(&self) -> TokenStream {
        let Extent { start, end } = self.extent;
        let punct = |c, spacing| {
            let mut punct = Punct::new(c, spacing);
            punct.set_span(start);
            TokenTree::from(punct)
        };
        let path = |name: &str| TokenTree::from(Ident::new(name, start));
        let mut text = Literal::string(&self.diagnostic.to_string());
        text.set_span(start);
        let mut body = Group::new(Delimiter::Brace, TokenTree::from(text).into());
        body.set_span(end);
        [
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            path("core"),
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            path("compile_error"),
            punct('!', Spacing::Alone),
            TokenTree::from(body),
        ]
        .into_iter()
        .collect()
    }
}

/// Says that something is wrong that was reported already, so what depends on it keeps silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported;

/// The errors found so far.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    list: Vec<Error>,
}

impl Errors {
    /// None yet.
    pub fn new() -> Errors {
        Errors::default()
    }

    /// Adds an error.
    pub fn push(&mut self, error: Error) -> Reported {
        self.list.push(error);
        Reported
    }

    /// Adds every error of `other`.
    pub fn extend(&mut self, other: Errors) {
        self.list.extend(other.list);
    }

    /// The result, or that its error is reported now.
    pub fn keep<T>(&mut self, result: Result<T, Error>) -> Result<T, Reported> {
        result.map_err(|error| self.push(error))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The errors, in the order of their discovery.
    pub fn list(&self) -> &[Error] {
        &self.list
    }

    /// The errors of several named configurations of one program: one that all of them have once,
    /// any other with the name of its configuration.
    pub fn merge(configurations: Vec<(String, Errors)>) -> Errors {
        let same = |a: &Error, b: &Error| {
            a.diagnostic == b.diagnostic
                && format!("{:?}", a.extent.start) == format!("{:?}", b.extent.start)
        };
        let n_configurations = configurations.len();
        let mut merged: Vec<(Error, Vec<String>)> = Vec::new();
        for (name, errors) in configurations {
            for error in errors.list {
                match merged.iter_mut().find(|(known, _)| same(known, &error)) {
                    Some((_, names)) if names.contains(&name) => {}
                    Some((_, names)) => names.push(name.clone()),
                    None => merged.push((error, vec![name.clone()])),
                }
            }
        }
        let list = merged.into_iter().map(|(mut error, names)| {
            if names.len() < n_configurations {
                error.diagnostic.message += &format!(" (in `{}`)", names.join("`, `"));
            }
            error
        });
        Errors { list: list.collect() }
    }

    /// One `compile_error!` item an error.
    pub fn to_items(&self) -> TokenStream {
        self.list.iter().map(Error::to_item).collect()
    }
}

impl From<syn::Error> for Errors {
    fn from(error: syn::Error) -> Errors {
        let list = error
            .into_iter()
            .map(|part| Error::new(part.span(), Code::Syntax, part.to_string(), ""));
        Errors { list: list.collect() }
    }
}
