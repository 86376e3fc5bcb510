//! Watches: where they start, which changes they show, bookmarks and their end. Changes come from the storage
//! at the moment of the write.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::Instant;

use super::body::BodyError;
use super::error::{ApiError, ApiResult};
use super::output::{self, Form};
use super::resource::Resource;
use super::rest::Context;
use super::rest::list::{Selection, resource_version};
use super::server::Inner;
use super::storage::{Change, ChangeKind, LEASES, Stored, Subscription};
use super::strategy::FieldError;

/// What one answer of the stream gathers at most.
const CHUNK: usize = 64 * 1024;
/// No watch lasts longer, whatever its client asks for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// The end of a watch whose client names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// How one change looks to a watch with this selection.
fn seen(selection: &Selection, change: &Change) -> Option<(&'static str, Arc<Stored>)> {
    let is = selection.matches(&change.object);
    let was = change.before.as_ref().is_some_and(|before| selection.matches(before));
    let object = || Arc::clone(&change.object);
    match (change.kind, was, is) {
        (ChangeKind::Deleted, true, _) => Some(("DELETED", object())),
        (ChangeKind::Deleted, false, _) | (_, false, false) => None,
        (_, false, true) => Some(("ADDED", object())),
        (_, true, true) => Some(("MODIFIED", object())),
        // It left the selection: its last selected state, at this revision.
        (_, true, false) => change.before.as_ref().map(|before| ("DELETED", before.at(change.rev))),
    }
}

struct Watch {
    inner: Arc<Inner>,
    resource: Arc<Resource>,
    selection: Arc<Selection>,
    form: Form,
    queue: Subscription,
    pending: Vec<u8>,
    columns_sent: bool,
    /// Changes up to this revision are in `pending` already.
    rev: u64,
    /// What is in `pending` may be shown when this revision is on the disk.
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
pub(super) fn open(
    ctx: &Context<'_>,
    inner: &Arc<Inner>,
    form: Form,
) -> ApiResult<impl Stream<Item = Result<Bytes, BodyError>> + Send + use<>> {
    let options = Options::read(ctx)?;
    let selection = Arc::new(Selection::new(ctx)?);
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
    let queue = store.subscribe(
        &ctx.resource.storage,
        Box::new(move |change| {
            filter.matches(&change.object) || change.before.as_ref().is_some_and(|before| filter.matches(before))
        }),
    );
    let end = Instant::now() + options.timeout.min(LONGEST_TIMEOUT);
    let mut watch = Watch {
        inner: Arc::clone(inner),
        resource: Arc::clone(&ctx.resource),
        selection,
        form,
        queue,
        pending: Vec::new(),
        columns_sent: false,
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
        for stored in watch.selection.now(&store)? {
            watch.push("ADDED", &stored);
        }
        if options.initial == Some(true) && options.bookmarks {
            watch.pending.extend(output::bookmark(&watch.resource, form, now, true));
        }
    } else if let Some(asked) = asked {
        // A revision of the future is one of another life of this server: the client must list again.
        let known =
            if asked > now { Err(now) } else { store.knows(&ctx.resource.storage, asked).map_err(|e| e.oldest) };
        match known {
            Ok(()) => {
                for change in store.since(&ctx.resource.storage, watch.selection.namespace.as_deref(), asked)? {
                    watch.show(&change);
                }
            }
            Err(oldest) => {
                let error = ApiError::expired(format!("too old resource version: {asked} ({oldest})"));
                watch.pending.extend(output::error(&error));
                watch.ended = true;
            }
        }
    }
    drop(store);
    Ok(futures::stream::unfold(watch, |mut watch| async move { watch.next().await.map(|bytes| (Ok(bytes), watch)) }))
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

    fn show(&mut self, change: &Change) {
        if let Some((kind, object)) = seen(&self.selection, change) {
            self.push(kind, &object);
            // Renewals of Leases are on no disk, and wait for none.
            if *self.resource.storage != *LEASES {
                self.written = change.rev;
            }
        }
    }

    /// The next bytes, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            while self.pending.len() < CHUNK && !self.ended {
                match self.queue.try_recv() {
                    Ok(change) if change.rev > self.rev => self.show(&change),
                    Ok(_) => {}
                    Err(TryRecvError::Empty) => break,
                    // Cut off: too slow, or the resource itself changed. The client resumes.
                    Err(TryRecvError::Disconnected) => self.ended = true,
                }
            }
            if !self.pending.is_empty() {
                // A change that a power cut takes back has no successor that would tell of it.
                self.inner.durable.reached(self.written).await.ok()?;
                return Some(std::mem::take(&mut self.pending).into());
            }
            if self.ended {
                return None;
            }
            let bookmark = self.bookmark;
            tokio::select! {
                change = self.queue.recv() => match change {
                    Some(change) if change.rev > self.rev => self.show(&change),
                    Some(_) => {}
                    None => self.ended = true,
                },
                () = tokio::time::sleep_until(self.end) => self.ended = true,
                () = tokio::time::sleep(bookmark.unwrap_or_default()), if bookmark.is_some() => self.bookmark(),
            }
        }
    }

    /// A bookmark at the newest revision; under the lock no change can be on its way.
    fn bookmark(&mut self) {
        let inner = Arc::clone(&self.inner);
        let store = inner.store();
        while let Ok(change) = self.queue.try_recv() {
            if change.rev > self.rev {
                self.show(&change);
            }
        }
        self.pending.extend(output::bookmark(&self.resource, self.form, store.revision(), false));
        self.written = store.written();
    }
}
