//! Blocks to Rust items: the user's signatures over the host API, and the texts of each block.
//!
//! A block that has errors gets the same items with empty texts, so that the rest of the user's
//! crate resolves; a type that could not be read becomes `impl Sized`. Names of ours that stand
//! beside the user's have `mixed_site` hygiene, so they never meet.
//!
//! What expansions name, beside the prelude:
//!
//! ```text
//! fuseline::{Device, Result, LoadOptions, TensorSource, Arena}
//! fuseline::__private::{BlockSpec { name, ir, cuda, digest }, WeightFormat, CodeMap, Group, DType}
//! fuseline::__private::Format        fn declaration() -> WeightFormat
//! fuseline::__private::Argument      fn as_arg(&self) -> ArgRef<'_>
//! fuseline::__private::Output        fn with_rows(&Device, usize) -> Result<Self>, fn as_output(&mut self) -> OutputRef<'_>
//! fuseline::__private::Block         fn load(&Device, BlockSpec, LoadOptions) -> Result<Block>,
//!     fn device(&self) -> &Device, fn arena(&self) -> Result<Arena>, fn explain(&self) -> String,
//!     fn rows(&self, &[ArgRef<'_>]) -> Result<usize>,
//!     fn run(&self, &mut Arena, &[ArgRef<'_>], &mut [OutputRef<'_>]) -> Result<()>
//! Tensor, Weight, KvCache, Index, Tokens: fn device(&self) -> &Device
//! Tensor, Weight: fn fill(&Device, &dyn TensorSource, &str) -> Result<Self>
//! KvCache: fn new(&Device) -> Result<Self>
//! ```

mod block;
mod format;

pub use format::weight_format;

use crate::Unit;
use crate::ast::{self, Function, Module};
use crate::dims::{Dims, Meaning};
use block::BlockView;
use proc_macro2::{Delimiter, Group, Ident, Literal, TokenStream, TokenTree};
use quote::quote;

/// The items of an annotated module or function.
pub fn items(module: &Module, units: &[Unit]) -> TokenStream {
    let ast::Module { attrs, vis, name, uses, formats, functions, lone } = module;
    if *lone {
        return match (units, functions.as_slice()) {
            ([unit], [function]) => lone_function(function, unit),
            _ => TokenStream::new(),
        };
    }
    let formats = formats.iter().map(weight_format);
    let bodies = units.iter().map(|unit| {
        let body = unit_items(module, unit);
        match &unit.name {
            None => body,
            Some(name) => {
                let doc = format!("Configuration `{name}`.");
                quote! {
                    #[doc = #doc]
                    pub mod #name {
                        #[allow(unused_imports)]
                        use super::*;
                        #body
                    }
                }
            }
        }
    });
    quote! {
        #(#attrs)*
        #vis mod #name {
            #[allow(unused_imports)]
            use ::fuseline::prelude::*;
            #(#[allow(unused_imports)] #uses)*
            #(#formats)*
            #(#bodies)*
        }
    }
}

fn unit_items(module: &Module, unit: &Unit) -> TokenStream {
    let dims = dim_items(&unit.dims);
    let functions = module.functions.iter().enumerate().map(|(index, function)| {
        if matches!(function.vis, syn::Visibility::Inherited) {
            return TokenStream::new();
        }
        let view = BlockView::new(function, &unit.signatures[index], unit.blocks[index].as_ref());
        let (eager, items) = (view.eager_function(&|ty| ty), view.module_items());
        let ast::Function { vis, name, .. } = function;
        let doc = format!("The block [`{name}()`], loaded once and called often.");
        quote! {
            #eager
            #[doc = #doc]
            #vis mod #name {
                #[allow(unused_imports)]
                use super::*;
                #items
            }
        }
    });
    quote!(#dims #(#functions)*)
}

/// A function on its own: its dims lie in the module of its name, so its types name them there.
fn lone_function(function: &Function, unit: &Unit) -> TokenStream {
    let view = BlockView::new(function, &unit.signatures[0], unit.blocks[0].as_ref());
    let ast::Function { vis, name, .. } = function;
    let eager = view.eager_function(&|ty| qualify(ty, &unit.dims, name, true));
    let (dims, items) = (dim_items(&unit.dims), view.module_items());
    let doc = format!("The block [`{name}()`], loaded once and called often.");
    quote! {
        #eager
        #[doc = #doc]
        #vis mod #name {
            #[allow(unused_imports)]
            use ::fuseline::prelude::*;
            #dims
            #items
        }
    }
}

fn dim_items(dims: &Dims) -> TokenStream {
    let items = dims.names.iter().map(|(name, meaning)| match meaning {
        Meaning::Size(dim) => {
            let size = Literal::usize_unsuffixed(dim.size);
            let doc = match dim.batch {
                true => format!("The most rows of a call: up to {size}."),
                false => format!("The dim `{name}`: {size}."),
            };
            quote! {
                #[doc = #doc]
                #[allow(dead_code)]
                pub const #name: usize = #size;
            }
        }
        Meaning::Type(target) => {
            let doc = format!("`{target}` in this configuration.");
            quote! {
                #[doc = #doc]
                #[allow(dead_code)]
                pub type #name = #target;
            }
        }
    });
    quote!(#(#items)*)
}

/// Puts the path of its module before every dim in a type: `Tensor<f32, { name::B }>`.
fn qualify(tokens: TokenStream, dims: &Dims, module: &Ident, is_type: bool) -> TokenStream {
    let replace = |token: TokenTree| match token {
        TokenTree::Ident(ident) => match dims.get(&ident.to_string()) {
            Some(Meaning::Size(_)) if is_type => quote!({ #module::#ident }),
            Some(_) => quote!(#module::#ident),
            None => TokenTree::from(ident).into(),
        },
        TokenTree::Group(group) => {
            // Inside braces is an expression, where a further brace would begin a statement.
            let is_type = is_type && group.delimiter() != Delimiter::Brace;
            let inner = qualify(group.stream(), dims, module, is_type);
            let mut new = Group::new(group.delimiter(), inner);
            new.set_span(group.span());
            TokenTree::from(new).into()
        }
        TokenTree::Punct(_) | TokenTree::Literal(_) => token.into(),
    };
    tokens.into_iter().map(replace).collect()
}
