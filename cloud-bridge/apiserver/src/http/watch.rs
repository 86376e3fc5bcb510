//! Watches: where they start, which changes they show, bookmarks and their end. Changes come from the storage
//! at the moment of the write.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Response;
use http::request::Parts;
use jiff::Timestamp;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::Instant;

use super::body::{self, ApiBody, BodyError};
use super::connect;
use super::output::{self, Form};
use crate::auth::Attributes;
use crate::registry::context::Context;
use crate::registry::list::resource_version;
use crate::registry::selection::Selection;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::storage::{Change, ChangeKind, Held, Interest, LEASES, Most, Page, Stored, Subscription, Told, View};
use apimachinery::field::FieldError;
use apimachinery::flow::Flow;
use apimachinery::key::ObjectKey;
use apimachinery::shares::Share;
use kubelet_api::streaming;

/// What one part of the stream gathers, about: there may be many watches, and what each holds is its client's.
const CHUNK: usize = 32 << 10;
/// Maximum read of the history at a time. A watch may start at the oldest known revision.
const OBJECTS: Most = Most { items: usize::MAX, bytes: CHUNK };
/// A change brings the state after it along, of which nothing is known before it is read.
const CHANGES: Most = Most { items: 8, bytes: CHUNK };
/// Memory for each byte of the text of a selector: `a,` is a requirement.
const SELECTOR_COST: usize = 36;
/// Bytes of the selectors of a watch that are not counted.
const SMALL_SELECTOR: usize = 512;
/// No watch lasts longer, whatever its client asks for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// The end of a watch whose client names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// A change as a watch with this selection sees it.
fn seen(selection: &Selection, change: &Change) -> Option<View> {
    let is = selection.matches(&change.object);
    let was = change.before.as_ref().is_some_and(|before| selection.matches(before));
    match (change.kind, was, is) {
        (ChangeKind::Deleted, true, _) => Some(View::Deleted),
        (ChangeKind::Deleted, false, _) | (_, false, false) => None,
        (_, false, true) => Some(View::Added),
        (_, true, true) => Some(View::Modified),
        (_, true, false) => Some(View::Left),
    }
}

/// Events to read and send before those from the queue.
enum Past {
    /// The objects as they were at the watch's revision, after this one. The end is marked by a bookmark or not.
    Objects { after: Option<ObjectKey>, mark: bool },
    /// The changes after this revision.
    Changes(u64),
}

struct Watch {
    inner: Arc<Inner>,
    resource: Arc<Resource>,
    selection: Arc<Selection>,
    /// Memory of its selectors, which is its client's.
    _selectors: Share,
    form: Form,
    flow: Flow,
    queue: Subscription,
    /// A change from the queue that is not on the disk yet.
    next: Option<Told>,
    pending: Vec<u8>,
    columns_sent: bool,
    past: Option<Past>,
    /// Changes up to this revision are not read from the queue.
    rev: u64,
    /// The past may be shown when this revision is on the disk.
    written: u64,
    end: Instant,
    bookmark: Option<Duration>,
    ended: bool,
}

