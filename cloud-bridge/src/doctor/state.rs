//! The state folder of a standalone bridge: room on its disk, the database and its copy, certificates. Changes nothing but a small
//! test file, which it removes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use nix::sys::statvfs::statvfs;

use super::finding::Finding;
use crate::output::rough;
use crate::pki::authority::Authority;
use crate::pki::encoding::certificates;
use crate::pki::identity::Holder;
use crate::pki::{clock, keep};

/// The database cannot be written with less, in bytes.
const NOTHING: u64 = 20 << 20;
/// First bytes of the database (SQLite, fileformat2.html).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The bridge copies its database at least once a day while it changes.
const COPY_DUE: Duration = Duration::from_secs(2 * 86_400);
/// The bridge renews the certificate of its kubeconfig every month.
const RENEWED: Duration = Duration::from_secs(30 * 86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) folder: PathBuf,
    pub(super) now: SystemTime,
    /// Bytes of its file system: all, and free for the bridge.
    pub(super) space: Option<(u64, u64)>,
    /// Inodes: all, and free.
    pub(super) inodes: Option<(u64, u64)>,
    /// Why a small file could not be written.
    pub(super) refused: Option<String>,
    /// Size of the database and its last change, or why it cannot be read.
    pub(super) database: Result<(u64, SystemTime), String>,
    /// Last change of the copy of the database.
    pub(super) copied: Option<SystemTime>,
    /// Whether a damaged database is kept beside it.
    pub(super) keeps_damaged: bool,
    /// End of the certificate of the authority, or why that cannot be read.
    pub(super) authority: Result<SystemTime, String>,
    /// End of the certificate in the administrator's kubeconfig.
    pub(super) kubeconfig: Result<SystemTime, String>,
}

pub(super) fn look(folder: &Path) -> (Facts, Option<Authority>) {
    let authority = keep::of_folder(folder).map_err(|error| error.to_string());
    let space = statvfs(folder).ok();
    // These are 32 bits wide on 32-bit ARM.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let (space, inodes) = space.map_or((None, None), |fs| {
        let unit = fs.fragment_size() as u64;
        let bytes = |blocks: u64| blocks.saturating_mul(unit);
        let space = (bytes(fs.blocks() as u64), bytes(fs.blocks_available() as u64));
        (Some(space), Some((fs.files() as u64, fs.files_available() as u64)))
    });
    let facts = Facts {
        folder: folder.to_owned(),
        now: clock::now(),
        space,
        inodes,
        refused: write(folder).err().map(|error| error.to_string()),
        database: database(&folder.join("api.db")),
        copied: changed(&folder.join("api.db.copy")).ok(),
        keeps_damaged: folder.join("api.db.damaged").exists(),
        authority: authority.as_ref().map(Authority::ends).map_err(Clone::clone),
        kubeconfig: kubeconfig(&folder.join("kubeconfig")),
    };
    (facts, authority.ok())
}

fn write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    // Root may run this in a folder of the service's user: a link there leads to no other file.
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&[b' '; 4096])?;
        file.sync_all()
    });
    let removed = fs::remove_file(&path);
    written.and(removed)
}

