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

impl Documents {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The document of this name about these resources, made now if it is not kept.
    pub(crate) fn get(
        &self,
        resources: &[Arc<Resource>],
        name: String,
        make: impl FnOnce() -> Option<Document>,
    ) -> Option<Document> {
        let mut kept = self.kept();
        let same = kept.resources.len() == resources.len()
            && kept.resources.iter().zip(resources).all(|(one, other)| Arc::ptr_eq(one, other));
        if !same {
            *kept = Kept { resources: resources.to_vec(), documents: HashMap::new() };
        }
        if let Some((document, asked)) = kept.documents.get_mut(&name) {
            *asked = Instant::now();
            return Some(document.clone());
        }
        let document = make()?;
        kept.documents.insert(name, (document.clone(), Instant::now()));
        Some(document)
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
    fn document_is_made_once_for_the_same_resources() {
        let (all, documents) = (crate::kinds::resources(), Documents::default());
        let made = |resources: &[Arc<Resource>]| {
            let mut made = 0;
            let document = documents.get(resources, "/apis".to_owned(), || {
                made += 1;
                Some(Document::new("application/json", vec![b'x'; resources.len()]))
            });
            (made, document.unwrap())
        };
        let (first, document) = made(&all);
        assert_eq!((first, made(&all).0, made(&all[1..]).0, made(&all).0), (1, 0, 1, 1));
        assert!(documents.get(&all, "/none".to_owned(), || None).is_none());
        assert!(document.bytes.len() == all.len() && document.etag.len() == 66);
    }
}
