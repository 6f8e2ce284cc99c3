//! Rust syntax to the surface tree. What blocks do not have is reported here, where it stands.

use crate::ast::{BinaryOp, Expr, ExprKind, Format, Function, Let, Module, Param, Pattern};
use crate::attr;
use crate::errors::{Error, Errors, Extent, Reported};
use fuseline_core::diag::Code;
use proc_macro2::{Ident, TokenStream};
use std::sync::Arc;
use syn::spanned::Spanned;

/// The annotated item.
pub fn module(item: TokenStream, errors: &mut Errors) -> Result<Module, Reported> {
    let item = syn::parse2::<syn::Item>(item).map_err(|error| {
        errors.extend(error.into());
        Reported
    })?;
    match item {
        syn::Item::Mod(item) => inline_module(item, errors),
        syn::Item::Fn(item) => Ok(lone_function(item, errors)),
        other => Err(syntax(
            errors,
            first_token(&other),
            "`#[decode]` annotates a function or an inline `mod`",
            "",
        )),
    }
}

/// An expression on its own, as in attribute arguments.
pub fn expression(tokens: TokenStream, errors: &mut Errors) -> Result<Expr, Reported> {
    match syn::parse2::<syn::Expr>(tokens) {
        Ok(syntax) => match expr(&syntax, errors) {
            Expr { kind: ExprKind::Invalid, .. } => Err(Reported),
            expr => Ok(expr),
        },
        Err(error) => {
            errors.extend(error.into());
            Err(Reported)
        }
    }
}

fn syntax(errors: &mut Errors, at: impl Into<Extent>, message: &str, help: &str) -> Reported {
    errors.push(Error::new(at, Code::Syntax, message, help))
}

fn first_token(syntax: &impl quote::ToTokens) -> Extent {
    Extent::from(Extent::of(syntax).start)
}

fn inline_module(item: syn::ItemMod, errors: &mut Errors) -> Result<Module, Reported> {
    let Some((_, items)) = item.content else {
        let help = "write the block's functions between the braces of `mod name { … }`";
        return Err(syntax(errors, item.ident.span(), "the module is in another file", help));
    };
    let mut module = Module {
        attrs: item.attrs.into_iter().map(outer).collect(),
        vis: item.vis,
        name: item.ident,
        lone: false,
        uses: Vec::new(),
        formats: Vec::new(),
        functions: Vec::new(),
    };
    for item in items {
        match item {
            syn::Item::Use(item) => module.uses.push(item),
            syn::Item::Fn(item) => module.functions.push(function(item, errors)),
            syn::Item::Struct(item) => {
                if let Ok(format) = weight_format(item, errors) {
                    module.formats.push(format);
                }
            }
            other => {
                let help = "functions, `use` items and `#[weight_format(…)]` structs; \
                            dims are declared in the attribute";
                let message = "a decode module does not hold items of this kind";
                syntax(errors, first_token(&other), message, help);
            }
        }
    }
    Ok(module)
}

fn lone_function(item: syn::ItemFn, errors: &mut Errors) -> Module {
    let function = function(item, errors);
    Module {
        attrs: Vec::new(),
        vis: function.vis.clone(),
        name: function.name.clone(),
        lone: true,
        uses: Vec::new(),
        formats: Vec::new(),
        functions: vec![function],
    }
}

fn weight_format(mut item: syn::ItemStruct, errors: &mut Errors) -> Result<Format, Reported> {
    let index = item.attrs.iter().position(|attr| is(attr, "weight_format"));
    let Some(index) = index else {
        let help = "annotate it with `#[weight_format(…)]`, or declare it outside";
        let message = "a struct in a decode module declares a weight format";
        return Err(syntax(errors, item.ident.span(), message, help));
    };
    let attr = item.attrs.remove(index);
    let tokens = arguments(&attr);
    let format = attr::weight_format(tokens, &item.ident, errors).map(Arc::new);
    Ok(Format { item, format })
}

