//! Programs as text: takes the annotated item apart, as the compiler does for a macro.
#![allow(dead_code)] // each test file uses a part

use fuseline_frontend::errors::{Error, Errors};
use proc_macro2::TokenStream;
use quote::ToTokens;

/// The attribute's arguments and the item of `#[decode(…)] item`.
pub fn split(program: &str) -> (TokenStream, TokenStream) {
    let mut file: syn::File = syn::parse_str(program).expect("a test program is Rust");
    assert_eq!(file.items.len(), 1, "a test program is one item");
    let mut item = file.items.remove(0);
    let attrs = match &mut item {
        syn::Item::Mod(item) => &mut item.attrs,
        syn::Item::Fn(item) => &mut item.attrs,
        syn::Item::Struct(item) => &mut item.attrs,
        _ => panic!("a test program is a module, a function or a struct"),
    };
    let index = attrs.iter().position(|attr| attr.path().is_ident("decode"));
    let attr = attrs.remove(index.expect("a test program is annotated"));
    let tokens = match attr.meta {
        syn::Meta::List(list) => list.tokens,
        _ => TokenStream::new(),
    };
    (tokens, item.to_token_stream())
}

/// The text of every function's graph, configuration after configuration.
pub fn graphs(program: &str) -> Vec<String> {
    let (attr, item) = split(program);
    let (program, errors) = fuseline_frontend::program(attr, item);
    assert!(errors.is_empty(), "{}", show(&errors));
    let (_, units) = program.expect("a program without errors");
    let graphs = units.into_iter().flat_map(|unit| unit.graphs);
    graphs.map(|graph| graph.expect("a graph").to_text()).collect()
}

/// What is wrong with a program.
pub fn errors(program: &str) -> Errors {
    let (attr, item) = split(program);
    fuseline_frontend::program(attr, item).1
}

/// The text that an error points at.
pub fn pointed_at(program: &str, error: &Error) -> String {
    let (start, end) = (error.extent.start.start(), error.extent.end.end());
    let lines: Vec<&str> = program.lines().collect();
    if start.line == 0 {
        return "(call site)".to_string();
    }
    if start.line != end.line {
        let line: String = lines[start.line - 1].chars().skip(start.column).collect();
        return format!("{} …", line.trim_end());
    }
    lines[start.line - 1].chars().skip(start.column).take(end.column - start.column).collect()
}

/// Every error, for failed assertions.
pub fn show(errors: &Errors) -> String {
    errors.list().iter().map(|error| format!("{}\n", error.diagnostic)).collect()
}
