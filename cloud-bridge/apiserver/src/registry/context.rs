//! One request on one resource, as the verbs get it.

use std::sync::{Arc, MutexGuard};

use jiff::Timestamp;
use serde_json::Value;

use super::draft::Aside;
use super::managed_fields::writer::{MANAGER_MAX, Writer};
use crate::admission::attributes::Attributes;
use crate::auth::attributes as auth;
use crate::auth::request_info::{Query, ResourcePath};
use crate::patch::budget::Budget;
use crate::resource::Resource;
use crate::resource::cel::Asked;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::storage::{Store, Stored};
use apimachinery::field::FieldError;
use apimachinery::flow::Flow;
use apimachinery::key::ObjectKey;
use apimachinery::user::UserInfo;

/// One request on one resource.
pub(crate) struct Context<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub user: &'a UserInfo,
    /// The client whose share of turns the request uses.
    pub(crate) flow: &'a Flow,
    pub resource: Arc<Resource>,
    pub path: &'a ResourcePath,
    pub query: &'a Query,
    /// `create`, `update`, `patch`…
    pub verb: String,
    pub now: Timestamp,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// The writer, for managedFields.
    pub(crate) writer: Writer,
    /// Error of strict parsing of the body.
    pub(crate) strict: Option<String>,
    /// Questions about validation rules.
    pub(crate) cel: Asked,
    /// Work on other threads.
    pub(crate) aside: Aside,
    /// This is worked out beside the thread: whatever can be known beforehand is.
    pub(crate) foresees: bool,
    /// A pod was refused that has its account in a moment.
    pub(crate) awaits_account: bool,
}

impl Context<'_> {
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.inner.store()
    }

    /// Attributes of the request for admission.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes { inner: self.inner, user: self.user, resource: Arc::clone(&self.resource), path: self.path }
    }

    /// A change of a missing object creates it, which needs another right (K8s apiserver endpoints/handlers/update.go
    /// `withAuthorization`).
    pub(crate) fn may_create(&self) -> ApiResult<()> {
        let path = self.path.clone();
        let create = auth::Attributes { verb: "create".to_owned(), path, selected_node: None, url: None };
        self.inner.authorizer.authorize(self.user, &create)
    }

    /// Looks its resource up again: the definition may have been changed or deleted while the request waited.
    pub(crate) fn look_up(&mut self) -> ApiResult<()> {
        let path = self.path;
        let found = self.inner.registry.find(&path.group, &path.version, &path.resource);
        self.resource = found.ok_or_else(ApiError::no_resource)?;
        Ok(())
    }

    /// The key that the path names.
    pub(crate) fn key(&self) -> ObjectKey {
        self.key_of(&self.path.name)
    }

    /// The key of another name in the path's namespace.
    pub(crate) fn key_of(&self, name: &str) -> ObjectKey {
        let namespace = if self.resource.namespaced { self.path.namespace.clone() } else { String::new() };
        ObjectKey { namespace, name: name.to_owned() }
    }

    /// True when `dryRun=All`. Checks the options that all writes have.
    pub(crate) fn dry_run(&self) -> ApiResult<bool> {
        let kind = match self.verb.as_str() {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            _ => "PatchOptions",
        };
        let manager = self.query.text("fieldManager");
        let error = if manager.len() > MANAGER_MAX {
            Some(FieldError::too_long("fieldManager", MANAGER_MAX))
        } else if manager.chars().any(char::is_control) {
            Some(FieldError::invalid("fieldManager", &manager.into(), "must not contain control characters"))
        } else {
            None
        };
        if let Some(error) = error {
            return Err(ApiError::options(kind, &error));
        }
        let dry = dry_run(self.query.all("dryRun"), kind)?;
        field_validation(self.query.text("fieldValidation"), kind)?;
        Ok(dry)
    }

    /// Memory for the field sets of the object.
    pub(crate) fn field_budget(&self) -> Budget {
        if self.resource.is_of_tenants() { Budget::of_tenant() } else { Budget::default() }
    }

    /// Memory for what differs between two states of the object.
    pub(crate) fn change_budget(&self) -> Budget {
        if self.resource.is_of_tenants() { Budget::of_tenant_change() } else { Budget::default() }
    }

    /// The stored object that the path names.
    pub(crate) fn current(&self, store: &Store) -> ApiResult<Arc<Stored>> {
        store
            .get(&self.resource.storage, &self.key())?
            .ok_or_else(|| ApiError::not_found(&self.resource, &self.path.name))
    }

    /// Fills in the namespace of the path, or refuses another one.
    pub(crate) fn match_namespace(&self, value: &mut Value) -> ApiResult<()> {
        let expected = if self.resource.namespaced { self.path.namespace.as_str() } else { "" };
        let found = value["metadata"]["namespace"].as_str().unwrap_or_default();
        if found == expected {
            return Ok(());
        }
        if found.is_empty() {
            apimachinery::meta::set(value, "namespace", expected.into());
            return Ok(());
        }
        Err(ApiError::bad_request(if expected.is_empty() {
            "namespace not allowed on cluster-scoped object".to_owned()
        } else {
            "the namespace of the provided object does not match the namespace sent on the request".to_owned()
        }))
    }
}

/// Interprets dryRun values.
pub(crate) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, kind: &str) -> ApiResult<bool> {
    let mut dry = false;
    for value in values {
        match value {
            "" => {}
            "All" => dry = true,
            other => {
                let error = FieldError::not_supported_text("dryRun", &format!("[{other:?}]"), &["All"]);
                return Err(ApiError::options(kind, &error));
            }
        }
    }
    Ok(dry)
}

/// Refuses an unknown way of field validation (apimachinery pkg/apis/meta/v1/validation `ValidateFieldValidation`).
fn field_validation(asked: &str, kind: &str) -> ApiResult<()> {
    const KNOWN: [&str; 4] = ["", "Ignore", "Strict", "Warn"];
    if KNOWN.contains(&asked) {
        return Ok(());
    }
    Err(ApiError::options(kind, &FieldError::not_supported("fieldValidation", &asked.into(), &KNOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_field_validation_is_refused() {
        for known in ["", "Ignore", "Strict", "Warn"] {
            assert_eq!(field_validation(known, "CreateOptions"), Ok(()));
        }
        let refused = field_validation("strict", "PatchOptions").unwrap_err();
        let why = "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": \
            supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
        assert_eq!((refused.code, refused.message.as_str()), (422, why));
    }
}
