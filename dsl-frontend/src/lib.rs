//! Fuseline's surface language: Rust items with annotations to graphs, plans and Rust items.
//!
//! An ordinary library: the macros are a thin shell around it, and build scripts and tests call
//! it directly. In the order of the work:
//!
//! - [`depth`] refuses tokens that no parser survives.
//! - [`parse`] makes the surface tree, [`ast`], and [`attr`] reads the attribute's arguments.
//! - [`dims`] says what the attribute's names mean, [`signature`] what arguments are.
//! - [`lower`] makes graphs, with one row of [`methods`] for each method; [`calls`] orders
//!   functions, and [`prune`] drops what nothing uses.
//! - [`compile`] plans them, [`expand`] writes the items.
//! - [`errors`] collects what is wrong, with where.
//!
//! Nothing here panics on any tokens; a wrong program gives items that do not compile, with all
//! errors of a stage at once, beside items that let the rest of the user's crate resolve.

pub mod ast;
pub mod attr;
pub mod calls;
pub mod compile;
pub mod depth;
pub mod dims;
pub mod errors;
pub mod expand;
pub mod lower;
pub mod methods;
pub mod parse;
pub mod prune;
pub mod signature;

use ast::Module;
use compile::CompiledBlock;
use dims::Dims;
use errors::{Error, Errors, Extent, Reported};
use fuseline_core::diag::Code;
use fuseline_core::ir::Graph;
use proc_macro2::{Ident, Span, TokenStream};
use signature::Signature;
use syn::ext::IdentExt;

/// One configuration of a program, with everything that is made of it.
#[derive(Debug)]
pub struct Unit {
    /// Its name; none for a program that has only one.
    pub name: Option<Ident>,
    /// What the attribute's names mean.
    pub dims: Dims,
    /// What each function takes and gives.
    pub signatures: Vec<Signature>,
    /// The graph of each function; none where an error was reported.
    pub graphs: Vec<Option<Graph>>,
    /// The planned block of each function that is visible outside.
    pub blocks: Vec<Option<CompiledBlock>>,
}

/// Expands `#[decode(attr)] item`.
pub fn decode(attr: TokenStream, item: TokenStream) -> TokenStream {
    let (program, errors) = program(attr, item);
    let mut items = errors.to_items();
    if let Ok((module, units)) = program {
        items.extend(expand::items(&module, &units));
    }
    items
}

/// The planned blocks of `#[decode(attr)] item`, and what is wrong with it.
pub fn blocks(attr: TokenStream, item: TokenStream) -> (Vec<CompiledBlock>, Errors) {
    let (program, errors) = program(attr, item);
    let units = program.map(|(_, units)| units).unwrap_or_default();
    (units.into_iter().flat_map(|unit| unit.blocks).flatten().collect(), errors)
}

/// Tokens to surface tree to graphs to planned blocks.
pub fn program(
    attr: TokenStream,
    item: TokenStream,
) -> (Result<(Module, Vec<Unit>), Reported>, Errors) {
    let mut errors = Errors::new();
    let deep = depth::check(&attr).and_then(|()| depth::check(&item));
    let module = errors.keep(deep).and_then(|()| parse::module(item, &mut errors));
    let Ok(module) = module else { return (Err(Reported), errors) };
    let n_errors = errors.len();
    let settings = attr::settings(attr, &mut errors);
    if let (true, Some((name, _))) = (module.lone, settings.configurations.first()) {
        errors.push(Error::new(
            name.span(),
            Code::Attribute,
            "a function on its own has one configuration",
            "put it into an inline `mod`, which gets a module for each configuration",
        ));
    }
    let readable =
        errors.len() == n_errors && module.formats.iter().all(|format| format.format.is_ok());
    let configurations: Vec<(Option<Ident>, Vec<attr::Entry>)> =
        match settings.configurations.is_empty() || module.lone {
            true => vec![(None, settings.common)],
            false => settings
                .configurations
                .into_iter()
                .map(|(name, own)| (Some(name), [settings.common.clone(), own].concat()))
                .collect(),
        };
    let mut units = Vec::new();
    let mut found = Vec::new();
    for (name, entries) in configurations {
        let mut errors = Errors::new();
        let label = name.as_ref().map(Ident::to_string).unwrap_or_default();
        units.push(unit(&module, name, &entries, readable, &mut errors));
        found.push((label, errors));
    }
    errors.extend(Errors::merge(found));
    (Ok((module, units)), errors)
}

