//! Files of the cache: `FOLDER/ACCOUNT/KEY`, each name a digest. A folder's time is when its ServiceAccount last had a
//! pod or an answer here.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sampan_sys::files::{private_dir, replace, unless_missing};

use super::answer::Answer;
use crate::pods::{Digest, hex, sha256};

/// Answers of a ServiceAccount without pods here are deleted after this time.
const FORGOTTEN: Duration = Duration::from_secs(7 * 86_400);
/// 2026-01-01, since the epoch. A clock before it was not set yet.
const SET: Duration = Duration::from_secs(1_767_225_600);

/// A file as it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) account: String,
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) written: SystemTime,
}

#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
}

/// Name of a ServiceAccount's folder.
pub(super) fn account_name(account: &str) -> String {
    hex(&sha256(account.as_bytes())).chars().take(32).collect()
}

impl Disk {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, account: &str, key: &Digest) -> PathBuf {
        self.folder.join(account_name(account)).join(hex(key))
    }

    /// Returns what is there, at most a number of files; others are deleted.
    pub(super) fn look(&self, most: usize) -> Vec<Found> {
        let mut found = Vec::new();
        for account in entries(&self.folder) {
            let folder = self.folder.join(&account);
            for key in entries(&folder) {
                let path = folder.join(&key);
                let meta = fs::symlink_metadata(&path).ok().filter(|meta| meta.is_file());
                match meta {
                    Some(meta) if is_name(&account, 32) && is_name(&key, 64) && found.len() < most => {
                        let written = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                        found.push(Found { account: account.clone(), key, size: meta.len(), written });
                    }
                    // Of an interrupted write.
                    Some(_) => remove(&path),
                    None => {}
                }
            }
        }
        found
    }

    pub(super) fn write(&self, key: &Digest, answer: &Answer) -> io::Result<()> {
        let path = self.path(&answer.account, key);
        path.parent().map_or(Ok(()), private_dir)?;
        // Not durable: what a power cut takes is read again.
        replace(&path, &answer.encode(), false)
    }

    /// `None`: it is not there, or damaged, or of another account.
    pub(super) fn read(&self, account: &str, key: &Digest) -> Option<Answer> {
        let bytes = fs::read(self.path(account, key)).ok()?;
        Answer::decode(&bytes).filter(|answer| answer.account == account)
    }

    pub(super) fn remove(&self, account: &str, key: &Digest) {
        remove(&self.path(account, key));
    }

    pub(super) fn remove_named(&self, account: &str, key: &str) {
        remove(&self.folder.join(account).join(key));
    }

    /// A ServiceAccount has, or just had, a pod here.
    pub(super) fn touch(&self, account: &str, now: SystemTime) {
        if !is_set(now) {
            return;
        }
        if let Ok(folder) = File::open(self.folder.join(account_name(account))) {
            // The time of an answer is as good.
            let _ = folder.set_modified(now);
        }
    }

    /// Deletes the folders of ServiceAccounts that have had no pod for long. Returns their names. A folder's time in the
    /// future is of a clock that was wrong: its week begins now.
    pub(super) fn forget(&self, now: SystemTime, has_pods: impl Fn(&str) -> bool) -> Vec<String> {
        let mut gone = Vec::new();
        if !is_set(now) {
            return gone;
        }
        for account in entries(&self.folder) {
            let folder = self.folder.join(&account);
            let touched = fs::metadata(&folder).and_then(|meta| meta.modified());
            if touched.as_ref().is_ok_and(|touched| *touched > now) {
                // Tried again the next time.
                let _ = File::open(&folder).and_then(|folder| folder.set_modified(now));
            }
            let is_old = touched.is_ok_and(|touched| now.duration_since(touched).is_ok_and(|age| age > FORGOTTEN));
            if is_old && !has_pods(&account) {
                match fs::remove_dir_all(&folder) {
                    Ok(()) => gone.push(account),
                    Err(error) => log::warn!("{}: cannot delete: {error}", folder.display()),
                }
            }
        }
        gone
    }
}

fn is_set(now: SystemTime) -> bool {
    now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since >= SET)
}

fn entries(folder: &Path) -> Vec<String> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    read.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn is_name(name: &str, length: usize) -> bool {
    name.len() == length && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn remove(path: &Path) {
    if let Err(error) = unless_missing(fs::remove_file(path)) {
        log::warn!("{}: cannot delete: {error}", path.display());
    }
}
