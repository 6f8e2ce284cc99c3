//! What the names of the attribute mean: sizes, the batch dim, types, the operand type. Evaluates
//! arithmetic on dims, keeping the user's words for the result.

use crate::ast::{BinaryOp, Expr, ExprKind, Format};
use crate::attr::{Entry, EntryValue};
use crate::errors::{Error, Errors, Extent};
use fuseline_core::diag::{Code, nearest};
use fuseline_core::dtype::DType;
use fuseline_core::format;
use fuseline_core::ir::{Batch, Dim};
use proc_macro2::Ident;
use std::sync::Arc;
use syn::ext::IdentExt;

/// The largest size of a dim, and the most elements of a value: products of a few sizes and
/// element sizes stay far from overflow.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// The most rows of a batch dim.
const MAX_ROWS: usize = 1 << 16;

/// Names that expansions and the language's own types use.
const TAKEN: &[&str] = &[
    "Tensor",
    "Weight",
    "Weights",
    "KvCache",
    "Index",
    "Tokens",
    "Scalar",
    "Device",
    "Arena",
    "Block",
    "IR",
    "CUDA",
    "EXPLAIN",
    "EXPLAIN_JSON",
    "DIGEST",
    "Self",
];

/// The names of one configuration.
#[derive(Debug, Default)]
pub struct Dims {
    /// Dims and type names, in the order of the attribute.
    pub names: Vec<(Ident, Meaning)>,
    /// What activations are rounded to before products.
    pub operand: Option<DType>,
    /// The batch dim's range, if the program gives one.
    pub batch: Option<Batch>,
}

/// What a name of the attribute stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// A size.
    Size(Dim),
    /// An element type or weight format.
    Type(Ident),
}

impl Dims {
    /// The meaning of the attribute's entries, in order; later entries may use earlier dims.
    pub fn resolve(entries: &[Entry], formats: &[Format], errors: &mut Errors) -> Dims {
        let mut dims = Dims::default();
        let mut operand_seen = false;
        for entry in entries {
            let name = &entry.name;
            let twice = dims.names.iter().any(|(known, _)| known == name);
            if twice || (name == "operand" && operand_seen) {
                let message = format!("`{name}` is declared twice");
                errors.push(Error::new(name.span(), Code::Attribute, message, ""));
                continue;
            }
            if name == "operand" {
                operand_seen = true;
                dims.operand = errors.keep(operand(&entry.value, name)).ok();
                continue;
            }
            let taken = TAKEN.iter().any(|taken| name == taken)
                || format::builtin(&name.to_string()).is_some()
                || DType::from_name(&name.to_string()).is_some();
            if taken {
                let message = format!("`{name}` is a name of the language");
                let help = "give the dim another name";
                errors.push(Error::new(name.span(), Code::Attribute, message, help));
                continue;
            }
            if !name.unraw().to_string().starts_with(char::is_uppercase) {
                // A constant in lower case would change what the same name means in a pattern.
                let message = format!("`{name}` does not begin with a capital");
                let help = "dims are constants: name them like `D` or `HEADS`";
                errors.push(Error::new(name.span(), Code::Attribute, message, help));
                continue;
            }
            if let Ok(meaning) = errors.keep(dims.meaning(name, &entry.value, formats)) {
                dims.names.push((name.clone(), meaning));
            }
        }
        dims
    }