/// An attribute as it stands before an item: what was `#![…]` inside it means the same there.
fn outer(attr: syn::Attribute) -> syn::Attribute {
    syn::Attribute { style: syn::AttrStyle::Outer, ..attr }
}

/// Refuses attributes where nothing would heed them: `cfg` above all.
fn refuse_attributes(attrs: &[syn::Attribute], errors: &mut Errors) {
    for attr in attrs {
        let help = "attributes stand on functions and on the module";
        let message = "this attribute has no meaning inside a block";
        syntax(errors, Extent::of(attr.path()), message, help);
    }
}

/// Whether an attribute is `#[name…]`, by whatever path.
pub fn is(attr: &syn::Attribute, name: &str) -> bool {
    attr.path().segments.last().is_some_and(|segment| segment.ident == name)
}

fn arguments(attr: &syn::Attribute) -> TokenStream {
    match &attr.meta {
        syn::Meta::List(list) => list.tokens.clone(),
        syn::Meta::Path(_) | syn::Meta::NameValue(_) => TokenStream::new(),
    }
}

fn function(item: syn::ItemFn, errors: &mut Errors) -> Function {
    let syn::Signature { constness, asyncness, unsafety, abi, ident, generics, variadic, .. } =
        &item.sig;
    let refused = [
        constness.as_ref().map(first_token),
        asyncness.as_ref().map(first_token),
        unsafety.as_ref().map(first_token),
        abi.as_ref().map(first_token),
        generics.lt_token.as_ref().map(first_token),
        generics.where_clause.as_ref().map(first_token),
        variadic.as_ref().map(first_token),
    ];
    for extent in refused.into_iter().flatten() {
        let help =
            "write `fn name(argument: Type, …) -> Type { … }`; dims are declared in the attribute";
        syntax(errors, extent, "a block is a plain function", help);
    }
    let (mut attrs, mut budget) = (Vec::new(), None);
    for attr in item.attrs {
        let kept = ["doc", "allow", "expect", "deprecated", "must_use", "inline"];
        if is(&attr, "budget") {
            let place = Extent::of(&attr.path().segments);
            if budget.is_some() {
                let help = "state all bounds in one `#[budget(…)]`";
                errors.push(Error::new(place, Code::Attribute, "a second budget", help));
                continue;
            }
            budget = Some(attr::budget(arguments(&attr), place, errors));
        } else if kept.iter().any(|name| is(&attr, name)) {
            attrs.push(outer(attr));
        } else {
            let help = "functions of a block take `#[budget(…)]`, documentation and lint levels";
            let message = "this attribute has no meaning on a block";
            syntax(errors, Extent::of(attr.path()), message, help);
        }
    }
    let params: Vec<Param> =
        item.sig.inputs.iter().filter_map(|input| param(input, errors)).collect();
    let unreadable = params.len() < item.sig.inputs.len();
    let result = match &item.sig.output {
        syn::ReturnType::Default => None,
        syn::ReturnType::Type(_, ty) => Some(ty.as_ref().clone()),
    };
    let (lets, last) = body(&item.block, ident, errors);
    Function {
        attrs,
        vis: item.vis,
        name: ident.clone(),
        params,
        result,
        lets,
        last,
        budget,
        unreadable,
    }
}

fn param(input: &syn::FnArg, errors: &mut Errors) -> Option<Param> {
    if let syn::FnArg::Typed(syn::PatType { attrs, pat, ty, .. }) = input
        && let syn::Pat::Ident(pat) = pat.as_ref()
        && pat.by_ref.is_none()
        && pat.mutability.is_none()
        && pat.subpat.is_none()
        && attrs.is_empty()
    {
        return Some(Param { name: pat.ident.clone(), ty: ty.as_ref().clone() });
    }
    syntax(errors, Extent::of(input), "an argument is `name: Type`", "");
    None
}

