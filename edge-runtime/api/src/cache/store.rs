//! The cache: which answers there are, where, and when they are written.

use std::fs;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::{Duration, SystemTime};

use sampan_sys::files::unless_missing;
use sampan_sys::vec_map::VecMap;

use super::admit::{MAX_ANSWER, Next};
use super::answer::{Answer, Page};
use super::chains::Chains;
use super::disk::{Disk, account_name};
use super::evict::{Item, evict};
use super::wear::{WINDOW, Wear};
use crate::pods::{Digest, hex, unhex};

/// Folders of answers: with Secrets, and without.
const FOLDERS: [&str; 2] = ["cache", "cache-without-secrets"];
/// Between two writes of one file: flash wears out.
pub(crate) const WRITES: Duration = WINDOW;
/// Answers at most.
const MAX_ANSWERS: usize = 512;
/// Bytes of answers in memory: newer than on disk, or not for it.
const MEMORY: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Entry {
    /// Name of the ServiceAccount's folder.
    account: String,
    /// Bytes of the file and of the answer in memory.
    on_disk: u64,
    used: u64,
    /// When this process wrote the file.
    written: Option<Duration>,
    /// Of the newest content; none before it was read.
    digest: Option<Digest>,
    /// When the API last gave it; 0: as the file says.
    read_ms: u64,
    /// Newer than the file, or without one.
    fresh: Option<Rc<Answer>>,
    /// The file's content while a pod reads it: another pod that reads it takes no further memory.
    lent: Weak<Answer>,
    is_secret: bool,
}

/// All of it is lost without harm.
#[derive(Debug)]
pub(crate) struct Cache {
    disk: Disk,
    room: u64,
    secrets_in_memory: bool,
    entries: VecMap<String, Entry>,
    chains: Chains,
    wear: Wear,
    uses: u64,
    /// The last write has failed, and was logged.
    is_failing: bool,
}

impl Cache {
    /// Finds what is on disk. `room`: bytes at most; 0: no cache. Answers that were kept with Secrets are deleted where
    /// Secrets are to stay in memory: no file tells which ones have any.
    pub(crate) fn open(folder: &Path, room: u64, secrets_in_memory: bool) -> Self {
        let (own, other) = if secrets_in_memory { (FOLDERS[1], FOLDERS[0]) } else { (FOLDERS[0], FOLDERS[1]) };
        if let Err(error) = unless_missing(fs::remove_dir_all(folder.join(other))) {
            log::warn!("{}: cannot delete: {error}", folder.join(other).display());
        }
        let disk = Disk::new(folder.join(own));
        let mut found = disk.look(if room == 0 { 0 } else { MAX_ANSWERS });
        found.sort_by_key(|file| file.written);
        let mut cache = Self {
            disk,
            room,
            secrets_in_memory,
            entries: VecMap::default(),
            chains: Chains::default(),
            wear: Wear::default(),
            uses: 0,
            is_failing: false,
        };
        for file in found {
            cache.uses += 1;
            let entry = Entry { account: file.account, on_disk: file.size, used: cache.uses, ..Entry::default() };
            cache.entries.insert(file.key, entry);
        }
        cache.make_room();
        cache
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.room > 0
    }

    /// Bytes of all answers.
    pub(crate) fn size(&self) -> u64 {
        self.entries.values().map(Entry::size).sum()
    }

    pub(crate) fn has(&self, key: &Digest) -> bool {
        self.entries.contains_key(&hex(key))
    }

    /// Keeps a page of an answer; the answer counts when all its pages have come. `now` is time since the start of the
    /// process, `read_ms` the time in milliseconds of the Unix epoch.
    pub(crate) fn put(
        &mut self,
        key: Digest,
        account: &str,
        (page, next): (Page, Next),
        is_secret: bool,
        (now, read_ms): (Duration, u64),
    ) {
        if let Some(pages) = self.chains.add(key, account, page, next).filter(|_| self.is_on()) {
            let answer = Answer { account: account.to_owned(), read_ms, pages };
            self.keep(&key, answer, is_secret, now);
        }
    }

    fn keep(&mut self, key: &Digest, answer: Answer, is_secret: bool, now: Duration) {
        if answer.size() > self.room.min(2 * u64::try_from(MAX_ANSWER).unwrap_or(u64::MAX)) {
            return self.forget(key, &answer.account);
        }
        self.uses += 1;
        let (used, digest, name) = (self.uses, answer.digest(), hex(key));
        let entry = self.entries.get_or_default(name.clone());
        if entry.digest.is_none() && entry.on_disk > 0 {
            entry.digest = self.disk.read(&answer.account, key).map(|old| old.digest());
        }
        entry.account = account_name(&answer.account);
        (entry.used, entry.read_ms, entry.is_secret) = (used, answer.read_ms, is_secret);
        if entry.digest == Some(digest) {
            // It may have had to wait since it came.
            return self.write(&name, key, now);
        }
        entry.digest = Some(digest);
        entry.fresh = Some(Rc::new(answer));
        entry.lent = Weak::new();
        self.write(&name, key, now);
        self.make_room();
    }

