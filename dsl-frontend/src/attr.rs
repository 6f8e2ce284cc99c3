//! Attribute arguments: tokens to entries. What the entries mean is for [`crate::dims`].

use crate::ast::{BudgetNote, Expr};
use crate::compile::Budget;
use crate::errors::{Error, Errors, Extent, Reported};
use crate::parse;
use fuseline_core::diag::Code;
use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, Group, WeightFormat};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use std::borrow::Cow;

/// The arguments of `#[decode(…)]`.
#[derive(Debug, Default)]
pub struct Settings {
    /// Entries of every configuration.
    pub common: Vec<Entry>,
    /// Named configurations; none for a program that has only one.
    pub configurations: Vec<(Ident, Vec<Entry>)>,
}

/// One `name = value` or `name in min..=max`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is before `=` or `in`.
    pub name: Ident,
    /// What is after it.
    pub value: EntryValue,
}

/// The right side of an entry.
#[derive(Clone, Debug)]
pub enum EntryValue {
    /// `= expression`
    Equal(Expr),
    /// `in min..=max`
    Range(Expr, Expr),
}

/// Reads the arguments of `#[decode(…)]`. Entries that do not parse are reported and left out.
pub fn settings(tokens: TokenStream, errors: &mut Errors) -> Settings {
    let mut settings = Settings::default();
    for part in split_commas(tokens) {
        if let [TokenTree::Ident(name), TokenTree::Group(group)] = part.as_slice()
            && group.delimiter() == Delimiter::Brace
            && is_free(name)
        {
            let known = settings.configurations.iter().any(|(known, _)| known == name);
            if known {
                errors.push(Error::new(
                    name.span(),
                    Code::Attribute,
                    format!("configuration `{name}` is declared twice"),
                    "",
                ));
                continue;
            }
            let entries = split_commas(group.stream())
                .into_iter()
                .filter_map(|part| entry(part, errors).ok())
                .collect();
            settings.configurations.push((name.clone(), entries));
        } else if let Ok(entry) = entry(part, errors) {
            settings.common.push(entry);
        }
    }
    settings
}

fn entry(part: Vec<TokenTree>, errors: &mut Errors) -> Result<Entry, Reported> {
    let extent = extent_of(&part);
    let mut tokens = part.into_iter();
    let (name, separator) = (tokens.next(), tokens.next());
    let rest: TokenStream = tokens.collect();
    let malformed = || {
        Error::new(
            extent,
            Code::Attribute,
            "expected `NAME = value`, `NAME in min..=max` or `name { … }`",
            "for example `D = 576`, `B in 1..=64`, `operand = bf16`",
        )
    };
    let name = match name {
        Some(TokenTree::Ident(name)) if is_free(&name) => name,
        _ => return Err(errors.push(malformed())),
    };
    match separator {
        Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {
            let value = parse::expression(rest, errors)?;
            Ok(Entry { name, value: EntryValue::Equal(value) })
        }
        Some(TokenTree::Ident(word)) if word == "in" => {
            let syntax: syn::Expr = match syn::parse2(rest) {
                Ok(syntax) => syntax,
                Err(_) => return Err(errors.push(malformed())),
            };
            let range = Error::new(
                Extent::of(&syntax),
                Code::Attribute,
                format!("the range of `{name}` is `min..=max`, both included"),
                format!("for example `{name} in 1..=64`"),
            );
            match syntax {
                syn::Expr::Range(syn::ExprRange {
                    start: Some(min),
                    limits: syn::RangeLimits::Closed(_),
                    end: Some(max),
                    ..
                }) => {
                    let min = parse::expr(&min, errors);
                    let max = parse::expr(&max, errors);
                    Ok(Entry { name, value: EntryValue::Range(min, max) })
                }
                _ => Err(errors.push(range)),
            }
        }
        _ => Err(errors.push(malformed())),
    }
}

