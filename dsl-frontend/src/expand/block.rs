//! One block's items: the user's function, its weights, and the block that is loaded once.

use crate::ast::{self, Function};
use crate::compile::CompiledBlock;
use crate::errors::Reported;
use crate::signature::{Host, Param, Signature};
use fuseline_core::ir::Role;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

/// One block, with its arguments sorted by who brings them.
pub(super) struct BlockView<'a> {
    function: &'a Function,
    signature: &'a Signature,
    block: Option<&'a CompiledBlock>,
    results: Vec<TokenStream>,
}

impl<'a> BlockView<'a> {
    pub(super) fn new(
        function: &'a Function,
        signature: &'a Signature,
        block: Option<&'a CompiledBlock>,
    ) -> BlockView<'a> {
        let results = match (&signature.results, &function.result) {
            (Ok(_), Some(syn::Type::Tuple(tuple))) => {
                tuple.elems.iter().map(|ty| quote!(#ty)).collect()
            }
            (Ok(_), Some(ty)) => vec![quote!(#ty)],
            (Ok(_) | Err(Reported), _) => Vec::new(),
        };
        BlockView { function, signature, block, results }
    }

    fn params(&self, role: Role) -> impl Iterator<Item = &'a Param> {
        // What could not be read is brought by each call.
        self.signature.params.iter().filter(move |param| match &param.declared {
            Ok(declared) => declared.role == role,
            Err(Reported) => role == Role::Input,
        })
    }

    fn has_weights(&self) -> bool {
        self.params(Role::Weight).next().is_some()
    }

    /// The user's function: loads the block for the device of its arguments, and calls it.
    pub(super) fn eager_function(
        &self,
        qualified: &dyn Fn(TokenStream) -> TokenStream,
    ) -> TokenStream {
        let ast::Function { attrs, vis, name, .. } = self.function;
        let [device, block, arena, weights] =
            ["device", "block", "arena", "weights"].map(|n| Ident::new(n, Span::mixed_site()));
        let params = self.signature.params.iter().map(|param| {
            let (name, ty) = (&param.name, &param.syntax);
            let ty = match &param.declared {
                Ok(_) => qualified(quote!(#ty)),
                Err(Reported) => quote!(impl ::core::marker::Sized),
            };
            quote!(#name: #ty)
        });
        let results: Vec<TokenStream> = self.results.iter().cloned().map(qualified).collect();
        let result = tuple(&results, self.results.len() == 1);
        let doc = format!(
            "\nMakes memory for its results and in-between values on every call; \
             [`{name}::Block`] keeps it."
        );
        let on_device = self.signature.params.iter().find(|param| {
            param.declared.as_ref().is_ok_and(|declared| declared.host != Host::Scalar)
        });
        let body = match (on_device, self.is_readable()) {
            (Some(first), true) => {
                let first = &first.name;
                let fields = self.params(Role::Weight).map(|param| &param.name);
                let (make_weights, weights_arg) = match self.has_weights() {
                    true => (
                        quote!(let #weights = #name::Weights { #(#fields),* };),
                        quote!(&#weights,),
                    ),
                    false => Default::default(),
                };
                let args = self.call_params().map(|param| {
                    let name = &param.name;
                    match host(param) {
                        Some(Host::Cache | Host::Scalar) | None => quote!(#name),
                        Some(Host::Tensor | Host::Weight | Host::Index | Host::Tokens) => {
                            quote!(&#name)
                        }
                    }
                });
                quote! {
                    let #device = ::core::clone::Clone::clone(#first.device());
                    let #block = #name::load(&#device)?;
                    let mut #arena = #block.arena()?;
                    #make_weights
                    #block.call(&mut #arena, #weights_arg #(#args),*)
                }
            }
            _ => unreadable(),
        };
        quote! {
            #(#attrs)*
            #[doc = #doc]
            #[allow(clippy::too_many_arguments, unused_variables)]
            #vis fn #name(#(#params),*) -> ::fuseline::Result<#result> {
                #body
            }
        }
    }

    /// Inputs and caches, in the order of the signature.
    fn call_params(&self) -> impl Iterator<Item = &'a Param> {
        self.signature.params.iter().filter(|param| match &param.declared {
            Ok(declared) => declared.role != Role::Weight,
            Err(Reported) => true,
        })
    }

    /// Whether every type could be read, so that calls can be written.
    fn is_readable(&self) -> bool {
        self.signature.results.is_ok()
            && self.signature.params.iter().all(|param| param.declared.is_ok())
    }

    /// What the module of the block's name holds.
    pub(super) fn module_items(&self) -> TokenStream {
        let name = self.function.name.unraw().to_string();
        let text = |text: fn(&CompiledBlock) -> &str| self.block.map_or("", text);
        let (ir, cuda) = (text(|b| &b.ir), text(|b| &b.cuda));
        let (explain, json) = (text(|b| &b.explain), text(|b| &b.explain_json));
        let digest = self.block.map_or(0, |block| block.digest);
        let weights = self.weights_struct();
        let methods = self.block_methods();
        quote! {
            /// The graph.
            pub const IR: &str = #ir;
            /// The CUDA source.
            pub const CUDA: &str = #cuda;
            /// What the planner decided, and why.
            pub const EXPLAIN: &str = #explain;
            /// The same as a JSON array, one object for each bucket of rows.
            pub const EXPLAIN_JSON: &str = #json;
            /// Names graph and plan.
            pub const DIGEST: u64 = #digest;

            #weights

            /// The block on a device.
            #[derive(Clone, Debug)]
            pub struct Block(::fuseline::__private::Block);

            /// The block on `device`, planned as [`EXPLAIN`] says.
            ///
            /// # Errors
            /// If the device cannot run it.
            pub fn load(device: &::fuseline::Device) -> ::fuseline::Result<Block> {
                load_with(device, ::core::default::Default::default())
            }

            /// The block on `device`, with choices about its plan.
            ///
            /// # Errors
            /// If the device cannot run it.
            pub fn load_with(
                device: &::fuseline::Device,
                options: ::fuseline::LoadOptions,
            ) -> ::fuseline::Result<Block> {
                let spec = ::fuseline::__private::BlockSpec {
                    name: #name,
                    ir: IR,
                    cuda: CUDA,
                    digest: DIGEST,
                };
                ::fuseline::__private::Block::load(device, spec, options).map(Block)
            }

            #methods
        }
    }

    fn weights_struct(&self) -> TokenStream {
        if !self.has_weights() {
            return TokenStream::new();
        }
        let names: Vec<&Ident> = self.params(Role::Weight).map(|param| &param.name).collect();
        let types: Vec<&syn::Type> = self.params(Role::Weight).map(|param| &param.syntax).collect();
        let labels: Vec<String> = names.iter().map(|name| name.unraw().to_string()).collect();
        let docs = labels.iter().map(|label| format!("The argument `{label}`."));
        quote! {
            /// The block's weights.
            #[derive(Clone, Debug)]
            pub struct Weights {
                #(#[doc = #docs] pub #names: #types,)*
            }

            impl Weights {
                /// Reads every weight from `source`; `name` gives the tensor's name for each
                /// argument's.
                ///
                /// # Errors
                /// If a tensor is missing, or has another shape or type.
                pub fn fill(
                    device: &::fuseline::Device,
                    source: &dyn ::fuseline::TensorSource,
                    mut name: impl ::core::ops::FnMut(&str) -> ::std::string::String,
                ) -> ::fuseline::Result<Weights> {
                    ::core::result::Result::Ok(Weights {
                        #(#names: <#types>::fill(device, source, &name(#labels))?,)*
                    })
                }
            }
        }
    }

    fn block_methods(&self) -> TokenStream {
        let [arena, weights, given, rows] =
            ["arena", "weights", "given", "rows"].map(|name| Ident::new(name, Span::mixed_site()));
        let new_caches = self.params(Role::Cache).map(|param| {
            let name = format_ident!("new_{}", param.name);
            let doc = format!("An empty cache for the argument `{}`.", param.name);
            let ty = match &param.syntax {
                syn::Type::Reference(reference) => &reference.elem,
                other => other,
            };
            quote! {
                #[doc = #doc]
                ///
                /// # Errors
                /// If the device has no memory left.
                pub fn #name(&self) -> ::fuseline::Result<#ty> {
                    <#ty>::new(self.0.device())
                }
            }
        });
        let weights_param = match self.has_weights() {
            true => quote!(#weights: &Weights,),
            false => TokenStream::new(),
        };
        let params: Vec<TokenStream> = self.call_params().map(call_param).collect();
        let (results, n_results) = (&self.results, self.results.len());
        let result = tuple(results, n_results == 1);
        let outs: Vec<Ident> = (0..n_results)
            .map(|index| match n_results {
                1 => Ident::new("out", Span::mixed_site()),
                _ => Ident::new(&format!("out{index}"), Span::mixed_site()),
            })
            .collect();
        let all = self.signature.params.iter().map(|param| {
            let name = &param.name;
            let is_weight = param.declared.as_ref().is_ok_and(|d| d.role == Role::Weight);
            let reference = match (is_weight, host(param)) {
                (true, _) => quote!(&#weights.#name),
                (false, Some(Host::Scalar)) => quote!(&#name),
                (false, _) => quote!(&*#name),
            };
            quote!(::fuseline::__private::Argument::as_arg(#reference))
        });
        let all: Vec<TokenStream> = all.collect();
        // A result without the batch dim always has all its rows.
        let declared = self.signature.results.iter().flatten();
        let n_rows = declared.map(|declared| match declared.ty.shape().first() {
            Some(first) if !first.batch => {
                let size = Literal::usize_unsuffixed(first.size);
                quote!(#size)
            }
            Some(_) | None => quote!(#rows),
        });
        let made: Vec<TokenStream> = outs.iter().map(|out| quote!(#out)).collect();
        let made = tuple(&made, n_results == 1);
        let (call, call_into) = match self.is_readable() {
            true => (
                quote! {
                    let #given = [#(#all),*];
                    let #rows = self.0.rows(&#given)?;
                    #(let mut #outs: #results =
                        ::fuseline::__private::Output::with_rows(self.0.device(), #n_rows)?;)*
                    self.0.run(
                        #arena,
                        &#given,
                        &mut [#(::fuseline::__private::Output::as_output(&mut #outs)),*],
                    )?;
                    ::core::result::Result::Ok(#made)
                },
                quote! {
                    self.0.run(
                        #arena,
                        &[#(#all),*],
                        &mut [#(::fuseline::__private::Output::as_output(#outs)),*],
                    )
                },
            ),
            false => (unreadable(), unreadable()),
        };
        quote! {
            #[allow(clippy::too_many_arguments, unused_variables)]
            impl Block {
                /// Memory for values between kernels, for calls one after the other.
                ///
                /// # Errors
                /// If the device has no memory left.
                pub fn arena(&self) -> ::fuseline::Result<::fuseline::Arena> {
                    self.0.arena()
                }

                /// How the block is planned on this device.
                pub fn explain(&self) -> ::std::string::String {
                    self.0.explain()
                }

                #(#new_caches)*

                /// Runs the block, with its results in new memory.
                ///
                /// # Errors
                /// If an argument does not fit, or the device fails.
                pub fn call(
                    &self,
                    #arena: &mut ::fuseline::Arena,
                    #weights_param
                    #(#params),*
                ) -> ::fuseline::Result<#result> {
                    #call
                }

                /// Runs the block, with its results in memory that the caller has.
                ///
                /// # Errors
                /// If an argument does not fit, or the device fails.
                pub fn call_into(
                    &self,
                    #arena: &mut ::fuseline::Arena,
                    #weights_param
                    #(#params,)*
                    #(#outs: &mut #results),*
                ) -> ::fuseline::Result<()> {
                    #call_into
                }
            }
        }
    }
}

fn host(param: &Param) -> Option<Host> {
    param.declared.as_ref().ok().map(|declared| declared.host)
}

/// An argument as a call takes it: by reference, but for numbers.
fn call_param(param: &Param) -> TokenStream {
    let (name, ty) = (&param.name, &param.syntax);
    match host(param) {
        Some(Host::Cache | Host::Scalar) => quote!(#name: #ty),
        Some(Host::Tensor | Host::Weight | Host::Index | Host::Tokens) => quote!(#name: &#ty),
        None => quote!(#name: impl ::core::marker::Sized),
    }
}

fn tuple(types: &[TokenStream], single: bool) -> TokenStream {
    if single { quote!(#(#types)*) } else { quote!((#(#types),*)) }
}

/// The body of a function beside which there is a `compile_error!`.
pub(super) fn unreadable() -> TokenStream {
    quote!(::core::unimplemented!("the block did not compile"))
}
