//! Slow work on the state file, on a thread with its own connection: checkpoints of the write-ahead log, and the copy
//! that replaces a damaged file.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection;

use super::bodies;
use super::rows::unsigned;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Changed pages that a checkpoint writes at a time, about. Fewer would write the same pages again and again.
const CHECKPOINT_PAGES: u64 = 2000;
/// Length of the log, in pages, and the smaller number for a checkpoint from then on: at a full log
/// (`wal_autocheckpoint`) the writer itself writes back the rest, while all others wait, and restarts the log.
const NEARLY_FULL: (u64, u64) = (12_000, 200);
/// A log of this many pages is truncated after this idle time: that takes up to 60 ms.
const LONG: (u64, Duration) = (4000, Duration::from_secs(60));
/// Average rate at which copies are written, in bytes per second, whatever the file's size: an SD card wears out.
const COPY_BYTES_PER_SECOND: u64 = 1024;
/// Copies are never closer than this and, while anything changes, never further apart than that.
const COPY_AFTER: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(24 * 3600));

enum Order {
    Checkpoint,
    Copy,
    Cut,
}

/// The thread; it ends with this.
pub(super) struct Keeper {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// Changed pages since the last checkpoint that was ordered.
    pages: u64,
    /// Pages of the log, as the last checkpoint found it.
    log: Arc<AtomicU64>,
    written: Instant,
    /// When to copy next, and whether anything was written since the last time.
    copy_at: Instant,
    changed: bool,
    path: PathBuf,
}

impl Keeper {
    /// Starts the thread, and makes the first copy unless there is one from the last minutes.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        let (orders, work) = sync_channel(2);
        let (file, log) = (path.to_owned(), Arc::<AtomicU64>::default());
        let found = Arc::clone(&log);
        let thread = std::thread::Builder::new()
            .name("api-keep".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || run(&file, &work, &found))?;
        let keeper = Self {
            orders: Some(orders),
            thread: Some(thread),
            pages: 0,
            log,
            written: Instant::now(),
            copy_at: Instant::now() + due_in(path).min(COPY_AFTER.1),
            changed: true,
            path: path.to_owned(),
        };
        Ok(keeper)
    }

    /// Records a write that has changed this many pages and orders the work that is due.
    pub(super) fn wrote(&mut self, pages: u64) {
        self.pages += pages;
        self.changed = true;
        self.written = Instant::now();
        let full = self.log.load(Ordering::Relaxed) >= NEARLY_FULL.0;
        let most = if full { NEARLY_FULL.1 } else { CHECKPOINT_PAGES };
        if self.pages >= most && self.order(Order::Checkpoint) {
            self.pages = 0;
        }
    }

    /// Time has passed: orders what is due.
    pub(super) fn tick(&mut self) {
        if self.log.load(Ordering::Relaxed) >= LONG.0 && self.written.elapsed() >= LONG.1 {
            self.order(Order::Cut);
        }
        if self.changed && Instant::now() >= self.copy_at && self.order(Order::Copy) {
            self.changed = false;
            self.copy_at = Instant::now() + interval(&self.path).min(COPY_AFTER.1);
        }
    }

    /// False while the thread has enough to do; the next write asks again.
    fn order(&self, order: Order) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Pages that a write changes, about: of its body, of the body that it replaces, which goes into the history unless that
/// lies apart, and of the tables' indexes.
pub(super) fn pages(body: usize, replaced: usize) -> u64 {
    let copied = replaced - bodies::apart(replaced);
    [body, copied].into_iter().map(|bytes| (bytes as u64).div_ceil(PAGE)).sum::<u64>() + 4
}

/// Where the copy of a state file lies.
pub(super) fn copy_of(path: &Path) -> PathBuf {
    beside(path, "copy")
}

/// The file's path with one more ending.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Syncs the folder that a file was renamed in.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// How long one copy is good for.
fn interval(path: &Path) -> Duration {
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    Duration::from_secs(bytes / COPY_BYTES_PER_SECOND).clamp(COPY_AFTER.0, COPY_AFTER.1)
}

/// How long the copy that is there is still good for. One of the future is as good as none: the clock was wrong.
fn due_in(path: &Path) -> Duration {
    let made = std::fs::metadata(copy_of(path)).and_then(|copy| copy.modified()).ok();
    let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
    age.map_or(Duration::ZERO, |age| interval(path).saturating_sub(age))
}

