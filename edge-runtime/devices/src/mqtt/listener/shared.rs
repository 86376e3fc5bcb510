//! State that all connections of the listener share: the hub, the wakers of connections, and the channel to the node.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use sampan_sys::vec_map::VecMap;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::news::News;
use super::hub::{Hub, Token};
use super::login::Logins;

/// Maximum number of connections without a CONNECT. A new one replaces the oldest: idle connections keep no client out.
const NEWCOMERS: usize = 16;
/// Before a new one replaces it, a connection has at least this time for its CONNECT and its login. A flood of connections waits
/// in the kernel meanwhile, in one queue with all others.
const GRACE: Duration = Duration::from_millis(50);
/// Until memory is given back that clients have needed which are gone.
const CALM: Duration = Duration::from_secs(2);
/// Between two looks at the file of users.
const USERS: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Shared {
    hub: RefCell<Hub>,
    wakes: RefCell<VecMap<Token, Rc<Notify>>>,
    newcomers: RefCell<VecMap<u64, Newcomer>>,
    /// A newcomer has become a client, or has gone.
    vacated: Notify,
    /// A client is gone that has needed much memory.
    spent: Notify,
    pub(super) news: mpsc::Sender<News>,
    pub(super) logins: Logins,
}

/// A connection without a CONNECT.
#[derive(Debug)]
struct Newcomer {
    since: Instant,
    task: AbortHandle,
}

impl Shared {
    pub(super) fn new(hub: Hub, logins: Logins, news: mpsc::Sender<News>) -> Self {
        Self {
            hub: RefCell::new(hub),
            wakes: RefCell::default(),
            newcomers: RefCell::default(),
            vacated: Notify::new(),
            spent: Notify::new(),
            news,
            logins,
        }
    }

    /// Runs `work` on the hub, then wakes the clients that have messages.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Hub) -> T) -> T {
        let mut hub = self.hub.borrow_mut();
        let done = work(&mut hub);
        let woken = hub.woken();
        if !woken.is_empty() {
            let wakes = self.wakes.borrow();
            woken.iter().filter_map(|token| wakes.get(token)).for_each(|wake| wake.notify_one());
        }
        done
    }

    /// How this client is woken.
    pub(super) fn wake(&self, token: Token) -> Rc<Notify> {
        Rc::clone(self.wakes.borrow_mut().get_or_default(token))
    }

    /// Removes a client; returns its will, if that is for the node.
    pub(super) fn gone(&self, token: Token, orderly: bool) -> Option<News> {
        self.wakes.borrow_mut().remove(&token);
        self.with(|hub| hub.gone(token, orderly))
    }

    /// A client is gone that has needed much memory.
    pub(super) fn spent(&self) {
        self.spent.notify_one();
    }

    /// Gives memory back, forever.
    pub(super) async fn tidy(&self) {
        loop {
            self.spent.notified().await;
            sleep(CALM).await;
            sampan_memory::trim();
        }
    }

    /// Checks the file of users periodically, forever: a user that is removed from it is disconnected, even without new
    /// connections.
    pub(super) async fn follow_users(&self) {
        loop {
            sleep(USERS).await;
            if self.with(|hub| !hub.has_users()) {
                continue;
            }
            if let Ok(Some(users)) = self.logins.users().await {
                self.with(|hub| hub.users(|user, rights| users.still(user, rights)));
            }
        }
    }

    /// Waits until one more connection may come: while there is a place, or once the oldest newcomer has had its time.
    pub(super) async fn room(&self) {
        loop {
            let oldest = {
                let newcomers = self.newcomers.borrow();
                let is_full = newcomers.len() >= NEWCOMERS;
                let oldest = newcomers.values().next().map(|oldest| oldest.since);
                oldest.filter(|_| is_full)
            };
            match oldest {
                Some(since) if since.elapsed() < GRACE => {
                    // Either way the places are looked at again.
                    let _ = timeout_at(since + GRACE, self.vacated.notified()).await;
                }
                _ => return,
            }
        }
    }

    /// Adds a connection that has not identified itself.
    pub(super) fn came(&self, place: u64, task: AbortHandle) {
        let mut newcomers = self.newcomers.borrow_mut();
        while newcomers.len() >= NEWCOMERS {
            if let Some((_, oldest)) = newcomers.pop_first() {
                oldest.task.abort();
            }
        }
        newcomers.insert(place, Newcomer { since: Instant::now(), task });
    }

    /// It has said it, or is gone.
    pub(super) fn arrived(&self, place: u64) {
        self.newcomers.borrow_mut().remove(&place);
        self.vacated.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn newcomer_has_time_before_another_takes_its_place() {
        let (news, _node) = mpsc::channel(1);
        let shared = Shared::new(Hub::new(&[], &[]), Logins::new(None), news);
        let began = Instant::now();
        let mut tasks = Vec::new();
        for place in 0..=NEWCOMERS {
            shared.room().await;
            let task = tokio::spawn(pending::<()>());
            shared.came(u64::try_from(place).expect("small"), task.abort_handle());
            tasks.push(task);
        }
        assert!(began.elapsed() >= GRACE, "the last one has waited: {:?}", began.elapsed());
        assert!(tasks.remove(0).await.is_err_and(|error| error.is_cancelled()), "for the place of the first");
        assert!(tasks.iter().all(|task| !task.is_finished()));
    }

    #[tokio::test]
    async fn place_that_becomes_free_is_taken_at_once() {
        let (news, _node) = mpsc::channel(1);
        let shared = Shared::new(Hub::new(&[], &[]), Logins::new(None), news);
        for place in 0..NEWCOMERS {
            let task = tokio::spawn(pending::<()>());
            shared.came(u64::try_from(place).expect("small"), task.abort_handle());
        }
        shared.newcomers.borrow_mut().values_mut().for_each(|newcomer| newcomer.since += LONG);
        assert!(timeout(GRACE, shared.room()).await.is_err(), "all places are taken");
        let freed = async { tokio::join!(shared.room(), async { shared.arrived(3) }) };
        timeout(LONG / 20, freed).await.expect("the end of a connection wakes who waits for a place");
    }
}
