//! Documents about what is served (discovery, OpenAPI), made once and kept while they are asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use ring::digest::{SHA256, digest};

use crate::resource::Resource;

/// How long an unused document is kept: all of them take some megabytes.
const REST: Duration = Duration::from_secs(300);

/// A document with its content type.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) content_type: &'static str,
    pub(crate) bytes: Bytes,
    /// Digest of the bytes, as in Kubernetes (apiserver pkg/endpoints/discovery/aggregated/etag.go).
    pub(crate) etag: HeaderValue,
}

impl Document {
    pub(crate) fn new(content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let digest: String = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let etag = HeaderValue::from_str(&format!("\"{digest}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { content_type, bytes, etag }
    }
}

/// The documents that are kept.
#[derive(Default)]
pub(crate) struct Documents(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// What they are about.
    resources: Vec<Arc<Resource>>,
    /// Documents by path and form, with the time of their last use.
    documents: HashMap<String, (Document, Instant)>,
}

impl Kept {
    /// Forgets documents about other resources than these.
    fn about(&mut self, resources: &[Arc<Resource>]) {
        let same = self.resources.len() == resources.len()
            && self.resources.iter().zip(resources).all(|(one, other)| Arc::ptr_eq(one, other));
        if !same {
            *self = Self { resources: resources.to_vec(), documents: HashMap::new() };
        }
    }
}

impl Documents {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The document of this name about these resources, if it is kept.
    pub(crate) fn find(&self, resources: &[Arc<Resource>], name: &str) -> Option<Document> {
        let mut kept = self.kept();
        kept.about(resources);
        let (document, asked) = kept.documents.get_mut(name)?;
        *asked = Instant::now();
        Some(document.clone())
    }

    /// Keeps a document that was made of these resources.
    pub(crate) fn keep(&self, resources: &[Arc<Resource>], name: String, document: &Document) {
        let mut kept = self.kept();
        kept.about(resources);
        kept.documents.insert(name, (document.clone(), Instant::now()));
    }

    /// Drops documents without a recent use.
    pub(crate) fn tidy(&self) {
        let mut kept = self.kept();
        kept.documents.retain(|_, (_, asked)| asked.elapsed() < REST);
        if kept.documents.is_empty() {
            *kept = Kept::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_found_for_the_same_resources() {
        let (all, documents) = (crate::kinds::resources(), Documents::default());
        let has = |resources: &[Arc<Resource>]| documents.find(resources, "/apis").is_some();
        let document = Document::new("application/json", vec![b'x'; all.len()]);
        assert!(document.bytes.len() == all.len() && document.etag.len() == 66);
        assert!(!has(&all));
        documents.keep(&all, "/apis".to_owned(), &document);
        assert!(has(&all) && documents.find(&all, "/api").is_none());
        assert!(!has(&all[1..]) && !has(&all), "a definition went, and came again");
    }
}
