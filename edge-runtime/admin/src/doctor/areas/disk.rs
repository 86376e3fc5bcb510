//! The disk: free space, inodes, whether it can be written, and its reported health.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use edge_runtime::image::rootfs;
use edge_runtime::paths::Paths;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};
use sampan_sys::board::Sensors;
use sampan_sys::host::{DiskSpace, disk_space};

use crate::doctor::finding::Finding;
use crate::doctor::host::text;

/// The kubelet's and this node's default thresholds of eviction.
const LOW_PERCENT: u64 = 10;
const LOW_INODES_PERCENT: u64 = 5;
/// Whatever the thresholds, this is too little for pulling an image or writing a log, in bytes.
const NOTHING: u64 = 20 << 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    places: Vec<Place>,
    /// Problem reported by the kernel or the medium.
    trouble: Option<String>,
    /// Used tenths of the medium's life, if it reports that (JESD84-B51, `life_time`).
    worn_tenths: Option<u64>,
}

#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
    space: DiskSpace,
    no_exec: bool,
    in_memory: bool,
    /// Why a small file could not be written there.
    refused: Option<String>,
    /// Why no container can have its writable layer there.
    no_overlay: Option<String>,
}

pub(crate) fn look(paths: &Paths) -> Facts {
    let mut places: Vec<(u64, Place)> = Vec::new();
    for folder in [paths.state(), paths.layers(), paths.all_pod_logs(), paths.run()] {
        let Some(there) = folder.ancestors().find(|folder| folder.exists()) else { continue };
        let Some(space) = disk_space(there) else { continue };
        let device =
            std::fs::metadata(there).map(|meta| std::os::unix::fs::MetadataExt::dev(&meta)).unwrap_or_default();
        if places.iter().any(|(known, _)| *known == device) {
            continue;
        }
        // Logs and sockets may be forgotten, and nothing is started from there.
        let is_state = folder == paths.state() || folder == paths.layers();
        let no_exec = is_state && statvfs(there).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOEXEC));
        let in_memory = is_state && statfs(there).is_ok_and(|fs| fs.filesystem_type() == TMPFS_MAGIC);
        let refused = write(there).err().map(|error| error.to_string());
        // What cannot be tried, as without root, is not reported.
        let overlay = is_state.then(|| rootfs::refused(there).ok().flatten()).flatten();
        let no_overlay = overlay.map(|error| error.to_string());
        places.push((device, Place { folder: there.to_owned(), space, no_exec, in_memory, refused, no_overlay }));
    }
    // Before a node has its folder the medium is that of where it will be.
    let state = paths.state();
    let there = state.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let sensors = Sensors::find(Path::new("/sys"), vec![there.to_owned()]);
    Facts {
        places: places.into_iter().map(|(_, place)| place).collect(),
        trouble: sensors.storage_trouble(),
        worn_tenths: worn(Path::new("/sys")),
    }
}

/// Writes and syncs a block, as a node does.
fn write(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&[b' '; 4096])?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

/// Wear of the most worn eMMC medium: `0x05` means that 40 to 50 % are used.
pub(crate) fn worn(sysfs: &Path) -> Option<u64> {
    let media = std::fs::read_dir(sysfs.join("block")).ok()?.flatten();
    let all = media.flat_map(|one| {
        let said = text(one.path().join("device/life_time"));
        let tenths = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        said.split_ascii_whitespace().filter_map(tenths).collect::<Vec<_>>()
    });
    all.filter(|tenths| (1..=11).contains(tenths)).max()
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for place in &facts.places {
        found.extend(judge_place(place));
    }
    let why = "what is written may be lost, and the node is evicting pods or keeps its store in memory";
    if let Some(trouble) = &facts.trouble {
        let cure = "dmesg | grep -iE 'mmc|ext4|i/o error'; then check the file system (fsck -f at the next boot) and \
                    replace the medium if it goes on";
        found.push(Finding::error("disk-health", trouble.clone(), why, cure));
    }
    match facts.worn_tenths {
        Some(tenths @ 9..) => found.push(Finding::warning(
            "disk-wear",
            format!("the flash medium says that {} % of its life are used", (tenths * 10).min(100)),
            "flash that is worn out turns read-only or loses data",
            "replace the medium soon: a node keeps its identity in var/lib/edge-runtime/identity, its images are pulled again",
        )),
        Some(tenths) => {
            found.push(Finding::ok("disk-wear", format!("at most {} % of the flash medium's life are used", tenths * 10)));
        }
        None => {}
    }
    found
}

fn judge_place(place: &Place) -> Vec<Finding> {
    let (folder, space) = (place.folder.display(), place.space);
    let mut found = Vec::new();
    let percent = |part: u64, whole: u64| part.saturating_mul(100) / whole.max(1);
    let free = percent(space.available_bytes, space.total_bytes);
    let cure = format!(
        "see what takes it: du -xh --max-depth=3 {folder} | sort -h | tail; edge-runtime images; journalctl --vacuum-size=50M"
    );
    let what = format!("{} MiB ({free} %) are free at {folder}", space.available_bytes >> 20);
    let why = "images cannot be pulled, logs are dropped, and pods are evicted";
    if let Some(refused) = &place.refused {
        let what = format!("{folder} does not take a small file: {refused}; {what}");
        let cure = match refused.contains("ead-only") {
            true => {
                format!("mount -o remount,rw {folder}; if the kernel made it read-only, see dmesg and check the medium")
            }
            false => cure,
        };
        found.push(Finding::error("disk", what, "the node cannot remember anything, and no image can be pulled", cure));
    } else if space.total_bytes > 0 && space.available_bytes < NOTHING {
        found.push(Finding::error("disk", what, why, cure));
    } else if space.total_bytes > 0 && free < LOW_PERCENT {
        found.push(Finding::warning("disk", what, why, cure));
    } else {
        found.push(Finding::ok("disk", what));
    }
    let inodes = percent(space.free_inodes, space.total_inodes);
    if space.total_inodes > 0 && inodes < LOW_INODES_PERCENT {
        let what = format!("{} inodes ({inodes} %) are free at {folder}", space.free_inodes);
        let cure =
            format!("find what has many files: du --inodes -xd 3 {folder} | sort -n | tail; edge-runtime images");
        found.push(Finding::warning("inodes", what, "no file can be made although there is room", cure));
    }
    if place.no_exec {
        let cure =
            format!("take noexec out of the options of {folder} in /etc/fstab, then: mount -o remount,exec {folder}");
        found.push(Finding::error(
            "disk-exec",
            format!("{folder} is mounted noexec"),
            "no container can start a program",
            cure,
        ));
    }
    if let Some(why) = &place.no_overlay {
        let cure = format!(
            "put {folder} on a file system of its own (ext4, xfs, btrfs or f2fs): a partition, or a file: truncate -s 8G \
             /FILE; mkfs.ext4 /FILE; mount -o loop /FILE {folder}"
        );
        let what =
            format!("overlayfs takes no writable layer at {folder} ({why}): it lies on an overlay, on NFS or alike");
        found.push(Finding::error(
            "disk-overlay",
            what,
            "no container can start: its root file system cannot be made",
            cure,
        ));
    }
    if place.in_memory {
        let cure = format!("put {folder} on a disk: what is written there must survive a reboot");
        let what = format!("{folder} is in memory (tmpfs)");
        found.push(Finding::warning(
            "disk-memory",
            what,
            "a reboot forgets the node's identity, images and pods",
            cure,
        ));
    }
    found
}

#[cfg(test)]
mod tests;