    /// Writes an answer that is newer than its file, if that is due.
    fn write(&mut self, name: &str, key: &Digest, now: Duration) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let is_due = entry.written.is_none_or(|written| now.saturating_sub(written) >= WRITES);
        if !is_due || (entry.is_secret && self.secrets_in_memory) {
            return;
        }
        let Some(fresh) = entry.fresh.take() else { return };
        if !self.wear.allows(&entry.account, fresh.size(), self.room / 2, now) {
            entry.fresh = Some(fresh);
            return;
        }
        entry.written = Some(now);
        match self.disk.write(key, &fresh) {
            Ok(()) => (entry.on_disk, self.is_failing) = (fresh.size(), false),
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    log::warn!("cannot keep answers of the API on disk: {error}; they stay in memory");
                }
                entry.fresh = Some(fresh);
            }
        }
    }

    /// Whether an answer waits to be written.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.entries.values().any(|entry| entry.fresh.is_some() && !(entry.is_secret && self.secrets_in_memory))
    }

    /// Writes all that is due: the link is down, time has passed, or the process ends.
    pub(crate) fn flush(&mut self, now: Duration) {
        let names: Vec<String> =
            self.entries.iter().filter(|(_, entry)| entry.fresh.is_some()).map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(key) = unhex(&name) {
                self.write(&name, &key, now);
            }
        }
    }

    /// The newest answer of a path for a ServiceAccount, and when the API last gave it.
    pub(crate) fn get(&mut self, key: &Digest, account: &str) -> Option<(Rc<Answer>, u64)> {
        let name = hex(key);
        self.uses += 1;
        let entry = self.entries.get_mut(&name)?;
        entry.used = self.uses;
        let read_ms = entry.read_ms;
        let answer = match &entry.fresh {
            Some(fresh) => Some(Rc::clone(fresh)),
            None => entry.lent.upgrade().or_else(|| self.disk.read(account, key).map(Rc::new)),
        };
        entry.lent = answer.as_ref().map(Rc::downgrade).unwrap_or_default();
        let Some(answer) = answer.filter(|answer| answer.account == account) else {
            self.forget(key, account);
            return None;
        };
        // The same was read again since, maybe by a clock that was set back.
        let read_ms = if read_ms > 0 { read_ms } else { answer.read_ms };
        Some((answer, read_ms))
    }

    /// The API no longer gives this answer.
    pub(crate) fn forget(&mut self, key: &Digest, account: &str) {
        if self.entries.remove(&hex(key)).is_some_and(|entry| entry.on_disk > 0) {
            self.disk.remove(account, key);
        }
    }

    /// A ServiceAccount has, or just had, a pod here.
    pub(crate) fn touch(&self, account: &str) {
        self.disk.touch(account, SystemTime::now());
    }

    /// Deletes answers of ServiceAccounts that have had no pod for long.
    pub(crate) fn forget_accounts<'a>(&mut self, with_pods: impl Iterator<Item = &'a str>) {
        let with_pods: Vec<String> = with_pods.map(account_name).collect();
        let has_pods = |account: &str| with_pods.iter().any(|one| one == account);
        let gone = self.disk.forget(SystemTime::now(), has_pods);
        self.entries.retain(|_, entry| !gone.contains(&entry.account));
    }

    fn make_room(&mut self) {
        // In memory: what has a file falls back to it.
        let fresh = self.entries.iter();
        let fresh = fresh.filter_map(|(name, entry)| Some(entry.item(name, entry.fresh.as_ref()?.size())));
        for name in evict(fresh, self.room.min(MEMORY)) {
            if let Some(entry) = self.entries.get_mut(&name) {
                (entry.fresh, entry.digest, entry.read_ms) = (None, None, 0);
            }
        }
        self.entries.retain(|_, entry| entry.size() > 0);
        let mut gone = evict(self.entries.iter().map(|(name, entry)| entry.item(name, entry.size())), self.room);
        let left = self.entries.iter().filter(|(name, _)| !gone.contains(name));
        let more = evict(left.map(|(name, entry)| entry.item(name, 1)), u64::try_from(MAX_ANSWERS).unwrap_or(u64::MAX));
        gone.extend(more);
        for name in gone {
            if let Some(entry) = self.entries.remove(&name).filter(|entry| entry.on_disk > 0) {
                self.disk.remove_named(&entry.account, &name);
            }
        }
    }
}

impl Entry {
    fn item<'a>(&'a self, key: &'a str, size: u64) -> Item<'a> {
        Item { key, account: &self.account, size, used: self.used }
    }

    fn size(&self) -> u64 {
        self.on_disk + self.fresh.as_ref().map_or(0, |fresh| fresh.size())
    }
}

#[cfg(test)]
mod tests;
