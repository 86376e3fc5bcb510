//! Panics: each is counted and logged with the work in which it occurred, and ends only that work. The bridge serves
//! thousands of nodes on one thread; a bug in the work for one of them must not affect the others.
//!
//! Owns the hook, the count and the places where unwinding stops. Needs a build that unwinds (profile `bridge`).

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;

use sampan_log::printable::printable;

static COUNT: AtomicU64 = AtomicU64::new(0);

tokio::task_local! {
    /// Name of the present task's work.
    static WORK: String;
}

/// Pause before work that panicked is started again, doubled up to the second figure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// After work of at least this length, the next pause is the first value again.
const SETTLED: Duration = Duration::from_secs(300);

/// Panics of this process since its start.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Installs the hook that counts every panic and logs it instead of printing it. Further calls have no effect.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, Ordering::Relaxed);
            // Without a log, as in tests, the default hook prints the panic.
            if log::max_level() == log::LevelFilter::Off { before(info) } else { tell(info) }
        }));
        if cfg!(panic = "abort") {
            log::warn!("this build ends with the first panic: build cloud-bridge with --profile bridge");
        }
    });
}

/// Name of the present task's work, if it has one.
pub(crate) fn work() -> Option<String> {
    WORK.try_with(Clone::clone).ok()
}

fn tell(info: &PanicHookInfo<'_>) {
    let work = work().unwrap_or_else(|| "the bridge".to_owned());
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    log::error!("{work}: panic at {place}: {}", printable(words(info.payload())));
}

fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no words")
}

/// Does this work to its end or to its panic, which gives `None`. `work` is for the log: whose it is. Not an `async fn`: that
/// would have room for the future twice, once as its argument and once where it waits for it.
pub fn isolate<F: Future>(work: impl Into<String>, future: F) -> impl Future<Output = Option<F::Output>> {
    // Shared state is behind locks that are recovered when poisoned, and each of them is consistent after every
    // statement, or read again.
    WORK.scope(work.into(), AssertUnwindSafe(future).catch_unwind()).map(Result::ok)
}

/// Same as [`isolate`], for a step that does not await.
pub fn shield<T>(work: impl Into<String>, step: impl FnOnce() -> T) -> Option<T> {
    WORK.sync_scope(work.into(), || catch_unwind(AssertUnwindSafe(step)).ok())
}

/// Does work that must go on as long as the process: after a panic it is started again from nothing. Ends when it ends.
pub async fn keep<F: Future>(work: &str, mut begin: impl FnMut() -> F) -> F::Output {
    let mut pause = AGAIN.0;
    loop {
        let started = Instant::now();
        // The step that creates the future may panic too.
        if let Some(output) = isolate(work, async { begin().await }).await {
            return output;
        }
        if started.elapsed() >= SETTLED {
            pause = AGAIN.0;
        }
        log::warn!("{work}: started again in {} s", pause.as_secs());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_own_work_alone_and_is_counted() {
        install();
        let before = count();
        let failed = tokio::spawn(isolate("node a", async { panic!("of a") }));
        let fine = tokio::spawn(isolate("node b", async { 7 }));
        assert_eq!((failed.await.unwrap(), fine.await.unwrap()), (None::<()>, Some(7)));
        assert_eq!(shield("node c", || -> u8 { panic!("of c") }), None);
        assert_eq!(shield("node c", || 8), Some(8));
        assert!(count() >= before + 2, "{before} {}", count());
    }

    /// The strategy is one for a profile, and `release` is the node's.
    #[test]
    fn what_users_run_unwinds() {
        let manifest = include_str!("../../../Cargo.toml");
        let (_, profile) = manifest.split_once("[profile.bridge]").unwrap();
        let (profile, _) = profile.split_once("\n[").unwrap();
        assert!(profile.contains("panic = \"unwind\"") && profile.contains("inherits = \"release\""), "{profile}");
        let common = include_str!("../../../scripts/lib/common.sh");
        assert!(common.contains("cargo build --profile bridge --locked -p cloud-bridge"));
        for script in [include_str!("../../../scripts/quickstart"), include_str!("../../../scripts/bench"), common] {
            let aborts = |line: &&str| line.contains("--release") && line.contains("cloud-bridge");
            assert_eq!(script.lines().find(aborts), None);
        }
    }

    #[tokio::test]
    async fn what_must_go_on_begins_anew() {
        let mut turns = 0;
        let output = keep("the watch", || {
            turns += 1;
            let turn = turns;
            async move {
                assert!(turn == 2, "turn {turn}");
                turn
            }
        });
        assert_eq!(output.await, 2);
    }
}
