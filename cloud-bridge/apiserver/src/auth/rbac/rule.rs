//! One rule of a role, and its rights (K8s pkg/apis/rbac/v1/evaluation_helpers.go).

use std::fmt;

use serde_json::{Map, Value};

use super::words::Words;
use crate::auth::attributes::Attributes;
use apimachinery::json::items;

/// A rule for resources, or for paths outside the resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) verbs: Words,
    pub(crate) groups: Words,
    pub(crate) resources: Words,
    pub(crate) names: Words,
    pub(crate) urls: Words,
}

/// The fields of a rule, in the order in which Kubernetes writes them.
const FIELDS: [&str; 5] = ["apiGroups", "resources", "nonResourceURLs", "resourceNames", "verbs"];

/// Whether a path is below a pattern that ends with `*`, or is the one.
pub(super) fn url_matches(pattern: &str, url: &str) -> bool {
    pattern == url || (pattern.ends_with('*') && url.starts_with(pattern.trim_end_matches('*')))
}

impl Rule {
    /// The rule as a role has it.
    pub(crate) fn of(value: &Value) -> Self {
        let words = |field: &str| items(value, field).iter().filter_map(Value::as_str).collect();
        Self {
            verbs: words("verbs"),
            groups: words("apiGroups"),
            resources: words("resources"),
            names: words("resourceNames"),
            urls: words("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    pub(crate) fn all(role: &Value) -> Vec<Self> {
        items(role, "rules").iter().map(Self::of).collect()
    }

    fn lists(&self) -> [(&'static str, &Words); 5] {
        let [groups, resources, urls, names, verbs] = FIELDS;
        [
            (groups, &self.groups),
            (resources, &self.resources),
            (urls, &self.urls),
            (names, &self.names),
            (verbs, &self.verbs),
        ]
    }

    /// How many words it has.
    pub(super) fn len(&self) -> usize {
        self.lists().iter().map(|(_, words)| words.len()).sum()
    }

    /// The rule as a role has it; lists without a word are left out.
    pub(crate) fn value(&self) -> Value {
        let full = self.lists().into_iter().filter(|(_, words)| !words.is_empty());
        let value = |words: &Words| words.iter().collect::<Value>();
        Value::Object(full.map(|(field, words)| (field.to_owned(), value(words))).collect::<Map<_, _>>())
    }

    /// Whether it allows this.
    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        if !self.verbs.has(&attributes.verb) {
            return false;
        }
        let path = &attributes.path;
        match &attributes.url {
            Some(url) => self.urls.iter().any(|pattern| pattern == "*" || url_matches(pattern, url)),
            None => {
                self.groups.has(&path.group)
                    && self.resources.iter().any(|one| resource_matches(one, &path.resource, &path.subresource))
                    && (self.names.is_empty() || self.names.iter().any(|name| name == path.name))
            }
        }
    }
}

/// `*` is every resource with its subresources, `*/SUB` is the subresource of every resource.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if subresource.is_empty() {
        return pattern == resource;
    }
    let rest = |prefix: &str| pattern.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
    rest(resource) == Some(subresource) || rest("*") == Some(subresource)
}

/// Text of a rule in messages.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = ["APIGroups", "Resources", "NonResourceURLs", "ResourceNames", "Verbs"];
        let full = self.lists().into_iter().zip(titles).filter(|((_, words), _)| !words.is_empty());
        let shown: Vec<String> = full.map(|((_, words), title)| format!("{title}:{}", quoted(words.iter()))).collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// A list of words as Go's `%q` shows it.
pub(crate) fn quoted(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("{:?}", word.as_ref())).collect();
    format!("[{}]", words.join(" "))
}
