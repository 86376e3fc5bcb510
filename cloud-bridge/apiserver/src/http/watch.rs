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
use super::output::{self, Form};
use crate::registry::Context;
use crate::registry::list::{Selection, resource_version};
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use crate::storage::{Change, ChangeKind, Held, Interest, LEASES, Stored, Subscription, Told, View};
use apimachinery::field::FieldError;
use apimachinery::flow::Flow;
use apimachinery::key::ObjectKey;

/// What is read of the past at a time, in objects: a watch may begin at the oldest revision of which anything is known, and
/// there may be many of these.
const PAGE: usize = 16;
/// What one answer of the stream gathers at most.
const CHUNK: usize = 64 * 1024;
/// No watch lasts longer, whatever its client asks for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// The end of a watch whose client names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// How one change looks to a watch with this selection.
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

/// What is to be read and shown before what comes through the queue.
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
    form: Form,
    queue: Subscription,
    pending: Vec<u8>,
    columns_sent: bool,
    past: Option<Past>,
    /// Changes up to this revision do not come through the queue, or are not taken from there.
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
pub(crate) fn open(
    ctx: &Context<'_>,
    inner: &Arc<Inner>,
    form: Form,
    flow: &Flow,
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
    let (answers, flow) = (Arc::clone(&inner.limits.answers), flow.clone());
    let interest = Interest {
        namespace: selection.namespace.clone(),
        filter: Box::new(move |change| seen(&filter, change)),
        // What waits for a client that does not read is its own.
        charge: Box::new(move |bytes| answers.take(&flow, bytes).map(|share| Arc::new(share) as Held)),
    };
    let queue = store.subscribe(&ctx.resource.storage, interest);
    let end = Instant::now() + options.timeout.min(LONGEST_TIMEOUT);
    let mut watch = Watch {
        inner: Arc::clone(inner),
        resource: Arc::clone(&ctx.resource),
        selection,
        form,
        queue,
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
        if watch.selection.only().is_some() {
            for stored in watch.selection.now(&store)? {
                watch.push("ADDED", &stored);
            }
            watch.end_objects(mark);
        } else {
            watch.past = Some(Past::Objects { after: None, mark });
        }
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
        // Renewals of Leases are on no disk, and wait for none.
        if *self.resource.storage != *LEASES {
            self.written = told.rev;
        }
    }

    /// The watch ends with this as its last event.
    fn fail(&mut self, error: &ApiError) {
        self.pending.extend(output::error(error));
        (self.past, self.ended) = (None, true);
    }

    /// Shows the next page of the past. What has been forgotten meanwhile ends the watch.
    fn catch_up(&mut self) {
        let Some(past) = self.past.take() else { return };
        let page = match past {
            Past::Objects { after, mark } => self.objects(after, mark),
            Past::Changes(rev) => self.changes(rev),
        };
        if let Err(error) = page {
            self.fail(&error);
        }
    }

    fn objects(&mut self, after: Option<ObjectKey>, mark: bool) -> ApiResult<()> {
        let (inner, selection, resource) =
            (Arc::clone(&self.inner), Arc::clone(&self.selection), Arc::clone(&self.resource));
        let storage = &resource.storage;
        // Small, in memory, and each page would cost all of them.
        let most = if **storage == *LEASES { usize::MAX } else { PAGE };
        let page = {
            let store = inner.store();
            store.knows(storage, self.rev).map_err(|e| too_old(self.rev, e.oldest))?;
            let matches = |stored: &Stored| selection.matches(stored);
            store.list_at(storage, selection.namespace.as_deref(), self.rev, after.as_ref(), Some(most), &matches)?
        };
        for stored in &page {
            self.push("ADDED", stored);
        }
        match page.last().filter(|_| page.len() == most) {
            Some(last) => self.past = Some(Past::Objects { after: Some(last.key.clone()), mark }),
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
            store.since(storage, self.selection.namespace.as_deref(), (rev, self.rev), PAGE)?
        };
        for change in changes {
            if let Some(view) = seen(&self.selection, &change) {
                self.show(&change.told(view));
            }
        }
        self.past = next.map(Past::Changes);
        Ok(())
    }

    /// The next bytes, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            while self.pending.len() < CHUNK && self.past.is_some() {
                self.catch_up();
            }
            while self.pending.len() < CHUNK && !self.ended {
                match self.queue.try_recv() {
                    Ok(told) if told.rev > self.rev => self.show(&told),
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
                told = self.queue.recv() => match told {
                    Some(told) if told.rev > self.rev => self.show(&told),
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
        while let Ok(told) = self.queue.try_recv() {
            if told.rev > self.rev {
                self.show(&told);
            }
        }
        self.pending.extend(output::bookmark(&self.resource, self.form, store.revision(), false));
        self.written = store.written();
    }
}
