//! Refuses tokens that are nested so deeply that parsing them would overflow the stack.
//!
//! A parser recurses at brackets, at prefix operators, and once more when a long chain is
//! dropped, so what is bounded is the longest *path* to any token: the tokens since the last
//! separator, plus a fixed amount for each bracket around it, plus the path to that bracket.

use crate::errors::{Error, Extent};
use fuseline_core::diag::Code;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The longest path: about 200 chained methods, or 40 nested brackets. Within 2 MiB of stack
/// in an unoptimised build.
const MAX_PATH: usize = 640;
/// What one bracket adds to the path, by the stack that it takes relative to a token.
const BRACKET: usize = 16;
/// What an operator after another adds: it is a prefix, for which parsers recurse.
const PREFIX: usize = 8;
/// The most `<` that are open at once.
const MAX_ANGLES: usize = 16;

/// Checks every path through `tokens`.
///
/// # Errors
/// At the first token that lies too deep.
pub fn check(tokens: &TokenStream) -> Result<(), Error> {
    walk(tokens.clone(), 0)
}

fn walk(tokens: TokenStream, path: usize) -> Result<(), Error> {
    let (mut run, mut angles, mut before) = (0, 0usize, None);
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let punct = match &token {
            TokenTree::Punct(punct) => Some(punct.as_char()),
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => None,
        };
        let is_prefix = before.is_some() && matches!(punct, Some('-' | '!' | '*' | '&' | '|'));
        run += if is_prefix { PREFIX } else { 1 };
        if path + run > MAX_PATH || angles > MAX_ANGLES {
            return Err(Error::new(
                Extent::from(token.span()),
                Code::Syntax,
                "this expression is too long or nested too deeply",
                "bind a part of it to a name with `let`",
            ));
        }
        match &token {
            TokenTree::Group(group) => {
                walk(group.stream(), path + run + BRACKET)?;
                let continues = match tokens.peek() {
                    Some(TokenTree::Ident(word)) => word == "else",
                    Some(TokenTree::Punct(punct)) => punct.as_char() != '#',
                    Some(TokenTree::Group(_) | TokenTree::Literal(_)) | None => false,
                };
                if group.delimiter() == Delimiter::Brace && !continues {
                    (run, angles) = (0, 0);
                }
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' => (run, angles) = (0, 0),
                ',' => run = 0,
                '<' => angles += 1,
                '>' if before != Some('-') => angles = angles.saturating_sub(1),
                _ => {}
            },
            TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
        before = punct;
    }
    Ok(())
}
