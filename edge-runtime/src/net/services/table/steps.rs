//! Lines of a change. Pure.

use crate::net::services::item::{Element, Item, What};

/// Lines of a change, by what must come before what. Each with its family.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) sets: Vec<(bool, String)>,
    /// Known to the kernel already, or not.
    pub(super) chains: Vec<(bool, String, bool)>,
    pub(super) deleted: Vec<(bool, String)>,
    pub(super) rules: Vec<(bool, String)>,
    pub(super) added: Vec<(bool, String)>,
    pub(super) emptied: Vec<(bool, String)>,
}

impl Steps {
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
            && self.chains.is_empty()
            && self.deleted.is_empty()
            && self.added.is_empty()
            && self.emptied.is_empty()
    }

    pub(super) fn put(&mut self, item: &Item, text: &str, known: bool) {
        match &item.what {
            What::Set(name) => self.sets.push((item.v6, format!("{name} {{ {text} }}"))),
            What::Chain(name) => {
                self.chains.push((item.v6, name.to_string(), known));
                self.rules.extend(text.lines().map(|rule| (item.v6, format!("{name} {rule}"))));
            }
            What::Element(_) => {}
        }
    }

    pub(super) fn empty(&mut self, item: &Item) {
        if let What::Chain(name) = &item.what {
            self.emptied.push((item.v6, name.to_string()));
        }
    }

    /// A map's element is changed by deleting and adding it.
    pub(super) fn element(&mut self, item: &Item, element: Element, old: Option<()>, new: Option<&str>) {
        let (set, key) = (element.set(), element.key());
        if old.is_some() {
            self.deleted.push((item.v6, format!("{set} {{ {key} }}")));
        }
        if let Some(verdict) = new {
            let leads = if verdict.is_empty() { String::new() } else { format!(" : {verdict}") };
            self.added.push((item.v6, format!("{set} {{ {key}{leads} }}")));
        }
    }
}