/// Reads the arguments of `#[budget(…)]`.
pub fn budget(tokens: TokenStream, place: Extent, errors: &mut Errors) -> BudgetNote {
    let mut budget = Budget::default();
    for part in split_commas(tokens) {
        let extent = extent_of(&part);
        let known = match part.as_slice() {
            [TokenTree::Ident(key), TokenTree::Punct(equal), TokenTree::Literal(value)]
                if equal.as_char() == '='
                    && (key == "max_launches" || key == "max_scratch_bytes") =>
            {
                let Ok(bound) = integer(value, errors) else { continue };
                let earlier = match key == "max_launches" {
                    true => budget.max_launches,
                    false => budget.max_scratch_bytes,
                };
                if earlier.is_some() {
                    let message = format!("`{key}` is given twice");
                    errors.push(Error::new(extent, Code::Attribute, message, ""));
                    continue;
                }
                match key == "max_launches" {
                    true => budget.max_launches = Some(bound),
                    false => budget.max_scratch_bytes = Some(bound),
                }
                true
            }
            [TokenTree::Ident(key), TokenTree::Group(what)] if key == "deny" => {
                let product = what.stream().to_string() == "product_buffer";
                budget.deny_product_buffer |= product;
                product
            }
            _ => false,
        };
        if !known {
            errors.push(Error::new(
                extent,
                Code::Attribute,
                "a budget has no such bound",
                "bounds are `max_launches = 2`, `max_scratch_bytes = 4096`, `deny(product_buffer)`",
            ));
        }
    }
    BudgetNote { budget, extent: place }
}

/// Reads the arguments of `#[weight_format(…)]` on a struct called `name`.
pub fn weight_format(
    tokens: TokenStream,
    name: &Ident,
    errors: &mut Errors,
) -> Result<WeightFormat, Reported> {
    let place = tokens.clone().into_iter().next().map_or(name.span(), |token| token.span());
    let properties = split_commas(tokens.clone());
    let n_before = errors.len();
    let (mut bits, mut code, mut group, mut scale, mut offset) = (None, None, None, None, None);
    for part in split_commas(tokens) {
        let extent = extent_of(&part);
        match part.as_slice() {
            [TokenTree::Ident(key), TokenTree::Punct(equal), value] if equal.as_char() == '=' => {
                let float_type = |errors: &mut Errors| dtype(value, errors).ok();
                match (key.to_string().as_str(), value) {
                    ("bits", TokenTree::Literal(value)) => bits = integer(value, errors).ok(),
                    ("group", TokenTree::Literal(value)) => group = integer(value, errors).ok(),
                    ("scale", _) => scale = float_type(errors),
                    ("offset", _) => offset = float_type(errors),
                    ("codebook", TokenTree::Group(values)) => {
                        let values = split_commas(values.stream()).into_iter();
                        let values: Result<Vec<f32>, Reported> =
                            values.map(|value| number(value, errors)).collect();
                        code = values.ok().map(|values| CodeMap::Codebook(Cow::Owned(values)));
                    }
                    _ => unknown_key(extent, errors),
                }
            }
            [TokenTree::Ident(key), rest @ ..] if key == "unsigned" => {
                code = Some(CodeMap::Unsigned { bias: bias(rest, extent, errors) });
            }
            [TokenTree::Ident(key)] if key == "signed" => code = Some(CodeMap::Signed),
            _ => unknown_key(extent, errors),
        }
    }
    if errors.len() > n_before {
        return Err(Reported);
    }
    let fail = |message: String, help: &str| {
        Error::new(place, Code::Format, format!("weight format `{name}`: {message}"), help)
    };
    let (Some(bits), Some(code)) = (bits, code) else {
        return Err(errors.push(fail(
            "`bits` and a code map are needed".to_string(),
            "for example `bits = 4, unsigned(bias = 8), group = 32, scale = f16`",
        )));
    };
    let group = match (group, scale) {
        (Some(size), Some(scale)) => Some(Group { size, scale, offset }),
        (None, None) if offset.is_none() => None,
        _ => {
            return Err(errors.push(fail(
                "`group` and `scale` come together".to_string(),
                "for example `group = 32, scale = f16`, and `offset = f16` if there are offsets",
            )));
        }
    };
    let format = WeightFormat {
        name: Cow::Owned(name.to_string()),
        bits: u8::try_from(bits).unwrap_or(u8::MAX),
        code,
        group,
        gguf: None,
    };
    if fuseline_core::format::builtin(&format.name).is_some() {
        let help = "give the declared format another name";
        return Err(errors.push(fail("the name is a built-in format's".to_string(), help)));
    }
    match format.check() {
        Ok(()) => Ok(format),
        Err(message) => {
            // At the property that the message names first.
            let named = properties
                .iter()
                .filter_map(|part| Some((message.find(&part.first()?.to_string())?, part)))
                .min_by_key(|(at, _)| *at);
            let mut error = fail(message, "");
            error.extent = named.map_or(error.extent, |(_, part)| extent_of(part));
            Err(errors.push(error))
        }
    }
}

