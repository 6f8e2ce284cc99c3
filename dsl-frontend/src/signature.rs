//! Signatures: the declared types of arguments and results.

use crate::ast::{Expr, ExprKind, Format, Function};
use crate::dims::{Dims, MAX_ELEMENTS, suggest, type_names};
use crate::errors::{Error, Errors, Extent, Reported};
use crate::parse;
use fuseline_core::diag::Code;
use fuseline_core::dtype::DType;
use fuseline_core::format::{self, WeightFormat};
use fuseline_core::ir::dim::show;
use fuseline_core::ir::{Dim, Role, Shape, Type};
use proc_macro2::Ident;
use std::sync::Arc;

/// What a function takes and gives.
#[derive(Debug)]
pub struct Signature {
    /// Arguments, in order.
    pub params: Vec<Param>,
    /// Results, in order.
    pub results: Result<Vec<Declared>, Reported>,
}

/// An argument.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: Ident,
    /// Its type as written.
    pub syntax: syn::Type,
    /// Its meaning.
    pub declared: Result<Declared, Reported>,
}

/// The meaning of a type.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The type of the value.
    pub ty: Type,
    /// Which type of the host API it is.
    pub host: Host,
    /// Who brings it, if it is an argument.
    pub role: Role,
    /// Where the type is.
    pub extent: Extent,
}

/// The types of the host API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `Tensor<f32, B, D>`
    Tensor,
    /// `Weight<Q4_1, N, K>`
    Weight,
    /// `&mut KvCache<f32, B, KV, HD, T>`
    Cache,
    /// `Index<B>`
    Index,
    /// `Tokens<B>`
    Tokens,
    /// `Scalar`
    Scalar,
}

impl Host {
    const ALL: [Host; 6] =
        [Host::Tensor, Host::Weight, Host::Cache, Host::Index, Host::Tokens, Host::Scalar];

    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Host::Tensor => "Tensor",
            Host::Weight => "Weight",
            Host::Cache => "KvCache",
            Host::Index => "Index",
            Host::Tokens => "Tokens",
            Host::Scalar => "Scalar",
        }
    }
}

/// A reader of types, with what they may name.
struct Types<'a> {
    dims: &'a Dims,
    formats: &'a [Format],
}

/// A function's signature. A type that cannot be read is reported, and its place kept.
pub fn signature(
    function: &Function,
    dims: &Dims,
    formats: &[Format],
    errors: &mut Errors,
) -> Signature {
    let types = Types { dims, formats };
    let params: Vec<Param> = function
        .params
        .iter()
        .map(|param| Param {
            name: param.name.clone(),
            syntax: param.ty.clone(),
            declared: types.argument(&param.ty, errors),
        })
        .collect();
    let results = match &function.result {
        None => Err(errors.push(Error::new(
            function.name.span(),
            Code::Return,
            format!("`{}` declares no result", function.name),
            "write its type after the arguments, as in `-> Tensor<f32, B, D>`",
        ))),
        Some(syn::Type::Tuple(tuple)) if !tuple.elems.is_empty() => {
            let results: Vec<_> = tuple.elems.iter().map(|ty| types.result(ty, errors)).collect();
            results.into_iter().collect()
        }
        Some(ty) => types.result(ty, errors).map(|declared| vec![declared]),
    };
    Signature { params, results }
}

/// The signature of a function whose types cannot be read, because the attribute is wrong.
pub fn unread(function: &Function) -> Signature {
    let params = function.params.iter().map(|param| Param {
        name: param.name.clone(),
        syntax: param.ty.clone(),
        declared: Err(Reported),
    });
    Signature { params: params.collect(), results: Err(Reported) }
}