    fn meaning(
        &mut self,
        name: &Ident,
        value: &EntryValue,
        formats: &[Format],
    ) -> Result<Meaning, Error> {
        match value {
            EntryValue::Range(min, max) => self.range(name, min, max).map(Meaning::Size),
            EntryValue::Equal(Expr { kind: ExprKind::Name(target), .. })
                if self.get(&target.to_string()).is_none() =>
            {
                let text = target.to_string();
                let known: Vec<String> = type_names(formats).collect();
                if known.contains(&text) {
                    return Ok(Meaning::Type(target.clone()));
                }
                let names = self.names.iter().map(|(name, _)| name.to_string());
                let known: Vec<String> = names.chain(known).collect();
                Err(Error::new(
                    target.span(),
                    Code::UnknownName,
                    format!("`{target}` is no dim declared before, element type or weight format"),
                    suggest(&text, &known),
                ))
            }
            EntryValue::Equal(expr) => {
                let dim = self.eval(expr)?;
                if dim.batch {
                    return Err(Error::new(
                        expr.extent,
                        Code::Batch,
                        format!("`{name}` cannot be another name of the batch dim"),
                        "use the batch dim's own name",
                    ));
                }
                Ok(Meaning::Size(Dim::named(dim.size, &name.to_string())))
            }
        }
    }

    fn range(&mut self, name: &Ident, min: &Expr, max: &Expr) -> Result<Dim, Error> {
        if let Some(batch) = &self.batch {
            return Err(Error::new(
                name.span(),
                Code::Attribute,
                format!("`{name}` is a second batch dim, beside `{}`", batch.name),
                "one dim has a range: the rows of a call",
            ));
        }
        let (low, high) = (self.eval(min)?, self.eval(max)?);
        if low.size > high.size || high.size > MAX_ROWS {
            return Err(Error::new(
                min.extent.to(max.extent),
                Code::Attribute,
                format!("the range {}..={} of `{name}` is empty or too large", low.size, high.size),
                format!("from 1 to {MAX_ROWS} rows, the smaller number first"),
            ));
        }
        let text = name.to_string();
        self.batch = Some(Batch { name: Arc::from(&*text), min: low.size, max: high.size });
        Ok(Dim::batch(high.size, &text))
    }

    /// The name of the dim that counts the rows of a call: the one with a range, else `B`.
    pub fn rows_name(&self) -> Option<String> {
        match &self.batch {
            Some(batch) => Some(batch.name.to_string()),
            None => self.get("B").map(|_| "B".to_string()),
        }
    }

