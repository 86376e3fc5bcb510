//! The disk: space, inodes, and its own health data. (Read-only, noexec and in memory are in `doctor`.)

use std::path::Path;

use sampan_tests::can_run;

use crate::assert_provoked;
use crate::stage::Stage;

/// Mounts a file system from a file at the node's root.
fn with_ext4(stage: Stage, megabytes: u64) -> Stage {
    let (at, file) = (stage.root().display().to_string(), stage.root().with_extension("img").display().to_string());
    stage
        .run(&format!("truncate -s {megabytes}M {file}; mkfs.ext4 -q -F -m 0 -E nodiscard {file}"))
        .run(&format!("mount -o loop {file} {at}"))
}

fn has_loop_devices() -> bool {
    let has = Path::new("/dev/loop-control").exists();
    if !has {
        use std::io::Write;
        // There is nothing to do if stderr is closed.
        let _ = writeln!(std::io::stderr(), "skipped: this host has no loop devices");
    }
    has
}

#[test]
fn little_room_and_no_inodes() {
    if !can_run() {
        return;
    }
    let stage = Stage::new();
    let at = stage.root().display().to_string();
    let few = stage
        .run(&format!("mount -t tmpfs -o size=10m,nr_inodes=40 few {at}"))
        .run(&format!("for i in {{1..38}}; do : > {at}/$i; done"))
        .examined();
    assert_provoked(&few, "inodes", "warning", "1 inodes (2 %) are free", "du --inodes -xd 3");
    if !has_loop_devices() {
        return;
    }
    let stage = Stage::new();
    let at = stage.root().display().to_string();
    let little = with_ext4(stage, 600).run(&format!("fallocate -l 530M {at}/filler")).examined();
    assert_provoked(&little, "disk", "warning", "MiB (", &format!("du -xh --max-depth=3 {at}"));
}

#[test]
fn a_medium_that_is_worn_or_has_lost_something() {
    if !can_run() {
        return;
    }
    let worn = Stage::new().folder("/sys/block", &[("mmcblk0/device/life_time", "0x03 0x0a")]).examined();
    assert_provoked(&worn, "disk-wear", "warning", "100 % of its life", "replace the medium soon");
    if !has_loop_devices() {
        return;
    }
    let stage = Stage::new();
    let at = stage.root().display().to_string();
    // As eMMC reports that its spare blocks are used up.
    let device = format!("\"/sys/dev/block/$(mountpoint -d {at})\"");
    let ends = with_ext4(stage, 100)
        .run("mount -t tmpfs stage /sys/dev/block")
        .run(&format!("mkdir -p {device}/device; echo 0x03 > {device}/device/pre_eol_info"))
        .examined();
    assert_provoked(&ends, "disk-health", "error", "end of its life", "replace the medium");
    // The kernel's own way to cause a recorded error.
    let stage = Stage::new();
    let at = stage.root().display().to_string();
    let trigger = format!("/sys/fs/ext4/$(basename \"$(findmnt -no SOURCE {at})\")/trigger_fs_error");
    let broken = with_ext4(stage, 100).run(&format!("echo doctor > {trigger}")).examined();
    assert_provoked(&broken, "disk-health", "error", "has recorded errors", "fsck -f at the next boot");
}

#[test]
fn state_on_an_overlay_starts_no_container() {
    if !can_run() {
        return;
    }
    let stage = Stage::new();
    let at = stage.root().display().to_string();
    let found = stage
        .run(&format!("mount -t tmpfs none {at}; mkdir {at}/l {at}/u {at}/w"))
        .run(&format!("mount -t overlay overlay -o lowerdir={at}/l,upperdir={at}/u,workdir={at}/w {at}"))
        .examined();
    assert_provoked(&found, "disk-overlay", "error", "takes no writable layer", "mkfs.ext4");
}
