//! Findings about disks.

use super::*;
use crate::doctor::finding::Severity;
use crate::doctor::finding::tests::{assert_fine, assert_found};

fn place(available: u64, inodes: u64) -> Place {
    Place {
        folder: "/var/lib".into(),
        space: DiskSpace {
            total_bytes: 1 << 30,
            available_bytes: available,
            free_bytes: available,
            total_inodes: 1000,
            free_inodes: inodes,
        },
        no_exec: false,
        in_memory: false,
        refused: None,
        no_overlay: None,
    }
}

fn with(place: Place) -> Facts {
    Facts { places: vec![place], ..Facts::default() }
}

#[test]
fn room_and_inodes_are_watched() {
    assert_fine(&judge(&with(place(500 << 20, 500))));
    assert_found(&judge(&with(place(60 << 20, 500))), "disk", Severity::Warning, "du -xh --max-depth=3 /var/lib");
    assert_found(&judge(&with(place(1 << 20, 500))), "disk", Severity::Error, "edge-runtime images");
    assert_found(&judge(&with(place(500 << 20, 10))), "inodes", Severity::Warning, "du --inodes");
    let btrfs = Place { space: DiskSpace { total_inodes: 0, ..place(500 << 20, 0).space }, ..place(0, 0) };
    assert_fine(&judge(&with(btrfs)));
}

#[test]
fn a_disk_that_takes_nothing_runs_nothing_or_forgets_is_found() {
    let refused = |why: &str| with(Place { refused: Some(why.into()), ..place(500 << 20, 500) });
    assert_found(
        &judge(&refused("Read-only file system (os error 30)")),
        "disk",
        Severity::Error,
        "remount,rw /var/lib",
    );
    assert_found(&judge(&refused("No space left on device")), "disk", Severity::Error, "du -xh");
    let no_exec = with(Place { no_exec: true, ..place(500 << 20, 500) });
    assert_found(&judge(&no_exec), "disk-exec", Severity::Error, "/etc/fstab");
    let no_overlay = with(Place { no_overlay: Some("Invalid argument".into()), ..place(500 << 20, 500) });
    assert_found(&judge(&no_overlay), "disk-overlay", Severity::Error, "mkfs.ext4");
    let in_memory = with(Place { in_memory: true, ..place(500 << 20, 500) });
    assert_found(&judge(&in_memory), "disk-memory", Severity::Warning, "on a disk");
}

#[test]
fn reported_health_of_the_medium_is_shown() {
    let broken = Facts { trouble: Some("the file system has recorded errors".into()), ..Facts::default() };
    assert_found(&judge(&broken), "disk-health", Severity::Error, "fsck");
    let worn = |tenths| judge(&Facts { worn_tenths: Some(tenths), ..Facts::default() });
    assert_found(&worn(9), "disk-wear", Severity::Warning, "replace the medium");
    assert_fine(&worn(3));
    let temp = tempfile::tempdir().unwrap();
    let device = temp.path().join("block/mmcblk0/device");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("life_time"), "0x03 0x0a\n").unwrap();
    assert_eq!((super::worn(temp.path()), super::worn(Path::new("/nowhere"))), (Some(10), None));
}
