//! Finds the annotated items of a crate: from its root through every `mod x;`, as the compiler
//! follows them.

use crate::BuildError;
use proc_macro2::TokenStream;
use quote::ToTokens;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One `#[decode(attr)] item`.
pub(crate) struct Program {
    /// The modules around it, outermost first.
    pub modules: Vec<String>,
    /// The file that it is in.
    pub file: PathBuf,
    /// The attribute's arguments.
    pub attr: TokenStream,
    /// The item without the attribute.
    pub item: TokenStream,
}

/// What a crate has.
#[derive(Default)]
pub(crate) struct Found {
    pub programs: Vec<Program>,
    pub sources: Vec<PathBuf>,
    pub warnings: Vec<String>,
}

/// Every annotated item of the crate whose root is `root`.
pub(crate) fn programs(root: &Path) -> Result<Found, BuildError> {
    let text = fs::read_to_string(root)
        .map_err(|source| BuildError::Read { path: root.to_path_buf(), source })?;
    let mut search = Search { found: Found::default(), seen: BTreeSet::new() };
    let folder = root.parent().unwrap_or(Path::new(""));
    search.file(root, &text, folder, &mut Vec::new());
    Ok(search.found)
}

struct Search {
    found: Found,
    /// Files that were read: a `#[path]` can lead in a circle.
    seen: BTreeSet<PathBuf>,
}

impl Search {
    /// A file, whose `mod x;` are files of `folder`.
    fn file(&mut self, path: &Path, text: &str, folder: &Path, modules: &mut Vec<String>) {
        if !self.seen.insert(path.to_path_buf()) {
            return;
        }
        self.found.sources.push(path.to_path_buf());
        match syn::parse_file(text) {
            Ok(file) => self.items(file.items, path, folder, modules, false),
            Err(error) => {
                self.found.warnings.push(format!("{}: {error}", path.display()));
            }
        }
    }

    fn items(
        &mut self,
        items: Vec<syn::Item>,
        file: &Path,
        folder: &Path,
        modules: &mut Vec<String>,
        inline: bool,
    ) {
        for mut item in items {
            let attrs = match &mut item {
                syn::Item::Mod(item) => &mut item.attrs,
                syn::Item::Fn(item) => &mut item.attrs,
                _ => continue,
            };
            if let Some(index) = attrs.iter().position(is_decode) {
                let attr = match attrs.remove(index).meta {
                    syn::Meta::List(list) => list.tokens,
                    syn::Meta::Path(_) | syn::Meta::NameValue(_) => TokenStream::new(),
                };
                self.found.programs.push(Program {
                    modules: modules.clone(),
                    file: file.to_path_buf(),
                    attr,
                    item: item.to_token_stream(),
                });
                continue;
            }
            let syn::Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let name = name.strip_prefix("r#").unwrap_or(&name).to_string();
            let path = path_of(&module.attrs);
            modules.push(name.clone());
            match module.content {
                Some((_, items)) => {
                    let folder = folder.join(path.as_deref().unwrap_or(&name));
                    self.items(items, file, &folder, modules, true);
                }
                None => self.declared(&name, path.as_deref(), file, folder, modules, inline),
            }
            modules.pop();
        }
    }

    /// `mod name;`
    fn declared(
        &mut self,
        name: &str,
        path: Option<&str>,
        file: &Path,
        folder: &Path,
        modules: &mut Vec<String>,
        inline: bool,
    ) {
        // `#[path]` is relative to the file's folder; inside an inline module to the module's.
        let beside = if inline { folder } else { file.parent().unwrap_or(Path::new("")) };
        let places: Vec<(PathBuf, PathBuf)> = match path {
            // A file that is named so is like a `mod.rs`: its modules are beside it.
            Some(path) => {
                let file = beside.join(path);
                let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
                vec![(file, folder)]
            }
            None => vec![
                (folder.join(format!("{name}.rs")), folder.join(name)),
                (folder.join(name).join("mod.rs"), folder.join(name)),
            ],
        };
        for (file, folder) in places {
            if let Ok(text) = fs::read_to_string(&file) {
                return self.file(&file, &text, &folder, modules);
            }
        }
        // Perhaps another configuration has it.
        self.found.warnings.push(format!("{}: no file for `mod {name};`", file.display()));
    }
}

/// `#[decode]`, `#[fuseline::decode]`.
fn is_decode(attr: &syn::Attribute) -> bool {
    let path = attr.path();
    let segments: Vec<String> =
        path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["decode"] => path.leading_colon.is_none(),
        ["fuseline", "decode"] | ["fuseline", "prelude", "decode"] => true,
        _ => false,
    }
}

/// The text of `#[path = "…"]`.
fn path_of(attrs: &[syn::Attribute]) -> Option<String> {
    attrs.iter().find(|attr| attr.path().is_ident("path")).and_then(|attr| match &attr.meta {
        syn::Meta::NameValue(pair) => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        syn::Meta::Path(_) | syn::Meta::List(_) => None,
    })
}