fn body(block: &syn::Block, name: &Ident, errors: &mut Errors) -> (Vec<Let>, Expr) {
    let (mut lets, mut last) = (Vec::new(), None);
    for (index, stmt) in block.stmts.iter().enumerate() {
        match stmt {
            syn::Stmt::Local(local) => lets.extend(binding(local, errors)),
            syn::Stmt::Expr(value, None) if index + 1 == block.stmts.len() => {
                last = Some(expr(value, errors));
            }
            syn::Stmt::Expr(value, _) => {
                // An expression that blocks do not have says so itself.
                if !matches!(expr(value, errors).kind, ExprKind::Invalid) {
                    let help = "bind it with `let`, or remove the `;` if it is the result";
                    syntax(errors, Extent::of(value), "the value is not used", help);
                }
            }
            syn::Stmt::Item(item) => {
                let help = "declare it beside the function";
                syntax(errors, first_token(item), "blocks have no items", help);
            }
            syn::Stmt::Macro(stmt) => {
                syntax(errors, Extent::of(&stmt.mac.path), "blocks have no macros", "");
            }
        }
    }
    let last = last.unwrap_or_else(|| {
        let ends_in_return = matches!(
            block.stmts.last(),
            Some(syn::Stmt::Expr(syn::Expr::Return(_), _) | syn::Stmt::Macro(_))
        );
        if !ends_in_return {
            errors.push(Error::new(
                block.brace_token.span.close(),
                Code::Return,
                format!("`{name}` does not end with an expression"),
                "the last expression, without `;`, is the block's result",
            ));
        }
        Expr { kind: ExprKind::Invalid, extent: Extent::from(block.span()) }
    });
    (lets, last)
}

fn binding(local: &syn::Local, errors: &mut Errors) -> Option<Let> {
    refuse_attributes(&local.attrs, errors);
    let value = match &local.init {
        Some(syn::LocalInit { expr: value, diverge: None, .. }) => expr(value, errors),
        Some(_) => {
            syntax(errors, Extent::of(local), "blocks have no `let … else`", "");
            return None;
        }
        None => {
            syntax(
                errors,
                Extent::of(&local.pat),
                "the name gets no value",
                "write `let name = …;`",
            );
            return None;
        }
    };
    match pattern(&local.pat) {
        Some(pattern) => Some(Let { pattern, value }),
        None => {
            let help =
                "patterns are `name` and `(a, b, _)`; a value's type follows from its operands";
            syntax(errors, Extent::of(&local.pat), "blocks do not have this pattern", help);
            None
        }
    }
}

fn pattern(pat: &syn::Pat) -> Option<Pattern> {
    let one = |pat: &syn::Pat| match pat {
        syn::Pat::Wild(_) => Some(None),
        syn::Pat::Ident(pat)
            if pat.by_ref.is_none() && pat.mutability.is_none() && pat.subpat.is_none() =>
        {
            Some(Some(pat.ident.clone()))
        }
        _ => None,
    };
    match pat {
        syn::Pat::Tuple(tuple) => {
            let names: Option<Vec<_>> = tuple.elems.iter().map(one).collect();
            Some(Pattern::Tuple(names?, Extent::of(pat)))
        }
        pat => one(pat).map(Pattern::One),
    }
}

/// The attributes of the expressions that blocks have, paths aside.
fn attributes(expr: &syn::Expr) -> &[syn::Attribute] {
    match expr {
        syn::Expr::Paren(syn::ExprParen { attrs, .. })
        | syn::Expr::Lit(syn::ExprLit { attrs, .. })
        | syn::Expr::Unary(syn::ExprUnary { attrs, .. })
        | syn::Expr::Binary(syn::ExprBinary { attrs, .. })
        | syn::Expr::MethodCall(syn::ExprMethodCall { attrs, .. })
        | syn::Expr::Call(syn::ExprCall { attrs, .. })
        | syn::Expr::Tuple(syn::ExprTuple { attrs, .. }) => attrs,
        _ => &[],
    }
}