impl Types<'_> {
    fn result(&self, syntax: &syn::Type, errors: &mut Errors) -> Result<Declared, Reported> {
        let declared = self.declared(syntax, errors)?;
        match declared.host {
            Host::Tensor | Host::Tokens => Ok(declared),
            Host::Weight | Host::Cache | Host::Index | Host::Scalar => {
                Err(errors.push(Error::new(
                    declared.extent,
                    Code::Kind,
                    format!("`{}` cannot be a result", declared.host.name()),
                    "results are tensors, tokens, or a tuple of them",
                )))
            }
        }
    }

    fn argument(&self, syntax: &syn::Type, errors: &mut Errors) -> Result<Declared, Reported> {
        let (inner, by_mut) = match syntax {
            syn::Type::Reference(reference) => (&*reference.elem, reference.mutability.is_some()),
            other => (other, false),
        };
        let by_reference = matches!(syntax, syn::Type::Reference(_));
        let declared = self.declared(inner, errors)?;
        let fits = match declared.host {
            Host::Cache => by_mut,
            Host::Tensor | Host::Weight | Host::Index | Host::Tokens | Host::Scalar => {
                !by_reference
            }
        };
        if fits {
            return Ok(declared);
        }
        let name = declared.host.name();
        let (message, help) = match declared.host {
            Host::Cache => (format!("`{name}` is changed by the block"), "write `&mut KvCache<…>`"),
            Host::Tensor | Host::Weight | Host::Index | Host::Tokens | Host::Scalar => {
                (format!("`{name}` is passed by value"), "write the type without `&`")
            }
        };
        Err(errors.push(Error::new(Extent::of(syntax), Code::Kind, message, help)))
    }

    fn declared(&self, syntax: &syn::Type, errors: &mut Errors) -> Result<Declared, Reported> {
        let known: Vec<String> = Host::ALL.iter().map(|host| host.name().to_string()).collect();
        let last = match syntax {
            syn::Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
            _ => None,
        };
        let Some(segment) = last else {
            return Err(errors.push(Error::new(
                Extent::of(syntax),
                Code::UnknownType,
                "signatures do not have this type",
                suggest("", &known),
            )));
        };
        let found = Host::ALL.into_iter().find(|host| segment.ident == host.name());
        let Some(host) = found else {
            return Err(errors.push(Error::new(
                segment.ident.span(),
                Code::UnknownType,
                format!("signatures have no type `{}`", segment.ident),
                suggest(&segment.ident.to_string(), &known),
            )));
        };
        let args: Vec<&syn::GenericArgument> = match &segment.arguments {
            syn::PathArguments::AngleBracketed(list) => list.args.iter().collect(),
            syn::PathArguments::None | syn::PathArguments::Parenthesized(_) => Vec::new(),
        };
        let extent = Extent::of(syntax);
        let ty = self.value_type(host, &args, segment, errors)?;
        errors.keep(check_size(&ty, extent))?;
        let role = match host {
            Host::Weight => Role::Weight,
            Host::Cache => Role::Cache,
            Host::Tensor if !self.mentions_rows(&args) => Role::Weight,
            Host::Tensor | Host::Index | Host::Tokens | Host::Scalar => Role::Input,
        };
        Ok(Declared { ty, host, role, extent })
    }

    /// Whether a tensor's type names the dim that counts rows. Without such a dim every tensor
    /// is an input.
    fn mentions_rows(&self, args: &[&syn::GenericArgument]) -> bool {
        let Some(rows) = self.dims.rows_name() else { return true };
        // What cannot be read was reported where it was evaluated.
        args.iter()
            .skip(1)
            .any(|arg| dim_expr(arg, &mut Errors::new()).is_ok_and(|expr| expr.mentions(&rows)))
    }

    fn value_type(
        &self,
        host: Host,
        args: &[&syn::GenericArgument],
        segment: &syn::PathSegment,
        errors: &mut Errors,
    ) -> Result<Type, Reported> {
        let wrong_count = |errors: &mut Errors, expected: &str| {
            errors.push(Error::new(
                segment.ident.span(),
                Code::Rank,
                format!("`{}` is written {expected}", host.name()),
                "",
            ))
        };
        match host {
            Host::Tensor => {
                let (first, dims) = match args {
                    [first, dims @ ..] if (1..=4).contains(&dims.len()) => (first, dims),
                    _ => return Err(wrong_count(errors, "`Tensor<f32, B, D>`, with 1 to 4 dims")),
                };
                let dtype = self.dtype(first, errors);
                let shape = self.shape(dims, errors);
                Ok(Type::tensor(dtype?, shape?))
            }
            Host::Weight => {
                let [format, n, k] = args else {
                    return Err(wrong_count(errors, "`Weight<Q4_1, OUT, IN>`"));
                };
                let format = self.format(format, errors);
                let (n, k_dim) = (self.size(n, errors), self.size(k, errors));
                let (format, n, k_dim) = (format?, n?, k_dim?);
                if k_dim.size % format.group_size() != 0 {
                    return Err(errors.push(Error::new(
                        Extent::of(*k),
                        Code::Group,
                        format!(
                            "a row of {k_dim} elements does not divide into the groups of {} that \
                             `{}` has",
                            format.group_size(),
                            format.name
                        ),
                        "weights are `Weight<FORMAT, OUT, IN>`; IN is a multiple of the group",
                    )));
                }
                Ok(Type::Weight { format, n, k: k_dim })
            }
            Host::Cache => {
                let [dtype, batch, kv_heads, head_dim, capacity] = args else {
                    return Err(wrong_count(errors, "`KvCache<f32, B, KV, HD, T>`"));
                };
                let dtype = self.dtype(dtype, errors);
                let batch = self.dim(batch, errors);
                let kv_heads = self.size(kv_heads, errors);
                let head_dim = self.size(head_dim, errors);
                let capacity = self.size(capacity, errors);
                Ok(Type::Cache {
                    dtype: dtype?,
                    batch: batch?,
                    kv_heads: kv_heads?,
                    head_dim: head_dim?,
                    capacity: capacity?,
                })
            }
            Host::Index => match args {
                [rows] => Ok(Type::Index { rows: self.dim(rows, errors)? }),
                _ => Err(wrong_count(errors, "`Index<B>`")),
            },
            Host::Tokens => match args {
                [rows] => Ok(Type::tensor(DType::I32, vec![self.dim(rows, errors)?])),
                _ => Err(wrong_count(errors, "`Tokens<B>`")),
            },
            Host::Scalar => match args {
                [] => Ok(Type::tensor(DType::F32, Vec::new())),
                [dtype] if matches!(self.dtype(dtype, errors)?, DType::F32) => {
                    Ok(Type::tensor(DType::F32, Vec::new()))
                }
                _ => Err(errors.push(Error::new(
                    segment.ident.span(),
                    Code::DType,
                    "`Scalar` is f32",
                    "write `Scalar`",
                ))),
            },
        }
    }

    fn shape(
        &self,
        dims: &[&syn::GenericArgument],
        errors: &mut Errors,
    ) -> Result<Shape, Reported> {
        let shape: Vec<_> = dims.iter().map(|dim| self.dim(dim, errors)).collect();
        let shape: Shape = shape.into_iter().collect::<Result<_, _>>()?;
        if let Some(late) = shape.iter().skip(1).position(|dim| dim.batch) {
            return Err(errors.push(Error::new(
                Extent::of(dims[late + 1]),
                Code::Batch,
                format!("the batch dim is dim {} of {}", late + 1, show(&shape)),
                "rows are outermost: the batch dim comes first",
            )));
        }
        Ok(shape)
    }

    /// A dim that is not the batch dim.
    fn size(&self, arg: &syn::GenericArgument, errors: &mut Errors) -> Result<Dim, Reported> {
        let dim = self.dim(arg, errors)?;
        if dim.batch {
            return Err(errors.push(Error::new(
                Extent::of(arg),
                Code::Batch,
                format!("the batch dim `{}` does not belong here", dim.label),
                "it is the first dim of tensors, caches, tokens and indices",
            )));
        }
        Ok(dim)
    }

    fn dim(&self, arg: &syn::GenericArgument, errors: &mut Errors) -> Result<Dim, Reported> {
        let expr = dim_expr(arg, errors)?;
        errors.keep(self.dims.eval(&expr))
    }

    fn dtype(&self, arg: &syn::GenericArgument, errors: &mut Errors) -> Result<DType, Reported> {
        let name = type_ident(arg, errors)?;
        match dtype_of(&self.dims.type_name(&name)) {
            Some(DType::I32) => Err(errors.push(Error::new(
                name.span(),
                Code::DType,
                "tensors hold f32, f16 or bf16, found i32",
                "token ids are `Tokens<B>`, positions `Index<B>`",
            ))),
            Some(dtype) => Ok(dtype),
            None => Err(errors.push(Error::new(
                name.span(),
                Code::UnknownType,
                format!("`{name}` is not an element type"),
                "element types are f32, f16 and bf16",
            ))),
        }
    }

    fn format(
        &self,
        arg: &syn::GenericArgument,
        errors: &mut Errors,
    ) -> Result<Arc<WeightFormat>, Reported> {
        let name = type_ident(arg, errors)?;
        let target = self.dims.type_name(&name).to_string();
        let declared = self.formats.iter().find(|format| format.item.ident == target);
        if let Some(declared) = declared {
            return declared.format.clone();
        }
        format::builtin(&target).map(|format| Arc::new(format.clone())).ok_or_else(|| {
            let known: Vec<String> = type_names(self.formats).collect();
            errors.push(Error::new(
                name.span(),
                Code::UnknownType,
                format!("no weight format `{name}` is built in or declared in this module"),
                suggest(&target, &known),
            ))
        })
    }
}