fn run(path: &Path, work: &Receiver<Order>, log: &AtomicU64) {
    while let Ok(order) = work.recv() {
        let (what, done) = match order {
            Order::Checkpoint => ("writing the log back into it", checkpoint(path, "PASSIVE", log)),
            // The slow part first, during which no writer waits.
            Order::Cut => {
                let cut = checkpoint(path, "PASSIVE", log).and_then(|()| checkpoint(path, "TRUNCATE", log));
                ("cutting its log off", cut)
            }
            Order::Copy => ("copying it", copy(path)),
        };
        if let Err(error) = done {
            log::warn!("state file {}: {what}: {error}", path.display());
        }
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    conn.pragma_update(None, "cache_size", -256)?;
    Ok(conn)
}

/// Makes a checkpoint. `PASSIVE` does not block writers: the next checkpoint handles what they add meanwhile. `TRUNCATE`
/// waits for no reader, because it has the lock of writers (`sqlite3WalCheckpoint` of SQLite): a backup by another process
/// reads for minutes. Stores the number of pages in the log.
fn checkpoint(path: &Path, mode: &str, log: &AtomicU64) -> io::Result<()> {
    let pages = open(path).and_then(|conn| {
        conn.busy_timeout(Duration::ZERO)?;
        conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| unsigned(row, 1))
    });
    log.store(pages.map_err(io::Error::other)?, Ordering::Relaxed);
    Ok(())
}

/// Replaces the copy by one of now: complete and on the disk before it takes the name.
fn copy(path: &Path) -> io::Result<()> {
    let (copy, new) = (copy_of(path), beside(path, "copy.new"));
    let written = (|| {
        // SQLite accepts an empty file as its own; this one is readable only for its owner.
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let conn = open(path).map_err(io::Error::other)?;
        let target = new.to_str().ok_or_else(|| io::Error::other("its path is no text"))?;
        conn.execute("VACUUM INTO ?1", [target]).map_err(io::Error::other)?;
        file.sync_all()?;
        std::fs::rename(&new, &copy)?;
        sync_folder(&copy)
    })();
    if written.is_err() {
        // The room is worth more than half a copy.
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_deletion_count_unless_they_lie_apart() {
        assert_eq!([pages(3000, 0), pages(3000, 3000), pages(0, 3000)], [5, 6, 5]);
        assert_eq!([pages(1 << 20, 0), pages(1 << 20, 1 << 20), pages(0, 1 << 20)], [260, 260, 4]);
    }

    #[test]
    fn the_larger_the_file_the_rarer_its_copies() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let file = File::create(&path).unwrap();
        for (bytes, seconds) in [(0, 600), (4 << 20, 4096), (1 << 30, 24 * 3600)] {
            file.set_len(bytes).unwrap();
            assert_eq!(interval(&path).as_secs(), seconds, "{bytes}");
        }
        assert_eq!(due_in(&path), Duration::ZERO, "there is none");
        File::create(copy_of(&path)).unwrap();
        assert!(due_in(&path) > Duration::from_secs(23 * 3600));
        let later = SystemTime::now() + Duration::from_secs(1000);
        File::options().write(true).open(copy_of(&path)).unwrap().set_modified(later).unwrap();
        assert_eq!(due_in(&path), Duration::ZERO);
    }

    #[test]
    fn a_long_log_is_cut_off_once_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(20 << 20))")
            .unwrap();
        let log = || std::fs::metadata(dir.path().join("api.db-wal")).unwrap().len();
        let mut keeper = Keeper::start(&path).unwrap();
        keeper.changed = false;
        keeper.log.store(LONG.0, Ordering::Relaxed);
        keeper.tick();
        keeper.written = Instant::now().checked_sub(LONG.1).unwrap();
        assert!(log() > 20 << 20);
        keeper.tick();
        drop(keeper);
        assert_eq!(log(), 0);
        assert_eq!(conn.query_row("SELECT length(x) FROM t", [], |row| row.get::<_, u32>(0)).unwrap(), 20 << 20);
    }

    #[test]
    fn log_is_not_cut_off_while_another_process_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t (x)").unwrap();
        let reader = Connection::open(&path).unwrap();
        let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, u32>(0)).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(count(), 0);
        conn.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let (begun, log) = (Instant::now(), AtomicU64::default());
        checkpoint(&path, "TRUNCATE", &log).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "writers wait for {:?}", begun.elapsed());
        assert!(log.load(Ordering::Relaxed) > 0 && count() == 0);
        reader.execute_batch("COMMIT").unwrap();
        checkpoint(&path, "TRUNCATE", &log).unwrap();
        assert_eq!((log.load(Ordering::Relaxed), count()), (0, 1));
    }

    #[test]
    fn a_copy_is_whole_and_private_and_replaces_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        for rows in 1..=2 {
            copy(&path).unwrap();
            let copied = Connection::open(copy_of(&path)).unwrap();
            assert_eq!(copied.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), rows);
            assert_eq!(std::fs::metadata(copy_of(&path)).unwrap().permissions().mode() & 0o777, 0o600);
            conn.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        }
        assert!(!beside(&path, "copy.new").exists());
    }
}