/// Opens a watch.
///
/// # Errors
/// Wrong selectors or options. A revision that is too old is an ERROR event of the stream, as the API server
/// sends it.
pub(crate) fn open(
    ctx: &Context<'_>,
    inner: &Arc<Inner>,
    form: Form,
    flow: &Flow,
) -> ApiResult<impl Stream<Item = Result<Bytes, BodyError>> + Send + use<>> {
    let options = Options::read(ctx)?;
    let selection = Arc::new(Selection::new(ctx)?);
    let text = ctx.query.text("labelSelector").len() + ctx.query.text("fieldSelector").len();
    let weight = text.saturating_sub(SMALL_SELECTOR).saturating_mul(SELECTOR_COST);
    let selectors = inner.limits.answers.take(flow, weight).ok_or_else(ApiError::busy)?;
    let asked = resource_version(ctx.query)?;
    let mut store = inner.store();
    let now = store.revision();
    if options.initial == Some(true)
        && let Some(asked) = asked
        && asked > now
    {
        return Err(ApiError::version_too_large(asked, now));
    }
    let filter = Arc::clone(&selection);
    let (answers, of) = (Arc::clone(&inner.limits.answers), flow.clone());
    let interest = Interest {
        namespace: selection.namespace.clone(),
        filter: Box::new(move |change| seen(&filter, change)),
        // What waits for a client that does not read is its own.
        charge: Box::new(move |bytes| answers.take(&of, bytes).map(|share| Arc::new(share) as Held)),
    };
    let queue = store.subscribe(&ctx.resource.storage, interest);
    let end = Instant::now() + options.timeout.min(LONGEST_TIMEOUT);
    let mut watch = Watch {
        inner: Arc::clone(inner),
        resource: Arc::clone(&ctx.resource),
        selection,
        _selectors: selectors,
        form,
        flow: flow.clone(),
        queue,
        next: None,
        pending: Vec::new(),
        columns_sent: false,
        past: None,
        rev: now,
        written: store.written(),
        end,
        bookmark: options.bookmarks.then_some(inner.config.bookmark_interval),
        ended: false,
    };
    let state = match (options.initial, asked) {
        (Some(initial), _) => initial,
        (None, asked) => asked.is_none(),
    };
    if state {
        let mark = options.initial == Some(true) && options.bookmarks;
        watch.past = Some(Past::Objects { after: None, mark });
    } else if let Some(asked) = asked {
        // A revision of the future is one of another life of this server: the client must list again.
        let known =
            if asked > now { Err(now) } else { store.knows(&ctx.resource.storage, asked).map_err(|e| e.oldest) };
        match known {
            Ok(()) => watch.past = Some(Past::Changes(asked)),
            Err(oldest) => watch.fail(&too_old(asked, oldest)),
        }
    }
    drop(store);
    Ok(futures::stream::unfold(watch, |mut watch| async move { watch.next().await.map(|bytes| (Ok(bytes), watch)) }))
}

/// Answers 101 and sends a watch as messages. Both its place and the bytes that are under way are counted until they are
/// sent, as those of a body are.
pub(crate) fn over_socket(
    inner: &Inner,
    stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    parts: &Parts,
    (flow, attributes): (&Flow, &Attributes),
) -> ApiResult<Response<ApiBody>> {
    let place = inner.limits.enter(flow, attributes).ok_or_else(ApiError::busy)?;
    let (answers, flow) = (Arc::clone(&inner.limits.answers), flow.clone());
    let lines = stream.scan((), move |(), part| {
        let counted = |part: Bytes| Some(body::held(part.clone(), answers.take(&flow, part.len())?));
        std::future::ready(part.ok().and_then(counted))
    });
    let answer = streaming::events(lines, parts, place).map_err(connect::refusal)?;
    Ok(answer.map(|()| ApiBody::full(Bytes::new())))
}

fn too_old(asked: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}

struct Options {
    initial: Option<bool>,
    bookmarks: bool,
    timeout: Duration,
}

