//! What is written for the user's crate: which items, also where there are errors.

mod source;

use proc_macro2::TokenStream;
use quote::ToTokens;

fn items(tokens: TokenStream) -> Vec<syn::Item> {
    syn::parse2::<syn::File>(tokens).expect("an expansion is a list of items").items
}

/// The names of functions, modules, structs, constants and types, modules with what they hold.
fn outline(items: &[syn::Item]) -> Vec<String> {
    let mut names = Vec::new();
    for item in items {
        match item {
            syn::Item::Fn(item) => names.push(format!("fn {}", item.sig.ident)),
            syn::Item::Const(item) => names.push(format!("const {}", item.ident)),
            syn::Item::Type(item) => names.push(format!("type {}", item.ident)),
            syn::Item::Struct(item) => names.push(format!("struct {}", item.ident)),
            syn::Item::Macro(_) => names.push("error".to_string()),
            syn::Item::Mod(item) => {
                let inner = item.content.as_ref().map_or(Vec::new(), |(_, items)| outline(items));
                names.extend(inner.iter().map(|name| format!("{} / {name}", item.ident)));
            }
            syn::Item::Impl(item) => {
                for inner in &item.items {
                    if let syn::ImplItem::Fn(method) = inner {
                        let of = item.self_ty.to_token_stream();
                        names.push(format!("{of}::{}", method.sig.ident));
                    }
                }
            }
            _ => {}
        }
    }
    names
}

fn outline_of(program: &str) -> Vec<String> {
    let (attr, item) = source::split(program);
    outline(&items(fuseline_frontend::decode(attr, item)))
}

#[test]
fn a_module_holds_dims_functions_and_their_modules() {
    let found = outline_of(
        "#[decode(B in 1..=2, D = 4, C = f16)] mod m {
            #[weight_format(bits = 8, signed, group = 8, scale = f32)] pub struct Mine;
            pub fn f(x: Tensor<C, B, D>, w: Weight<f32, D, D>, kv: &mut KvCache<f32, B, 1, D, 8>, pos: Index<B>)
                -> Tensor<f32, B, D> { g(x).linear(w) }
            fn g(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { -x }
         }",
    );
    let expected = [
        "m / struct Mine",
        "m / Mine::declaration",
        "m / const B",
        "m / const D",
        "m / type C",
        "m / fn f",
        "m / f / const IR",
        "m / f / const CUDA",
        "m / f / const EXPLAIN",
        "m / f / const EXPLAIN_JSON",
        "m / f / const DIGEST",
        "m / f / struct Weights",
        "m / f / Weights::fill",
        "m / f / struct Block",
        "m / f / fn load",
        "m / f / fn load_with",
        "m / f / Block::arena",
        "m / f / Block::explain",
        "m / f / Block::new_kv",
        "m / f / Block::call",
        "m / f / Block::call_into",
    ];
    assert_eq!(found, expected);
}

#[test]
fn errors_leave_the_same_items() {
    let program = |body: &str| {
        format!(
            "#[decode(B = 1, D = 4)] mod m {{ pub fn f(x: Tensor<f32, B, D>, w: Weight<f32, D, D>) -> Tensor<f32, B, D> {{ {body} }} }}"
        )
    };
    let (right, wrong) =
        (outline_of(&program("x.linear(w)")), outline_of(&program("x.linaer(w) + y")));
    assert_eq!(wrong[..2], ["error", "error"]);
    assert_eq!(wrong[2..], right);
    // Types that cannot be read leave at least the names that calls need.
    let wrong =
        outline_of("#[decode(B = 1, D = E)] mod m { pub fn f(x: Tensr<f32, D>) -> Foo { x } }");
    for name in ["m / fn f", "m / f / fn load", "m / f / Block::call"] {
        assert!(wrong.iter().any(|found| found == name), "{wrong:?}");
    }
}

