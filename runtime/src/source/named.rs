//! Entries found by name that keep the order they came in.

use super::SourceError;
use std::collections::BTreeMap;

/// Entries by name, in the order of insertion.
#[derive(Clone, Debug)]
pub(super) struct Named<T> {
    entries: Vec<(String, T)>,
    index: BTreeMap<String, usize>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Named { entries: Vec::new(), index: BTreeMap::new() }
    }
}

impl<T> Named<T> {
    /// Adds an entry; `what` says in the error what there are two of.
    pub fn insert(&mut self, what: &'static str, name: &str, entry: T) -> Result<(), SourceError> {
        if self.index.insert(name.to_owned(), self.entries.len()).is_some() {
            return Err(SourceError::Duplicate { what, name: name.to_owned() });
        }
        self.entries.push((name.to_owned(), entry));
        Ok(())
    }

    /// Adds an entry in the place of an earlier one of that name.
    pub fn replace(&mut self, name: &str, entry: T) {
        match self.index.get(name) {
            Some(&at) => self.entries[at].1 = entry,
            None => {
                self.index.insert(name.to_owned(), self.entries.len());
                self.entries.push((name.to_owned(), entry));
            }
        }
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.index.get(name).map(|&at| &self.entries[at].1)
    }

    /// The tensor of that name, with the name as it is kept here.
    pub fn tensor(&self, name: &str) -> Result<(&str, &T), SourceError> {
        match self.index.get(name) {
            Some(&at) => Ok((&self.entries[at].0, &self.entries[at].1)),
            None => {
                Err(SourceError::MissingTensor { name: name.to_owned(), count: self.entries.len() })
            }
        }
    }

    /// All entries with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// All names.
    pub fn names(&self) -> Vec<&str> {
        self.iter().map(|(name, _)| name).collect()
    }
}