    /// What a name stands for.
    pub fn get(&self, name: &str) -> Option<&Meaning> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, meaning)| meaning)
    }

    /// The type that a name stands for: itself, unless the attribute gives it a meaning.
    pub fn type_name(&self, name: &Ident) -> Ident {
        match self.get(&name.to_string()) {
            Some(Meaning::Type(target)) => target.clone(),
            Some(Meaning::Size(_)) | None => name.clone(),
        }
    }

    /// The dim that an expression stands for, labelled with the user's words.
    ///
    /// # Errors
    /// At the part that is no dim, or has no positive size.
    pub fn eval(&self, expr: &Expr) -> Result<Dim, Error> {
        let dim = match &expr.kind {
            ExprKind::Name(name) => self.named(name)?,
            ExprKind::Number { integer: Some(_), .. } => Dim::literal(self.size(expr)?),
            ExprKind::Number { .. }
            | ExprKind::Negate(..)
            | ExprKind::Binary { .. }
            | ExprKind::Method { .. }
            | ExprKind::Call { .. }
            | ExprKind::Tuple(_)
            | ExprKind::Invalid => Dim::named(self.size(expr)?, &expr.arithmetic_text()),
        };
        if dim.size == 0 {
            let message = format!("the dim `{}` is 0", expr.arithmetic_text());
            return Err(Error::new(expr.extent, Code::Dim, message, "dims are at least 1"));
        }
        Ok(dim)
    }

    fn named(&self, name: &Ident) -> Result<Dim, Error> {
        let text = name.to_string();
        match self.get(&text) {
            Some(Meaning::Size(dim)) => Ok(dim.clone()),
            Some(Meaning::Type(_)) => Err(Error::new(
                name.span(),
                Code::Kind,
                format!("`{name}` is a type, a dim is needed here"),
                "",
            )),
            None => {
                let is_size = |meaning: &Meaning| matches!(meaning, Meaning::Size(_));
                let sizes = self.names.iter().filter(|(_, meaning)| is_size(meaning));
                let known: Vec<String> = sizes.map(|(name, _)| name.to_string()).collect();
                Err(Error::new(
                    name.span(),
                    Code::UnknownName,
                    format!("no dim `{name}` is declared in the attribute"),
                    suggest(&text, &known),
                ))
            }
        }
    }

    fn size(&self, expr: &Expr) -> Result<usize, Error> {
        let fail =
            |message: String, help: &str| Err(Error::new(expr.extent, Code::Dim, message, help));
        let size = match &expr.kind {
            ExprKind::Name(name) => {
                let dim = self.named(name)?;
                if dim.batch {
                    return Err(Error::new(
                        name.span(),
                        Code::Batch,
                        format!("the batch dim `{name}` in arithmetic"),
                        "its rows are known only at the call; it stands alone, as the first dim",
                    ));
                }
                Some(dim.size)
            }
            ExprKind::Number { integer: Some(integer), .. } => usize::try_from(*integer).ok(),
            ExprKind::Number { value, .. } => {
                return Err(Error::new(
                    expr.extent,
                    Code::Literal,
                    format!("a dim is a whole number, found {value:?}"),
                    "",
                ));
            }
            ExprKind::Binary { op, left, right, .. } => {
                let (left, right) = (self.size(left)?, self.size(right)?);
                match op {
                    BinaryOp::Add => left.checked_add(right),
                    BinaryOp::Mul => left.checked_mul(right),
                    BinaryOp::Sub if left < right => {
                        return fail(
                            format!(
                                "the dim `{}` is negative: {left} - {right}",
                                expr.arithmetic_text()
                            ),
                            "dims are at least 1",
                        );
                    }
                    BinaryOp::Sub => Some(left - right),
                    BinaryOp::Div if right == 0 || left % right != 0 => {
                        let text = expr.arithmetic_text();
                        let message =
                            format!("the dim `{text}` is no whole number: {left} / {right}");
                        return fail(message, "divide by a factor of the dim");
                    }
                    BinaryOp::Div => Some(left / right),
                }
            }
            ExprKind::Negate(..)
            | ExprKind::Method { .. }
            | ExprKind::Call { .. }
            | ExprKind::Tuple(_)
            | ExprKind::Invalid => {
                return fail(
                    "this is not a dim".to_string(),
                    "dims are names, whole numbers, and `+ - * /` of them",
                );
            }
        };
        match size.filter(|&size| size <= MAX_ELEMENTS) {
            Some(size) => Ok(size),
            None => fail(
                format!("the dim `{}` is larger than {MAX_ELEMENTS}", expr.arithmetic_text()),
                "",
            ),
        }
    }
}

fn operand(value: &EntryValue, name: &Ident) -> Result<DType, Error> {
    let (found, extent) = match value {
        EntryValue::Equal(expr) => (expr.arithmetic_text(), expr.extent),
        EntryValue::Range(..) => ("a range".to_string(), Extent::from(name.span())),
    };
    DType::from_name(&found).filter(|dtype| dtype.is_float()).ok_or_else(|| {
        Error::new(
            extent,
            Code::Attribute,
            format!("`operand` is an element type, found `{found}`"),
            "f32, f16 or bf16",
        )
    })
}

/// The names of element types and weight formats.
pub fn type_names(formats: &[Format]) -> impl Iterator<Item = String> + '_ {
    format::FORMATS
        .iter()
        .map(|format| format.name.to_string())
        .chain(formats.iter().map(|format| format.item.ident.to_string()))
}

/// `did you mean …`, or all the choices.
pub fn suggest(name: &str, known: &[String]) -> String {
    // A name of one or two letters is near to every other one.
    let near = nearest(name, known.iter().map(String::as_str)).filter(|_| name.len() > 2);
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None => format!("known names are `{}`", known.join("`, `")),
    }
}