#[test]
fn a_lone_function_names_its_dims_by_path() {
    let (attr, item) = source::split(
        "#[decode(B = 1, D = 4, C = f16)]
         pub fn f(x: Tensor<C, B, { 2 * D }>) -> Tensor<f32, B, 8> { x.exp() }",
    );
    let items = items(fuseline_frontend::decode(attr, item));
    let Some(syn::Item::Fn(function)) = items.first() else { panic!("a function first") };
    let expected = "pub fn f(x: Tensor<f::C, { f::B }, { 2 * f::D }>) -> ::fuseline::Result<Tensor<f32, { f::B }, 8>> {}";
    let expected: syn::ItemFn = syn::parse_str(expected).expect("Rust");
    assert_eq!(function.sig, expected.sig);
}

#[test]
fn texts_are_the_plans() {
    let (attr, item) = source::split(
        "#[decode(B in 1..=3, D = 4)] mod m { pub fn f(x: Tensor<f32, B, D>) -> Tensor<f32, B, D> { x.exp() } }",
    );
    let (blocks, errors) = fuseline_frontend::blocks(attr, item);
    assert!(errors.is_empty());
    let [block] = blocks.as_slice() else { panic!("one block") };
    assert_eq!(block.path, ["m", "f"]);
    let graph = fuseline_core::ir::Graph::parse(&block.ir).expect("the graph's text");
    // Buckets of 1, 2 and 3 rows, as a program finds them at run time from the graph alone.
    let plans: Vec<_> = [1, 2, 3]
        .map(|rows| graph.with_rows(rows))
        .iter()
        .map(|graph| fuseline_core::plan::compile(graph, &Default::default()).expect("a plan"))
        .collect();
    assert_eq!(block.digest, fuseline_core::plan::digest(&block.ir, &plans));
    assert_eq!(block.explain, plans.iter().map(|p| p.explain()).collect::<Vec<_>>().join("\n"));
    assert_eq!(block.cuda, fuseline_cuda::emit::source(&plans));
}

#[test]
fn a_budget_above_decode_moves_below() {
    let budget: TokenStream = "max_launches = 1".parse().expect("tokens");
    let item: TokenStream =
        "#[decode(D = 4)] fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x }".parse().expect("tokens");
    let moved = fuseline_frontend::budget(budget.clone(), item);
    let expected: syn::ItemFn = syn::parse_quote! {
        #[decode(D = 4)] #[budget(max_launches = 1)] fn f(x: Tensor<f32, D>) -> Tensor<f32, D> { x }
    };
    assert_eq!(syn::parse2::<syn::ItemFn>(moved).expect("a function"), expected);
    let alone = fuseline_frontend::budget(budget, "fn f() {}".parse().expect("tokens"));
    assert_eq!(outline(&items(alone)), ["error", "fn f"]);
}

#[test]
fn a_format_outside_a_module_is_a_struct_and_its_declaration() {
    let expand = |attr: &str, item: &str| {
        let (attr, item) = (attr.parse().expect("tokens"), item.parse().expect("tokens"));
        outline(&items(fuseline_frontend::weight_format(attr, item)))
    };
    let attr = "bits = 4, unsigned(bias = 8), group = 32, scale = f16";
    assert_eq!(expand(attr, "pub struct Mine;"), ["struct Mine", "Mine::declaration"]);
    assert_eq!(
        expand("bits = 5, signed", "struct Mine;"),
        ["error", "struct Mine", "Mine::declaration"]
    );
    assert_eq!(expand(attr, "fn f() {}"), ["error"]);
}

#[test]
fn inner_documentation_and_raw_names_are_kept() {
    let program = "#[decode(D = 4)] pub mod r#mod {
            //! What the module is for.
            pub fn r#move(r#in: Tensor<f32, D>, r#type: Weight<f32, D, D>) -> Tensor<f32, D> {
                #![allow(unused)]
                r#in.linear(r#type)
            }
        }";
    let (attr, item) = source::split(program);
    let tokens = fuseline_frontend::decode(attr, item);
    let text = tokens.to_string();
    items(tokens);
    assert!(!text.contains("# !"), "an inner attribute before an item: {text}");
    assert!(text.contains("What the module is for."));
    let (attr, item) = source::split(program);
    let (blocks, errors) = fuseline_frontend::blocks(attr, item);
    assert_eq!(errors.len(), 0);
    assert_eq!(blocks[0].path, ["mod", "move"]);
    assert!(blocks[0].ir.starts_with("block move\n"));
    assert!(blocks[0].cuda.contains(" move_0("), "{}", blocks[0].cuda);
}