/// The element type of that name.
pub fn dtype_of(name: &Ident) -> Option<DType> {
    DType::from_name(&name.to_string())
}

fn type_ident(arg: &syn::GenericArgument, errors: &mut Errors) -> Result<Ident, Reported> {
    let name = match arg {
        syn::GenericArgument::Type(syn::Type::Path(path)) if path.qself.is_none() => {
            path.path.segments.last().map(|segment| segment.ident.clone())
        }
        _ => None,
    };
    name.ok_or_else(|| {
        errors.push(Error::new(
            Extent::of(arg),
            Code::UnknownType,
            "a type's name is needed here",
            "",
        ))
    })
}

/// The expression of a dim in a type: `D`, `64`, or `{ H * HD }`.
fn dim_expr(arg: &syn::GenericArgument, errors: &mut Errors) -> Result<Expr, Reported> {
    let extent = Extent::of(arg);
    let expr = match arg {
        syn::GenericArgument::Type(syn::Type::Path(path)) => {
            path.path.get_ident().map(|name| Expr { kind: ExprKind::Name(name.clone()), extent })
        }
        syn::GenericArgument::Const(syn::Expr::Block(block)) => {
            match block.block.stmts.as_slice() {
                [syn::Stmt::Expr(inner, None)] => Some(parse::expr(inner, errors)),
                _ => None,
            }
        }
        syn::GenericArgument::Const(inner) => Some(parse::expr(inner, errors)),
        _ => None,
    };
    match expr {
        Some(Expr { kind: ExprKind::Invalid, .. }) => Err(Reported),
        Some(expr) => Ok(expr),
        None => Err(errors.push(Error::new(
            extent,
            Code::Dim,
            "this is not a dim",
            "dims are names, numbers, and braced arithmetic: `{ H * HD }`",
        ))),
    }
}

/// Refuses types of so many elements that sizes in bytes could overflow.
fn check_size(ty: &Type, extent: Extent) -> Result<(), Error> {
    let sizes: Vec<usize> = match ty {
        Type::Tensor { shape, .. } => shape.iter().map(|dim| dim.size).collect(),
        Type::Weight { n, k, .. } => vec![n.size, k.size],
        Type::Cache { batch, kv_heads, head_dim, capacity, .. } => {
            vec![batch.size, kv_heads.size, head_dim.size, capacity.size]
        }
        Type::Index { rows } => vec![rows.size],
    };
    match checked_elements(&sizes) {
        Some(_) => Ok(()),
        None => Err(Error::new(
            extent,
            Code::Dim,
            format!("a value of more than {MAX_ELEMENTS} elements"),
            "no device holds it",
        )),
    }
}

/// The product of sizes, unless it is more than a value may have.
pub fn checked_elements(sizes: &[usize]) -> Option<usize> {
    sizes
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
        .filter(|&elements| elements <= MAX_ELEMENTS)
}
