//! The surface tree: what the user wrote, less what Rust has and blocks do not.

use crate::errors::{Extent, Reported};
use fuseline_core::format::WeightFormat;
use proc_macro2::{Ident, Span};
use std::sync::Arc;

/// An annotated `mod`, or an annotated `fn` as a mod of one function.
#[derive(Debug)]
pub struct Module {
    /// Attributes that stay on the module: documentation, lint levels.
    pub attrs: Vec<syn::Attribute>,
    /// Its visibility.
    pub vis: syn::Visibility,
    /// Its name; a lone function's own.
    pub name: Ident,
    /// Whether it is a lone function.
    pub lone: bool,
    /// `use` items, which stay.
    pub uses: Vec<syn::ItemUse>,
    /// Weight formats declared in it.
    pub formats: Vec<Format>,
    /// Functions, in the order of the source.
    pub functions: Vec<Function>,
}

impl Module {
    /// Whether a function of the module is a block with plans of its own. A private one is only
    /// inlined.
    pub fn plans(&self, function: &Function) -> bool {
        self.lone || !matches!(function.vis, syn::Visibility::Inherited)
    }
}

/// A weight format declared with `#[weight_format(…)] pub struct Name;`.
#[derive(Debug)]
pub struct Format {
    /// The struct, without the annotation.
    pub item: syn::ItemStruct,
    /// What it declares.
    pub format: Result<Arc<WeightFormat>, Reported>,
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Attributes that stay on it.
    pub attrs: Vec<syn::Attribute>,
    /// Its visibility; one without any is only inlined into others.
    pub vis: syn::Visibility,
    /// Its name.
    pub name: Ident,
    /// Its arguments.
    pub params: Vec<Param>,
    /// The type after `->`.
    pub result: Option<syn::Type>,
    /// `let` statements.
    pub lets: Vec<Let>,
    /// The last expression.
    pub last: Expr,
    /// Its `#[budget(…)]`.
    pub budget: Option<BudgetNote>,
    /// Whether an argument was reported and left out.
    pub unreadable: bool,
}

/// An argument as declared.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: Ident,
    /// Its type, which [`crate::signature`] reads.
    pub ty: syn::Type,
}

/// `#[budget(…)]`.
#[derive(Clone, Debug)]
pub struct BudgetNote {
    /// The bounds.
    pub budget: crate::compile::Budget,
    /// Where to report that they are exceeded.
    pub extent: Extent,
}

/// `let pattern = value;`
#[derive(Debug)]
pub struct Let {
    /// What is bound.
    pub pattern: Pattern,
    /// To what.
    pub value: Expr,
}

/// The left side of a `let`.
#[derive(Debug)]
pub enum Pattern {
    /// A name, or `None` for `_`.
    One(Option<Ident>),
    /// `(a, _, c)`.
    Tuple(Vec<Option<Ident>>, Extent),
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// All its tokens.
    pub extent: Extent,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A name.
    Name(Ident),
    /// A literal.
    Number {
        /// Its value.
        value: f64,
        /// Its value, if it is written without fraction and exponent.
        integer: Option<u64>,
    },
    /// `-a`, with the place of the sign.
    Negate(Box<Expr>, Span),
    /// `left op right`
    Binary {
        /// Which operator.
        op: BinaryOp,
        /// Where it is.
        op_extent: Extent,
        /// The left side.
        left: Box<Expr>,
        /// The right side.
        right: Box<Expr>,
    },
    /// `receiver.name::<type_arg>(args)`
    Method {
        /// What comes before the dot.
        receiver: Box<Expr>,
        /// The method.
        name: Ident,
        /// The type between `::<` and `>`.
        type_arg: Option<Ident>,
        /// What is in parentheses.
        args: Vec<Expr>,
    },
    /// `name(args)`
    Call {
        /// The function, or an option of a method.
        name: Ident,
        /// What is in parentheses.
        args: Vec<Expr>,
    },
    /// `(a, b)`
    Tuple(Vec<Expr>),
    /// Something that blocks do not have; reported already.
    Invalid,
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
}

impl BinaryOp {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
        }
    }

    /// How tightly it binds.
    fn level(self) -> u8 {
        match self {
            BinaryOp::Add | BinaryOp::Sub => 1,
            BinaryOp::Mul | BinaryOp::Div => 2,
        }
    }
}

impl Expr {
    /// The token that stands for the expression as a receiver: a chain's last method, a sum's
    /// operator. An underlined chain of ten methods would say nothing.
    pub fn anchor(&self) -> Extent {
        match &self.kind {
            ExprKind::Method { name, .. } | ExprKind::Call { name, .. } => name.span().into(),
            ExprKind::Binary { op_extent, .. } => *op_extent,
            ExprKind::Name(_)
            | ExprKind::Number { .. }
            | ExprKind::Negate(..)
            | ExprKind::Tuple(_)
            | ExprKind::Invalid => self.extent,
        }
    }

    /// The value of an expression of literals, computed in f64; `None` if there is a name in it.
    pub fn number(&self) -> Option<f64> {
        match &self.kind {
            ExprKind::Number { value, .. } => Some(*value),
            ExprKind::Negate(inner, _) => inner.number().map(|value| -value),
            ExprKind::Binary { op, left, right, .. } => {
                let (left, right) = (left.number()?, right.number()?);
                Some(match op {
                    BinaryOp::Add => left + right,
                    BinaryOp::Sub => left - right,
                    BinaryOp::Mul => left * right,
                    BinaryOp::Div => left / right,
                })
            }
            ExprKind::Name(_)
            | ExprKind::Method { .. }
            | ExprKind::Call { .. }
            | ExprKind::Tuple(_)
            | ExprKind::Invalid => None,
        }
    }

    /// The text of arithmetic on names and integers, with only the parentheses that it needs:
    /// `(H + 2 * KV) * HD`.
    pub fn arithmetic_text(&self) -> String {
        self.text_at(0)
    }

    fn text_at(&self, level: u8) -> String {
        match &self.kind {
            ExprKind::Name(name) => name.to_string(),
            ExprKind::Number { integer: Some(integer), .. } => integer.to_string(),
            ExprKind::Number { value, .. } => format!("{value:?}"),
            ExprKind::Binary { op, left, right, .. } => {
                let own = op.level();
                let text =
                    format!("{} {} {}", left.text_at(own), op.symbol(), right.text_at(own + 1));
                if own < level { format!("({text})") } else { text }
            }
            ExprKind::Negate(inner, _) => format!("-{}", inner.text_at(3)),
            ExprKind::Method { .. }
            | ExprKind::Call { .. }
            | ExprKind::Tuple(_)
            | ExprKind::Invalid => "…".to_string(),
        }
    }

    /// Whether a name is in an arithmetic expression.
    pub fn mentions(&self, wanted: &str) -> bool {
        match &self.kind {
            ExprKind::Name(name) => name == wanted,
            ExprKind::Negate(inner, _) => inner.mentions(wanted),
            ExprKind::Binary { left, right, .. } => left.mentions(wanted) || right.mentions(wanted),
            ExprKind::Number { .. }
            | ExprKind::Method { .. }
            | ExprKind::Call { .. }
            | ExprKind::Tuple(_)
            | ExprKind::Invalid => false,
        }
    }
}