/// One configuration. If its names have no meaning, its functions are not looked at.
fn unit(
    module: &Module,
    name: Option<Ident>,
    entries: &[attr::Entry],
    readable: bool,
    errors: &mut Errors,
) -> Unit {
    let dims = Dims::resolve(entries, &module.formats, errors);
    if !readable || !errors.is_empty() {
        let n_functions = module.functions.len();
        return Unit {
            name,
            dims,
            signatures: module.functions.iter().map(signature::unread).collect(),
            graphs: vec![None; n_functions],
            blocks: vec![None; n_functions],
        };
    }
    let signatures: Vec<Signature> = module
        .functions
        .iter()
        .map(|function| signature::signature(function, &dims, &module.formats, errors))
        .collect();
    let graphs = lower::graphs(module, &signatures, &dims, errors);
    let mut blocks = Vec::new();
    for (function, graph) in module.functions.iter().zip(&graphs) {
        let planned = module.plans(function);
        if let (false, Some(note)) = (planned, &function.budget) {
            errors.push(Error::new(
                note.extent,
                Code::Attribute,
                format!("`{}` has no plan of its own: it is only inlined", function.name),
                "put the budget on the function that calls it, or write `pub`",
            ));
        }
        let block = graph.as_ref().filter(|_| planned).map(|graph| {
            let mut path = vec![module.name.unraw().to_string()];
            path.extend(name.as_ref().map(Ident::to_string));
            if !module.lone {
                path.push(function.name.unraw().to_string());
            }
            let note = function.budget.as_ref();
            let (block, exceeded) = compile::block(graph, path, note.map(|note| &note.budget));
            for diagnostic in exceeded {
                let bounds = note.filter(|_| diagnostic.code == Code::Budget);
                let extent = bounds.map_or(Extent::from(function.name.span()), |note| note.extent);
                errors.push(Error { diagnostic, extent });
            }
            block
        });
        blocks.push(block);
    }
    Unit { name, dims, signatures, graphs, blocks }
}

/// Expands `#[weight_format(attr)] pub struct Name;` outside a decode module.
pub fn weight_format(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let deep = depth::check(&attr).and_then(|()| depth::check(&item));
    if errors.keep(deep).is_err() {
        return errors.to_items();
    }
    let declared = match syn::parse2::<syn::ItemStruct>(item) {
        Ok(item) => {
            let format = attr::weight_format(attr, &item.ident, &mut errors).map(Into::into);
            expand::weight_format(&ast::Format { item, format })
        }
        Err(error) => {
            let place = error.span();
            let help = "write `pub struct Name;` under it";
            let message = "`#[weight_format]` annotates a struct";
            errors.push(Error::new(place, Code::Attribute, message, help));
            TokenStream::new()
        }
    };
    let mut items = errors.to_items();
    items.extend(declared);
    items
}

/// Expands `#[budget(attr)]` where `#[decode]` has not taken it: above `#[decode]` it moves below,
/// and anywhere else it has nothing to bound.
pub fn budget(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    if errors.keep(depth::check(&item)).is_err() {
        return errors.to_items();
    }
    match syn::parse2::<syn::ItemFn>(item.clone()) {
        Ok(mut function) if function.attrs.iter().any(|attr| parse::is(attr, "decode")) => {
            // With a span of the user's, so that an exceeded budget is reported there.
            let place = attr.clone().into_iter().next().map(|token| token.span());
            let name = Ident::new("budget", place.unwrap_or_else(Span::call_site));
            function.attrs.push(syn::parse_quote!(#[#name(#attr)]));
            quote::quote!(#function)
        }
        _ => {
            let place = item.clone().into_iter().next().map(|token| token.span());
            errors.push(Error::new(
                place.unwrap_or_else(Span::call_site),
                Code::Attribute,
                "`#[budget]` bounds a function that `#[decode]` annotates",
                "write it on a function of a decode module, or beside `#[decode]`",
            ));
            let mut items = errors.to_items();
            items.extend(item);
            items
        }
    }
}
