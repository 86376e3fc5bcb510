//! The name of a writer in managedFields.

use super::entries::{Operation, Owner};
use crate::resource::Resource;

/// How long the name of a manager may be, in bytes.
pub(crate) const MANAGER_MAX: usize = 128;

/// The writer, as managedFields name it.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    manager: String,
    subresource: String,
}

impl Writer {
    /// The writer of a request: its `fieldManager`, or the first word of its `User-Agent`.
    pub(crate) fn new(field_manager: &str, user_agent: &str, subresource: &str) -> Self {
        let named = if field_manager.is_empty() { first_word(user_agent) } else { field_manager.to_owned() };
        let manager = if named.is_empty() { "unknown".to_owned() } else { named };
        Self { manager, subresource: subresource.to_owned() }
    }

    pub(crate) fn manager(&self) -> &str {
        &self.manager
    }

    /// The owner that this writer is in one version of a kind.
    pub(crate) fn owner(&self, operation: Operation, resource: &Resource) -> Owner {
        Owner {
            manager: self.manager.clone(),
            operation,
            api_version: resource.api_version(),
            subresource: self.subresource.clone(),
        }
    }
}

/// The name of a client without its version (apiserver pkg/endpoints/handlers/create.go, `prefixFromUserAgent`).
fn first_word(user_agent: &str) -> String {
    let mut word = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if word.len() + c.len_utf8() > MANAGER_MAX {
            break;
        }
        word.push(c);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_name_managers() {
        let manager = |field: &str, agent: &str| Writer::new(field, agent, "").manager;
        assert_eq!(manager("", "kubectl/v1.36.0 (linux/amd64) kubernetes/abc"), "kubectl");
        assert_eq!(manager("mine", "kubectl/v1.36.0"), "mine");
        assert_eq!(manager("", ""), "unknown");
        assert_eq!(manager("", "a\tb\u{7}c/1"), "abc");
        assert_eq!(manager("", &"é".repeat(100)), "é".repeat(64));
    }
}