fn changed(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

fn database(path: &Path) -> Result<(u64, SystemTime), String> {
    let failed = |error: io::Error| error.to_string();
    let mut head = [0; MAGIC.len()];
    let mut file = sampan_file::open(path).map_err(failed)?;
    file.read_exact(&mut head).map_err(|_| "it is empty or cut off".to_owned())?;
    if &head != MAGIC {
        return Err("it is not a SQLite database".to_owned());
    }
    // New changes are in the log beside it.
    let log = changed(&path.with_extension("db-wal")).ok();
    let own = changed(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Ok((size, log.map_or(own, |log| log.max(own))))
}

fn kubeconfig(path: &Path) -> Result<SystemTime, String> {
    sampan_file::open(path).map_err(|error| error.to_string())?;
    let file = Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
    let user = file.auth_infos.into_iter().next().and_then(|named| named.auth_info);
    let data = user.and_then(|user| user.client_certificate_data).ok_or("it has no client certificate")?;
    let pem = STANDARD.decode(data).map_err(|error| error.to_string())?;
    let all = certificates("kubeconfig", &pem).map_err(|error| error.to_string())?;
    all.first().and_then(Holder::of).map(|holder| holder.expires).ok_or_else(|| "its certificate is unreadable".into())
}

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![disk(facts), inodes(facts)];
    found.extend(databases(facts));
    found.push(authority(facts));
    found.push(kubeconfig_end(facts));
    found
}

fn disk(facts: &Facts) -> Finding {
    let folder = facts.folder.display();
    let why = "the API refuses writes, and the bridge ends, when the disk is full";
    let cure = format!("find what is large: du -xh --max-depth=2 {folder}; journalctl --vacuum-size=50M");
    if let Some(refused) = &facts.refused {
        let cure = format!("df {folder}; mount -o remount,rw, or free space");
        return Finding::error("disk", format!("{folder}: no file can be written: {refused}"), why, cure);
    }
    let Some((total, free)) = facts.space else {
        return Finding::info("disk", format!("{folder}: the file system does not say how much is free"));
    };
    let database = facts.database.as_ref().map_or(0, |(size, _)| *size);
    let left = format!("{folder}: {} MiB of {} MiB are free", free >> 20, total >> 20);
    if free < NOTHING {
        Finding::error("disk", left, why, cure)
    } else if free < database {
        let why = "the copy of api.db, which a damaged one is restored from, needs as much room as api.db";
        Finding::warning("disk", left, why, cure)
    } else if free < total / 10 {
        Finding::warning("disk", left, why, cure)
    } else {
        Finding::ok("disk", left)
    }
}

fn inodes(facts: &Facts) -> Finding {
    let folder = facts.folder.display();
    match facts.inodes {
        // 0 where the file system has no fixed number of inodes (btrfs).
        Some((total, free)) if total > 0 && free < total / 20 => Finding::warning(
            "inodes",
            format!("{folder}: {free} of {total} inodes are free"),
            "without inodes no file can be made, though there is room",
            format!("du --inodes -xd 3 {folder}"),
        ),
        _ => Finding::ok("inodes", format!("{folder}: enough are free")),
    }
}

fn databases(facts: &Facts) -> Vec<Finding> {
    let path = facts.folder.join("api.db");
    let mut found = Vec::new();
    match (&facts.database, facts.copied) {
        (Err(why_not), copied) => {
            let cure = match copied {
                Some(_) => {
                    "add --restore to CLOUD_BRIDGE_OPTIONS in /etc/default/cloud-bridge and restart: docs/backup.md"
                }
                None => "restore a backup: docs/backup.md",
            };
            let why = "the bridge does not start without the objects of its API";
            found.push(Finding::error("database", format!("{}: {why_not}", path.display()), why, cure));
        }
        (Ok((_, changed)), copied) => {
            found.push(Finding::ok("database", format!("{} is there", path.display())));
            let due = copied.is_none_or(|copied| changed.duration_since(copied).is_ok_and(|late| late > COPY_DUE));
            found.push(match copied {
                Some(copied) if !due => {
                    let age = facts.now.duration_since(copied).unwrap_or_default();
                    Finding::ok("copy", format!("api.db.copy is {} old", rough(age)))
                }
                copied => {
                    let what = copied.map_or("there is no api.db.copy".to_owned(), |copied| {
                        let late = changed.duration_since(copied).unwrap_or_default();
                        format!("api.db.copy lacks the changes of {}", rough(late))
                    });
                    let why = "what the copy lacks is lost if api.db is damaged";
                    let cure = "journalctl -u cloud-bridge | grep -i copy; the copy needs as much room as api.db";
                    Finding::warning("copy", what, why, cure)
                }
            });
        }
    }
    if facts.keeps_damaged {
        let what = "api.db.damaged is kept from a restore; delete it when you do not need it";
        found.push(Finding::info("database-damaged", what));
    }
    found
}

fn authority(facts: &Facts) -> Finding {
    let why = "nodes and kubectl trust the bridge by this authority alone";
    match &facts.authority {
        Err(why_not) => Finding::error("authority", why_not.clone(), why, "restore the folder pki: docs/backup.md"),
        Ok(ends) => match ends.duration_since(facts.now) {
            Err(_) => {
                let what = "the certificate of the authority has ended by the clock of this machine";
                Finding::error("authority", what, "kubectl refuses it", "date; correct the clock if it is ahead")
            }
            Ok(left) if left < YEAR => {
                let what = format!("the certificate of the authority ends in {}", rough(left));
                let cure = "cloud-bridge authority rotate: docs/rotation.md";
                Finding::warning("authority", what, why, cure)
            }
            Ok(left) => Finding::ok("authority", format!("its certificate ends in {}", rough(left))),
        },
    }
}

fn kubeconfig_end(facts: &Facts) -> Finding {
    let path = facts.folder.join("kubeconfig");
    let why = "kubectl and cloud-bridge on this machine use it";
    let cure = "systemctl restart cloud-bridge, which writes another";
    match facts.kubeconfig.as_ref().map(|ends| ends.duration_since(facts.now)) {
        Err(why_not) => Finding::error("kubeconfig", format!("{}: {why_not}", path.display()), why, cure),
        Ok(Err(_)) => Finding::error("kubeconfig", format!("{}: its certificate has ended", path.display()), why, cure),
        Ok(Ok(left)) if left < RENEWED => {
            let what = format!("{}: its certificate ends in {}; it was not renewed", path.display(), rough(left));
            Finding::warning("kubeconfig", what, why, cure)
        }
        Ok(Ok(left)) => Finding::ok("kubeconfig", format!("its certificate ends in {}", rough(left))),
    }
}

#[cfg(test)]
mod tests;