/// An expression; what blocks do not have becomes [`ExprKind::Invalid`] and is reported.
pub fn expr(syntax_tree: &syn::Expr, errors: &mut Errors) -> Expr {
    let extent = Extent::of(syntax_tree);
    refuse_attributes(attributes(syntax_tree), errors);
    let kind = match syntax_tree {
        syn::Expr::Paren(inner) => return expr(&inner.expr, errors),
        syn::Expr::Group(inner) => return expr(&inner.expr, errors),
        syn::Expr::Path(path) => match plain_name(path) {
            Some(name) => ExprKind::Name(name),
            None => refuse(syntax_tree, "blocks have no paths, only names", "", errors),
        },
        syn::Expr::Lit(literal) => number(literal, errors),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(minus), expr: inner, .. }) => {
            ExprKind::Negate(Box::new(expr(inner, errors)), minus.span())
        }
        syn::Expr::Binary(binary) => {
            let left = Box::new(expr(&binary.left, errors));
            let right = Box::new(expr(&binary.right, errors));
            match operator(&binary.op) {
                Ok(op) => ExprKind::Binary { op, op_extent: Extent::of(&binary.op), left, right },
                Err(help) => {
                    let message = "blocks do not have this operator";
                    syntax(errors, Extent::of(&binary.op), message, help);
                    ExprKind::Invalid
                }
            }
        }
        syn::Expr::MethodCall(call) => method(call, errors),
        syn::Expr::Call(call) => {
            let args = call.args.iter().map(|arg| expr(arg, errors)).collect();
            match call.func.as_ref() {
                syn::Expr::Path(path) if plain_name(path).is_some() => match plain_name(path) {
                    Some(name) => ExprKind::Call { name, args },
                    None => ExprKind::Invalid,
                },
                func => {
                    let help = "functions of the same module are called by name";
                    refuse(func, "this is not a function of the module", help, errors)
                }
            }
        }
        syn::Expr::Tuple(tuple) => {
            ExprKind::Tuple(tuple.elems.iter().map(|element| expr(element, errors)).collect())
        }
        // What remains is Rust that blocks do not have.
        other => {
            let (message, help) = unsupported(other);
            let whole = matches!(
                other,
                syn::Expr::Index(_)
                    | syn::Expr::Field(_)
                    | syn::Expr::Array(_)
                    | syn::Expr::Cast(_)
            );
            let place = if whole { extent } else { Extent::from(extent.start) };
            syntax(errors, place, message, help);
            ExprKind::Invalid
        }
    };
    Expr { kind, extent }
}

fn refuse(at: &impl quote::ToTokens, message: &str, help: &str, errors: &mut Errors) -> ExprKind {
    syntax(errors, Extent::of(at), message, help);
    ExprKind::Invalid
}

fn plain_name(path: &syn::ExprPath) -> Option<Ident> {
    match path.qself {
        None if path.attrs.is_empty() => path.path.get_ident().cloned(),
        _ => None,
    }
}

fn number(literal: &syn::ExprLit, errors: &mut Errors) -> ExprKind {
    let (value, integer, suffix) = match &literal.lit {
        syn::Lit::Int(int) => {
            let integer = int.base10_digits().parse::<u64>().ok();
            (int.base10_digits().parse::<f64>().ok(), integer, int.suffix())
        }
        syn::Lit::Float(float) => (float.base10_digits().parse::<f64>().ok(), None, float.suffix()),
        _ => {
            return refuse(literal, "blocks have numbers as their only literals", "", errors);
        }
    };
    match value.filter(|value| value.is_finite()) {
        Some(value) if matches!(suffix, "" | "f32" | "usize") => {
            ExprKind::Number { value, integer: integer.filter(|_| suffix != "f32") }
        }
        found => {
            let message = match found {
                None => "the number is out of range".to_string(),
                Some(_) => format!("numbers in blocks are f32, found `{suffix}`"),
            };
            errors.push(Error::new(Extent::of(literal), Code::Literal, message, ""));
            ExprKind::Invalid
        }
    }
}

