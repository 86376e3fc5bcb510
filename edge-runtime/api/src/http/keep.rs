//! A copy of an answer for the cache, and lists that are read again while a watch of them stands.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::channel::{STATUS, STDOUT};
use edge_protocol::message::{ApiAnswer, ApiRequest};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use super::head::head;
use crate::asked::{Asked, list_of};
use crate::cache::{Tee, may_keep};
use crate::pods::Digest;
use crate::shared::{Shared, now_ms};

/// Until a list is read again: events of its watch do not change what is kept.
const AGAIN: Duration = Duration::from_secs(30 * 60);

/// An answer that is copied.
pub(super) struct Keeping {
    shared: Rc<Shared>,
    account: String,
    key: Digest,
    is_secret: bool,
    tee: Tee,
}

impl Keeping {
    /// `None`: the answer may not be kept. One that says the pod may not read takes with it what was kept. 410 does not say
    /// so: a page or a resourceVersion is too old.
    pub(super) fn new(shared: &Rc<Shared>, account: &str, asked: &Asked, answer: &ApiAnswer) -> Option<Self> {
        let key = asked.key(account);
        let mut cache = shared.cache.borrow_mut();
        if asked.is_kept && matches!(answer.status, 401 | 403 | 404) {
            cache.forget(&key, account);
        }
        (cache.is_on() && may_keep(asked, answer.status, &answer.headers)).then(|| Self {
            shared: Rc::clone(shared),
            account: account.to_owned(),
            key,
            is_secret: asked.is_secret,
            tee: Tee::new(asked, &answer.headers, shared.copies.clone()),
        })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.tee.push(bytes);
    }

    /// The answer has all come.
    pub(super) fn complete(self) {
        let Self { shared, account, key, is_secret, tee } = self;
        let Some(page) = tee.complete() else { return };
        let now = (shared.now(), now_ms());
        shared.cache.borrow_mut().put(key, &account, page, is_secret, now);
        shared.write_later();
    }
}

/// Reads the list of a watch again, until it is dropped.
pub(super) struct Again(AbortHandle);

impl Again {
    pub(super) fn start(shared: &Rc<Shared>, account: &str, watch: &ApiRequest) -> Self {
        Self(spawn_local(again(Rc::clone(shared), account.to_owned(), list_of(watch))).abort_handle())
    }
}

async fn again(shared: Rc<Shared>, account: String, list: ApiRequest) {
    let asked = Asked::of(&list);
    loop {
        sleep(AGAIN).await;
        let is_read = shared.cache.borrow().has(&asked.key(&account));
        if is_read {
            // Without an answer the next one is as good.
            let _ = read(&shared, &account, &list, &asked).await;
        }
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn read(shared: &Rc<Shared>, account: &str, list: &ApiRequest, asked: &Asked) -> Option<()> {
    let stream = shared.relay().await?.open(list, false)?;
    let answer = head(&stream).await.ok()?;
    // The watch may have begun with a token that has expired since. That says nothing about the account.
    if answer.status == 401 {
        return None;
    }
    let mut keeping = Keeping::new(shared, account, asked, &answer)?;
    loop {
        let record = poll_fn(|context| stream.poll_record(context)).await.ok()?;
        match record.channel {
            STDOUT => keeping.push(&record.data),
            STATUS if record.data.is_empty() => {
                keeping.complete();
                return Some(());
            }
            STATUS => return None,
            _ => {}
        }
        if keeping.tee.is_off() {
            return None;
        }
    }
}
