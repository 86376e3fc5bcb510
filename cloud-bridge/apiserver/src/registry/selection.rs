//! Selection of objects by namespace, labels and fields.

use std::sync::Arc;

use super::context::Context;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Most, Page, Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::selector::{FieldSelector, LabelSelector};

/// Selection of a list or watch.
pub(crate) struct Selection {
    pub namespace: Option<String>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    resource: Arc<Resource>,
}

impl Selection {
    /// Reads the selectors of a query.
    ///
    /// # Errors
    /// 400 for a selector that cannot be parsed or a field label that the kind does not support.
    pub(crate) fn new(ctx: &Context<'_>) -> ApiResult<Self> {
        let resource = Arc::clone(&ctx.resource);
        let labels = LabelSelector::parse(ctx.query.text("labelSelector"))
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}",)))?;
        let fields = FieldSelector::parse(ctx.query.text("fieldSelector")).map_err(ApiError::bad_request)?;
        if let Some(field) =
            fields.unsupported(resource.namespaced, |object, label| resource.strategy().field(object, label))
        {
            return Err(ApiError::bad_request(if resource.strategy().has_field_labels() {
                format!("field label not supported: {field}")
            } else {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }));
        }
        let namespaced = resource.namespaced && !ctx.path.namespace.is_empty();
        let namespace = namespaced.then(|| ctx.path.namespace.clone());
        Ok(Self { namespace, labels, fields, resource })
    }

    /// True when everything in the namespace is selected.
    pub(crate) fn all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, stored: &Stored) -> bool {
        if self.namespace.as_ref().is_some_and(|ns| *ns != stored.key.namespace) {
            return false;
        }
        if !self.fields.may_match(&stored.body) || !self.labels.is_empty() && !self.labels.matches(stored.head()) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let object = if self.fields.is_of_metadata() { stored.head() } else { stored.value() };
        self.fields.matches(object, |object, label| self.resource.strategy().field(object, label))
    }

    /// The only object that can be selected, if the selector names one: a node's watch of one ConfigMap must not
    /// read them all.
    pub(crate) fn only(&self) -> Option<ObjectKey> {
        let name = self.fields.name()?.to_owned();
        let namespace = if self.resource.namespaced { self.namespace.clone()? } else { String::new() };
        Some(ObjectKey { namespace, name })
    }

    /// The first selected objects after `after`, as they were at `rev`, which the storage knows.
    pub(crate) fn page(
        &self,
        store: &Store,
        rev: u64,
        after: Option<&ObjectKey>,
        most: Most,
    ) -> Result<Page, StoreError> {
        let storage = self.resource.storage.as_ref();
        match self.only() {
            Some(key) => {
                let found = if after.is_none() { store.at(storage, &key, rev)? } else { None };
                Ok(Page { items: found.filter(|stored| self.matches(stored)).into_iter().collect(), next: None })
            }
            None => store.list_at(storage, self.namespace.as_deref(), rev, after, most, &|stored| self.matches(stored)),
        }
    }
}
