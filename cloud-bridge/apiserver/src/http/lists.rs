//! Sending of lists: small ones as a whole, others page by page as the client reads them. For a slow client, only one
//! page of any list waits.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::json;
use tokio::task::yield_now;

use super::body::BodyError;
use super::output::{END, Form, list_head, list_item};
use crate::registry::answer::{Large, Listed};
use crate::resource::Resource;
use crate::state::Inner;
use crate::storage::{Most, Page, Stored};
use apimachinery::flow::Flow;
use apimachinery::key::ObjectKey;

/// What one page reads.
const PAGE: Most = Most { items: usize::MAX, bytes: 64 << 10 };

/// Encodes a complete list.
pub(super) fn whole(resource: &Resource, form: Form, listed: &Listed, now: Timestamp) -> Bytes {
    let mut metadata = json!({ "resourceVersion": listed.rev.to_string() });
    if let Some(next) = &listed.next {
        metadata.set("continue", next.as_str().into());
    }
    if let Some(remaining) = listed.remaining {
        metadata.set("remainingItemCount", remaining.into());
    }
    let mut out = list_head(resource, form, &metadata);
    add(&mut out, &mut true, resource, form, &listed.items, now);
    out.extend_from_slice(END);
    out.into()
}

fn add(out: &mut Vec<u8>, first: &mut bool, resource: &Resource, form: Form, items: &[Arc<Stored>], now: Timestamp) {
    for item in items {
        if !std::mem::replace(first, false) {
            out.push(b',');
        }
        out.extend_from_slice(&list_item(resource, form, item, now));
    }
}

/// A list that is read while it is sent.
pub(super) struct Pages {
    pub(super) inner: Arc<Inner>,
    pub(super) resource: Arc<Resource>,
    pub(super) large: Large,
    pub(super) form: Form,
    pub(super) flow: Flow,
    pub(super) now: Timestamp,
}

impl Pages {
    pub(super) fn stream(self) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
        let begin = Place { after: self.large.after.clone(), begun: false, first: true };
        futures::stream::unfold((self, Some(begin)), |(pages, place)| async move {
            match pages.next(place?).await {
                Ok((part, place)) => Some((Ok(part), (pages, place))),
                Err(error) => Some((Err(error), (pages, None))),
            }
        })
    }

    /// The next part, and where the one after it begins. It does not await between making a part and charging it to the
    /// client: in between the bytes would be counted for no client.
    async fn next(&self, mut place: Place) -> Result<(Bytes, Option<Place>), BodyError> {
        loop {
            // A selection may pass over many pages; the thread has other work.
            yield_now().await;
            let _step = self.inner.limits.steps.next(&self.flow).await;
            let page = self.page(place.after.as_ref())?;
            let mut out = Vec::new();
            if !std::mem::replace(&mut place.begun, true) {
                let metadata = json!({ "resourceVersion": self.large.rev.to_string() });
                out = list_head(&self.resource, self.form, &metadata);
            }
            add(&mut out, &mut place.first, &self.resource, self.form, &page.items, self.now);
            place.after = page.next;
            if place.after.is_none() {
                out.extend_from_slice(END);
                return Ok((out.into(), None));
            }
            if !out.is_empty() {
                return Ok((out.into(), Some(place)));
            }
        }
    }

    fn page(&self, after: Option<&ObjectKey>) -> Result<Page, BodyError> {
        let Large { selection, rev, .. } = &self.large;
        let store = self.inner.store();
        let forgotten = |_| BodyError("the list took longer than its past is kept; ask for it with a limit".to_owned());
        store.knows(&self.resource.storage, *rev).map_err(forgotten)?;
        let page = selection.page(&store, *rev, after, PAGE);
        page.map_err(|error| BodyError(error.to_string()))
    }
}

/// How far a list has been sent.
struct Place {
    after: Option<ObjectKey>,
    /// Whether the part before the items is sent.
    begun: bool,
    /// No item is sent.
    first: bool,
}