fn unknown_key(extent: Extent, errors: &mut Errors) {
    errors.push(Error::new(
        extent,
        Code::Attribute,
        "a weight format has no such property",
        "properties are `bits = 4`, one of `codebook = […]`, `unsigned(bias = 8)` and `signed`, \
         `group = 32`, `scale = f16`, `offset = f16`",
    ));
}

/// `(bias = 8)`, or nothing for 0.
fn bias(rest: &[TokenTree], extent: Extent, errors: &mut Errors) -> i32 {
    let TokenTree::Group(group) = (match rest {
        [] => return 0,
        [group, ..] => group,
    }) else {
        unknown_key(extent, errors);
        return 0;
    };
    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
    let value = match inner.as_slice() {
        [TokenTree::Ident(key), TokenTree::Punct(equal), value @ ..]
            if key == "bias" && equal.as_char() == '=' && rest.len() == 1 =>
        {
            number(value.to_vec(), errors)
        }
        _ => {
            unknown_key(extent, errors);
            return 0;
        }
    };
    match value {
        Ok(value) if value.fract() == 0.0 && value.abs() <= 255.0 => value as i32,
        Ok(value) => {
            let message = format!("the bias is a whole number from -255 to 255, found {value}");
            errors.push(Error::new(extent, Code::Literal, message, ""));
            0
        }
        Err(Reported) => 0,
    }
}

fn integer(literal: &proc_macro2::Literal, errors: &mut Errors) -> Result<usize, Reported> {
    literal.to_string().replace('_', "").parse().map_err(|_| {
        errors.push(Error::new(
            literal.span(),
            Code::Literal,
            format!("expected a whole number, found `{literal}`"),
            "",
        ))
    })
}

fn number(tokens: Vec<TokenTree>, errors: &mut Errors) -> Result<f32, Reported> {
    let extent = extent_of(&tokens);
    let value = parse::expression(tokens.into_iter().collect(), errors)?.number();
    match value {
        Some(value) if (value as f32).is_finite() => Ok(value as f32),
        _ => Err(errors.push(Error::new(extent, Code::Literal, "expected a number", ""))),
    }
}

fn dtype(token: &TokenTree, errors: &mut Errors) -> Result<DType, Reported> {
    DType::from_name(&token.to_string()).filter(|dtype| dtype.is_float()).ok_or_else(|| {
        errors.push(Error::new(
            token.span(),
            Code::UnknownType,
            format!("`{token}` is not an element type that holds fractions"),
            "element types are f32, f16 and bf16",
        ))
    })
}

/// Whether a word can name something: it is no keyword of Rust.
fn is_free(name: &Ident) -> bool {
    syn::parse2::<Ident>(TokenTree::from(name.clone()).into()).is_ok()
}

/// The parts between commas; a trailing comma adds none.
fn split_commas(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => parts.push(Vec::new()),
            _ => parts.last_mut().into_iter().for_each(|part| part.push(token.clone())),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn extent_of(tokens: &[TokenTree]) -> Extent {
    match tokens {
        [] => Extent::from(Span::call_site()),
        tokens => Extent::of(&tokens.iter().cloned().collect::<TokenStream>()),
    }
}