impl Options {
    fn read(ctx: &Context<'_>) -> ApiResult<Self> {
        let query = ctx.query;
        let invalid =
            |field: &str, text: &str| Err(ApiError::options("ListOptions", &FieldError::forbidden(field, text)));
        let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
        let matching = query.text("resourceVersionMatch");
        if initial.is_some() && matching != "NotOlderThan" {
            return invalid(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if !matching.is_empty() && initial.is_none() {
            return invalid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        let seconds = query
            .number("timeoutSeconds")
            .map_err(|text| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
        let timeout =
            seconds.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        Ok(Self { initial, bookmarks: query.flag("allowWatchBookmarks"), timeout })
    }
}

impl Watch {
    fn push(&mut self, kind: &str, object: &Arc<Stored>) {
        let line = output::event(&self.resource, self.form, kind, object, Timestamp::now(), !self.columns_sent);
        self.columns_sent = true;
        self.pending.extend(line);
    }

    fn show(&mut self, told: &Told) {
        let kind = match told.view {
            View::Added => "ADDED",
            View::Modified => "MODIFIED",
            View::Deleted | View::Left => "DELETED",
        };
        self.push(kind, &told.object);
    }

    /// The watch ends with this as its last event.
    fn fail(&mut self, error: &ApiError) {
        self.pending.extend(output::error(error));
        (self.past, self.ended) = (None, true);
    }

    /// Sends the next page of the history. If it was deleted meanwhile, the watch ends.
    fn catch_up(&mut self) {
        let Some(past) = self.past.take() else { return };
        let page = self.room(CHUNK).and_then(|()| match past {
            Past::Objects { after, mark } => self.objects(after, mark),
            Past::Changes(rev) => self.changes(rev),
        });
        if let Err(error) = page {
            self.fail(&error);
        }
    }

    /// Whether this number of bytes may be added to those that the client must still read. Checked before reading and
    /// encoding, which is most of the work; the encoded bytes are counted afterwards.
    fn room(&self, bytes: usize) -> ApiResult<()> {
        if self.inner.limits.answers.has(&self.flow, bytes) { Ok(()) } else { Err(ApiError::busy()) }
    }

    fn objects(&mut self, after: Option<ObjectKey>, mark: bool) -> ApiResult<()> {
        let (inner, selection, resource) =
            (Arc::clone(&self.inner), Arc::clone(&self.selection), Arc::clone(&self.resource));
        let Page { items, next } = {
            let store = inner.store();
            store.knows(&resource.storage, self.rev).map_err(|e| too_old(self.rev, e.oldest))?;
            selection.page(&store, self.rev, after.as_ref(), OBJECTS)?
        };
        self.room(items.iter().map(|stored| stored.body.len()).sum())?;
        for stored in &items {
            self.push("ADDED", stored);
        }
        match next {
            Some(last) => self.past = Some(Past::Objects { after: Some(last), mark }),
            None => self.end_objects(mark),
        }
        Ok(())
    }

    fn end_objects(&mut self, mark: bool) {
        if mark {
            self.pending.extend(output::bookmark(&self.resource, self.form, self.rev, true));
        }
    }

    fn changes(&mut self, rev: u64) -> ApiResult<()> {
        let inner = Arc::clone(&self.inner);
        let (changes, next) = {
            let store = inner.store();
            let storage = &self.resource.storage;
            store.knows(storage, rev).map_err(|e| too_old(rev, e.oldest))?;
            store.since(storage, self.selection.namespace.as_deref(), (rev, self.rev), CHANGES)?
        };
        self.past = next.map(Past::Changes);
        let shown = changes.iter().filter(|change| seen(&self.selection, change).is_some());
        self.room(shown.map(|change| change.object.body.len()).sum())?;
        for change in changes {
            if self.pending.len() >= CHUNK {
                self.past = Some(Past::Changes(change.rev - 1));
                break;
            }
            if let Some(view) = seen(&self.selection, &change) {
                self.show(&change.told(view));
            }
        }
        Ok(())
    }

    /// The next bytes, or the end. It does not await between making bytes and charging them to the client: in between
    /// they would be counted for no client.
    async fn next(&mut self) -> Option<Bytes> {
        while self.pending.is_empty() && !self.ended {
            if self.past.is_some() {
                // A change that a power cut reverts would have no later event that corrects it.
                self.inner.durable.reached(self.written).await.ok()?;
                let _step = self.inner.limits.steps.next(&self.flow).await;
                self.catch_up();
            } else {
                self.follow().await?;
            }
        }
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending).into())
    }

    /// Waits for the next change or timeout, and sends it. `None` if the disk has failed.
    async fn follow(&mut self) -> Option<()> {
        let bookmark = self.bookmark;
        let told = match self.next.take() {
            Some(told) => Some(told),
            None => tokio::select! {
                told = self.queue.recv() => told,
                () = tokio::time::sleep_until(self.end) => None,
                () = tokio::time::sleep(bookmark.unwrap_or_default()), if bookmark.is_some() => return self.bookmark().await,
            },
        };
        match told {
            Some(told) => {
                if self.waits(&told) {
                    self.inner.durable.reached(told.rev).await.ok()?;
                }
                self.take(&told);
                self.gather();
            }
            // Its time is over; or it was cut off: too slow, or the resource itself changed. The client resumes.
            None => self.ended = true,
        }
        Some(())
    }

    /// Sends further changes that are on the disk.
    fn gather(&mut self) {
        while self.pending.len() < CHUNK {
            match self.queue.try_recv() {
                Ok(told) if self.waits(&told) => {
                    self.next = Some(told);
                    return;
                }
                Ok(told) => self.take(&told),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, told: &Told) {
        if told.rev > self.rev {
            self.show(told);
        }
    }

    /// Whether it is not on the disk yet. Renewals of Leases are on no disk, and wait for none.
    fn waits(&self, told: &Told) -> bool {
        *self.resource.storage != *LEASES && !self.inner.durable.has(told.rev)
    }

    /// A bookmark at the newest revision, unless a change has arrived meanwhile: under the lock none can be under way.
    async fn bookmark(&mut self) -> Option<()> {
        let (rev, written) = {
            let store = self.inner.store();
            if let Ok(told) = self.queue.try_recv() {
                self.next = Some(told);
                return Some(());
            }
            (store.revision(), store.written())
        };
        self.inner.durable.reached(written).await.ok()?;
        self.pending.extend(output::bookmark(&self.resource, self.form, rev, false));
        Some(())
    }
}
