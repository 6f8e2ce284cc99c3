//! Weight formats as types of the host API.

use super::block::unreadable;
use crate::ast::{self, Format};
use crate::errors::Reported;
use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, WeightFormat};
use proc_macro2::TokenStream;
use quote::quote;

/// The struct that names a format, and its declaration for the host API.
pub fn weight_format(format: &Format) -> TokenStream {
    let ast::Format { item, format } = format;
    let name = &item.ident;
    let declaration = match format {
        Ok(format) => format_value(format),
        Err(Reported) => unreadable(),
    };
    quote! {
        #item
        impl ::fuseline::__private::Format for #name {
            fn declaration() -> ::fuseline::__private::WeightFormat {
                #declaration
            }
        }
    }
}

fn format_value(format: &WeightFormat) -> TokenStream {
    let private = quote!(::fuseline::__private);
    let dtype = |dtype: DType| {
        let variant = match dtype {
            DType::F32 => quote!(F32),
            DType::F16 => quote!(F16),
            DType::BF16 => quote!(BF16),
            DType::I32 => quote!(I32),
        };
        quote!(#private::DType::#variant)
    };
    let (name, bits) = (&*format.name, format.bits);
    let code = match &format.code {
        CodeMap::Float(float) => {
            let float = dtype(*float);
            quote!(Float(#float))
        }
        CodeMap::Unsigned { bias } => quote!(Unsigned { bias: #bias }),
        CodeMap::Signed => quote!(Signed),
        CodeMap::Codebook(values) => {
            let values = values.iter();
            quote!(Codebook(::std::borrow::Cow::Borrowed(&[#(#values),*])))
        }
    };
    let group = match format.group {
        None => quote!(::core::option::Option::None),
        Some(group) => {
            let (size, scale) = (group.size, dtype(group.scale));
            let offset = match group.offset.map(dtype) {
                None => quote!(::core::option::Option::None),
                Some(offset) => quote!(::core::option::Option::Some(#offset)),
            };
            quote!(::core::option::Option::Some(
                #private::Group { size: #size, scale: #scale, offset: #offset }
            ))
        }
    };
    quote! {
        #private::WeightFormat {
            name: ::std::borrow::Cow::Borrowed(#name),
            bits: #bits,
            code: #private::CodeMap::#code,
            group: #group,
            gguf: ::core::option::Option::None,
        }
    }
}