fn method(call: &syn::ExprMethodCall, errors: &mut Errors) -> ExprKind {
    let receiver = Box::new(expr(&call.receiver, errors));
    let args = call.args.iter().map(|arg| expr(arg, errors)).collect();
    let type_arg = match &call.turbofish {
        None => None,
        Some(list) => match list.args.iter().collect::<Vec<_>>().as_slice() {
            [syn::GenericArgument::Type(syn::Type::Path(path))]
                if path.path.get_ident().is_some() =>
            {
                path.path.get_ident().cloned()
            }
            _ => {
                let help = "write one element type, as in `.to::<bf16>()`";
                return refuse(list, "blocks have no other generic arguments", help, errors);
            }
        },
    };
    ExprKind::Method { receiver, name: call.method.clone(), type_arg, args }
}

fn operator(op: &syn::BinOp) -> Result<BinaryOp, &'static str> {
    match op {
        syn::BinOp::Add(_) => Ok(BinaryOp::Add),
        syn::BinOp::Sub(_) => Ok(BinaryOp::Sub),
        syn::BinOp::Mul(_) => Ok(BinaryOp::Mul),
        syn::BinOp::Div(_) => Ok(BinaryOp::Div),
        syn::BinOp::Lt(_) => Err("comparisons are methods: `a.lt(b)`"),
        syn::BinOp::Le(_) => Err("comparisons are methods: `a.le(b)`"),
        syn::BinOp::Gt(_) => Err("comparisons are methods: `a.gt(b)`"),
        syn::BinOp::Ge(_) => Err("comparisons are methods: `a.ge(b)`"),
        syn::BinOp::Eq(_) => Err("comparisons are methods: `a.eq(b)`"),
        syn::BinOp::Ne(_) => Err("comparisons are methods: `a.ne(b)`"),
        syn::BinOp::And(_) => Err("multiply two comparisons: `a.lt(b) * b.lt(c)`"),
        syn::BinOp::Or(_) => Err("take the larger of two comparisons: `a.lt(b).max(b.lt(c))`"),
        _ => Err("operators are `+`, `-`, `*` and `/`"),
    }
}

/// What to say about an expression of Rust that blocks do not have.
fn unsupported(expr: &syn::Expr) -> (&'static str, &'static str) {
    match expr {
        syn::Expr::If(_) => ("blocks have no `if`", "choose element by element: `c.select(a, b)`"),
        syn::Expr::Match(_) => {
            ("blocks have no `match`", "choose element by element: `c.select(a, b)`")
        }
        syn::Expr::ForLoop(_) | syn::Expr::While(_) | syn::Expr::Loop(_) => (
            "blocks have no loops",
            "operations work on whole tensors; repeat layers in the host program",
        ),
        syn::Expr::Return(_) => {
            ("blocks have no `return`", "write the result as the last expression, without `return`")
        }
        syn::Expr::Closure(_) => ("blocks have no closures", "declare a function beside this one"),
        syn::Expr::Cast(_) => ("blocks have no `as`", "round with `.to::<bf16>()`"),
        syn::Expr::Index(_) => {
            ("blocks have no indexing", "take parts with `.split(…)` or `.chunk(n)`")
        }
        syn::Expr::Field(_) => {
            ("blocks have no fields", "take a tuple apart with `let (a, b) = …`")
        }
        syn::Expr::Reference(_) => ("blocks have no references", "name the value alone"),
        syn::Expr::Assign(_) => ("blocks have no assignment", "bind a new value with `let`"),
        syn::Expr::Try(_) => ("blocks have no `?`", "operations in a block cannot fail"),
        syn::Expr::Macro(_) => ("blocks have no macros", ""),
        syn::Expr::Block(_) => ("blocks have no inner `{ … }`", "use parentheses, or `let`"),
        syn::Expr::Unary(_) => {
            ("blocks do not have this operator", "`-` is the only prefix operator")
        }
        syn::Expr::Array(_) | syn::Expr::Repeat(_) => ("blocks have no arrays", ""),
        syn::Expr::Range(_) => ("blocks have no ranges", "take parts with `.split(…)`"),
        _ => (
            "blocks do not have this expression",
            "blocks have names, numbers, `+ - * /`, methods, and calls to functions of the module",
        ),
    }
}
