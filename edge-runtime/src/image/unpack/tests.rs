//! Layers as honest tools make them and as attackers do.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use tar::Builder;

use super::*;

/// A tar written entry by entry, with names that the tar crate itself would refuse.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn entry(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o640);
        header.set_uid(1000);
        header.set_gid(100);
        header.set_mtime(1_000_000_000);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, name, "", content.as_bytes())
    }

    fn dir(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, "", b"")
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"")
    }

    fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    fn unpack(self) -> Result<Unpacked, ImageError> {
        Unpacked::of(&self.bytes(), &Limits::default())
    }
}

/// A folder with a canary beside the layer's root.
struct Unpacked {
    outside: tempfile::TempDir,
    root: PathBuf,
}

impl Unpacked {
    fn of(layer: &[u8], limits: &Limits) -> Result<Self, ImageError> {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(outside.path().join("canary"), "untouched").unwrap();
        let result = unpack(layer, &root, limits);
        let names: Vec<_> = fs::read_dir(outside.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "only the root and the canary may be there: {names:?}");
        assert_eq!(fs::read_to_string(outside.path().join("canary")).unwrap(), "untouched");
        result.map(|_| Self { outside, root })
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    fn meta(&self, path: &str) -> fs::Metadata {
        fs::symlink_metadata(self.root.join(path)).unwrap()
    }
}

fn not_root(what: &str) -> bool {
    let missing = !geteuid().is_root();
    if missing {
        eprintln!("skipped: {what} needs root");
    }
    missing
}

#[test]
fn files_links_and_folders_come_out_as_they_went_in() {
    let out = Layer::new()
        .dir("./")
        .dir("bin/")
        .file("bin/busybox", "binary")
        .symlink("bin/sh", "/bin/busybox")
        .hard_link("bin/ash", "bin/busybox")
        .file("no/folder/entry", "x")
        .entry(EntryType::Fifo, "fifo", "", b"")
        .unpack()
        .unwrap();
    assert_eq!(out.read("bin/ash"), "binary");
    assert_eq!(out.meta("bin/ash").ino(), out.meta("bin/busybox").ino());
    assert_eq!(fs::read_link(out.root.join("bin/sh")).unwrap(), PathBuf::from("/bin/busybox"));
    assert_eq!(out.meta("bin/busybox").permissions().mode() & 0o7777, 0o640);
    assert!(out.meta("fifo").file_type().is_fifo());
    for path in ["", "bin", "bin/busybox", "bin/sh", "fifo"] {
        assert_eq!(out.meta(path).mtime(), 1_000_000_000, "{path}");
        if geteuid().is_root() {
            assert_eq!((out.meta(path).uid(), out.meta(path).gid()), (1000, 100), "{path}");
        }
    }
    assert_eq!(out.meta("no/folder").permissions().mode() & 0o7777, 0o755);
    drop(out.outside);
}

#[test]
fn climbing_names_are_refused_by_name() {
    for name in ["../escape", "a/../../escape", "/../escape", "a/.."] {
        let error = Layer::new().file(name, "x").unpack().err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("climbs"), "{error}");
        assert!(Layer::new().dir(name).unpack().is_err());
        assert!(Layer::new().file("f", "x").hard_link("l", name).unpack().is_err());
        assert!(Layer::new().file(&format!("{name}/.wh.x"), "").unpack().is_err());
    }
}

#[test]
fn an_absolute_name_is_taken_from_the_root_of_the_layer() {
    assert_eq!(Layer::new().file("/etc/passwd", "inside").unpack().unwrap().read("etc/passwd"), "inside");
}

#[test]
fn links_lead_to_places_of_the_layer() {
    let targets = [
        ("/tmp", "tmp/canary"),
        ("..", "canary"),
        ("../..", "canary"),
        ("/", "canary"),
        ("/proc/self/cwd", "proc/self/cwd/canary"),
        ("a/../../..", "canary"),
        ("b/../c/./d", "c/d/canary"),
    ];
    for (target, place) in targets {
        let layer = || Layer::new().dir("a").symlink("out", target);
        // The canary outside is looked at by `Unpacked`.
        let out = layer().file("out/canary", "x").unpack().unwrap();
        assert_eq!(out.read(place), "x", "{target}");
        assert!(out.meta("out").is_symlink());
        let out = layer().dir("out/d").file("out/d/canary", "y").unpack().unwrap();
        assert_eq!(out.read(&place.replace("canary", "d/canary")), "y", "{target}");
        assert!(layer().hard_link("mine", "out/canary").unpack().is_err(), "it is not in the layer");
        if geteuid().is_root() {
            layer().file("out/.wh.canary", "").unpack().unwrap();
            layer().file("out/.wh..wh..opq", "").unpack().unwrap();
        }
    }
    let error = Layer::new().symlink("a", "b").symlink("b", "a").file("a/x", "").unpack().err().unwrap();
    assert!(error.to_string().contains("circle"), "{error}");
    // Six links in a row, each to 45 folders below the last.
    let folders = "d/".repeat(45);
    let layer = (0..6).fold(Layer::new().symlink("l", "/"), |layer, n| {
        let last = "l".repeat(n + 1);
        layer.symlink(&format!("{last}l"), &format!("{last}/{folders}"))
    });
    assert!(layer.file("lllllll/x", "").unpack().is_err());
}

#[test]
fn a_link_that_stays_inside_may_be_used() {
    let out = Layer::new().dir("usr/lib").symlink("lib", "usr/lib").file("lib/libc.so", "elf").unpack().unwrap();
    assert_eq!(out.read("usr/lib/libc.so"), "elf");
}

#[test]
fn file_replaces_a_link_of_its_name() {
    let out = Layer::new().symlink("name", "../canary").file("name", "mine").unpack().unwrap();
    assert!(out.meta("name").is_file());
    assert_eq!(out.read("name"), "mine");
    let out = Layer::new().symlink("name", "..").dir("name").unpack().unwrap();
    assert!(out.meta("name").is_dir());
    let out = Layer::new().symlink("link", "../canary").hard_link("mine", "link").unpack().unwrap();
    assert!(out.meta("mine").is_symlink());
}

#[test]
fn the_last_entry_of_a_name_wins() {
    let out = Layer::new().file("d/inner/file", "1").file("d", "file now").unpack().unwrap();
    assert_eq!(out.read("d"), "file now");
    let out = Layer::new().file("d", "file").dir("d").file("d/x", "2").file("d/x", "3").unpack().unwrap();
    assert_eq!(out.read("d/x"), "3");
    // The folder of the last entry is replaced by a link that would lead out.
    let out = Layer::new().file("d/x", "1").symlink("d", "..").file("d/canary", "2").unpack().unwrap();
    assert_eq!(out.read("canary"), "2");
}

#[test]
fn whiteouts_become_those_of_overlayfs() {
    if not_root("whiteouts") {
        return;
    }
    let out = Layer::new()
        .file("gone/.wh.file", "")
        .file("opaque/.wh..wh..opq", "")
        .file("kept", "k")
        .file(".wh.kept", "")
        .dir("again")
        .file(".wh.again", "")
        .file(".wh.before", "")
        .dir("before")
        .file(".wh..wh.plnk", "")
        .file("was a folder", "f")
        .file("was a folder/.wh.x", "")
        .file("was a folder/.wh..wh..opq", "")
        .unpack()
        .unwrap();
    assert_eq!(out.read("was a folder"), "f");
    let whiteout = out.meta("gone/file");
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert_eq!(out.read("kept"), "k", "a whiteout does not hide what its own layer has");
    for dir in ["opaque", "again", "before"] {
        assert_eq!(get_xattr(&out.root.join(dir), "trusted.overlay.opaque").as_deref(), Some(&b"y"[..]), "{dir}");
    }
    assert!(!out.root.join(".wh..wh.plnk").exists());
}

#[test]
fn devices_and_attributes_are_kept_and_overlayfs_ones_are_not() {
    if not_root("devices") {
        return;
    }
    let mut layer = Layer::new().entry(EntryType::Char, "null", "", b"");
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    layer
        .0
        .append_pax_extensions([
            ("SCHILY.xattr.security.capability", &capability[..]),
            ("SCHILY.xattr.trusted.overlay.redirect", &b"/etc"[..]),
            ("SCHILY.xattr.trusted.overlay.opaque", &b"y"[..]),
        ])
        .unwrap();
    let out = layer.file("ping", "elf").unpack().unwrap();
    assert_eq!(out.meta("null").rdev(), makedev(1, 3));
    let ping = out.root.join("ping");
    assert_eq!(get_xattr(&ping, "security.capability").as_deref(), Some(&capability[..]));
    assert_eq!(get_xattr(&ping, "trusted.overlay.redirect"), None);
    assert_eq!(get_xattr(&ping, "trusted.overlay.opaque"), None);
}

#[test]
fn folders_of_old_archives_end_with_a_slash() {
    let old = |name: &str| {
        let mut header = Header::new_old();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkflag = [0];
        header.set_mode(0o750);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        header.set_cksum();
        header
    };
    let mut layer = Builder::new(Vec::new());
    for name in ["./", "etc/", "etc/empty"] {
        layer.append(&old(name), &b""[..]).unwrap();
    }
    let out = Unpacked::of(&layer.into_inner().unwrap(), &Limits::default()).unwrap();
    assert!(out.meta("etc").is_dir() && out.meta("etc/empty").is_file());
    assert_eq!(out.meta("etc").permissions().mode() & 0o7777, 0o750);
}

#[test]
fn attributes_may_have_line_breaks() {
    let mut layer = Layer::new();
    // cap_net_bind_service and cap_net_raw beside others: the file of telegraf's image (composefs/tar-rs#428).
    let capability = [1, 0, 0, 2, 2, 0, b'\n', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    layer
        .0
        .append_pax_extensions([
            ("SCHILY.xattr.security.capability", &capability[..]),
            ("SCHILY.xattr.user.note", &b"one\n\n13 path=no\ntwo"[..]),
            ("path", &b"usr/bin/telegraf"[..]),
        ])
        .unwrap();
    let out = layer.file("short", "elf").unpack().unwrap();
    assert_eq!(out.read("usr/bin/telegraf"), "elf");
    if !not_root("capabilities") {
        let found = get_xattr(&out.root.join("usr/bin/telegraf"), "security.capability");
        assert_eq!(found.as_deref(), Some(&capability[..]));
    }
}

#[test]
fn a_cut_archive_is_an_error_and_names_where() {
    let whole = Layer::new().file("first", "1").file("second", &"x".repeat(5000)).bytes();
    for cut in [100, 512 + 300, 512 + 512 + 512 + 1000] {
        assert!(Unpacked::of(&whole[..cut], &Limits::default()).is_err(), "cut at {cut}");
    }
    let error = Unpacked::of(&whole[..2048], &Limits::default()).err().unwrap().to_string();
    assert!(error.contains("second") && error.contains("ends"), "{error}");
}

#[test]
fn floods_are_stopped() {
    let small = Limits { entries: 3, layer_bytes: 1000, ..Limits::default() };
    let many = (0..5).fold(Layer::new(), |layer, i| layer.file(&format!("f{i}"), ""));
    assert!(matches!(Unpacked::of(&many.bytes(), &small), Err(ImageError::Limit { limit: 3, .. })));
    let big = Layer::new().file("big", &"x".repeat(1001));
    assert!(matches!(Unpacked::of(&big.bytes(), &small), Err(ImageError::Limit { limit: 1000, .. })));
    // A size field is trusted only up to the limit.
    let mut header = Header::new_gnu();
    header.set_path("endless").unwrap();
    header.set_size(u64::MAX / 2);
    header.set_cksum();
    assert!(Unpacked::of(header.as_bytes(), &Limits::default()).is_err());
}

#[test]
fn a_missing_or_odd_link_target_is_an_error() {
    assert!(Layer::new().hard_link("l", "nowhere").unpack().is_err());
    assert!(Layer::new().dir("d").hard_link("l", "d").unpack().is_err());
    assert!(Layer::new().hard_link("l", "/").unpack().is_err());
    assert!(Layer::new().file("f", "1").hard_link("f", "f").unpack().is_ok());
}

#[test]
fn odd_times_and_types() {
    let mut header = Header::new_gnu();
    header.set_path("future").unwrap();
    header.set_mtime(u64::MAX / 2);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    assert!(Unpacked::of(header.as_bytes(), &Limits::default()).is_ok());
    let error = Layer::new().entry(EntryType::new(b'Z'), "odd", "", b"").unpack().err().unwrap();
    assert!(error.to_string().contains("'Z'"), "{error}");
}

fn get_xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    // getfattr is not everywhere; python's standard library is.
    let script = "import os,sys;sys.stdout.buffer.write(os.getxattr(sys.argv[1],sys.argv[2]))";
    let out = std::process::Command::new("python3").args(["-c", script]).arg(path).arg(name).output().unwrap();
    out.status.success().then_some(out.stdout)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Any entries in any order: nothing is written outside.
    #[test]
    fn no_sequence_of_entries_escapes(
        entries in proptest::collection::vec((0..5_u8, "[ab./]{1,6}", "[ab./]{1,6}"), 1..12)
    ) {
        let kinds = [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Link, EntryType::Fifo];
        let layer = entries.iter().fold(Layer::new(), |layer, (kind, name, link)| {
            layer.entry(kinds[usize::from(*kind)], name, link, b"")
        });
        let _ = layer.unpack();
    }
}

#[test]
fn records_of_more_than_a_megabyte_are_refused_unread() {
    for kind in [EntryType::XHeader, EntryType::GNULongName, EntryType::GNULongLink] {
        let layer = Layer::new().entry(kind, "record", "", &vec![b'x'; 2 << 20]).file("f", "1");
        let error = layer.unpack().err().unwrap().to_string();
        assert!(error.contains("1 MiB"), "{error}");
    }
    // Content of files does not count as records, not even when it is skipped.
    let large = vec![b'x'; 3 << 20];
    let out = Layer::new()
        .entry(EntryType::Regular, "a", "", &large)
        .entry(EntryType::Directory, "d", "", &large)
        .entry(EntryType::XGlobalHeader, "g", "", &large)
        .file("f", "1")
        .unpack()
        .unwrap();
    assert_eq!((out.meta("a").len(), out.read("f").as_str()), (3 << 20, "1"));
}

#[test]
fn sparse_files_in_pax_form_are_expanded() {
    let mut layer = Layer::new();
    let keys = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "srv/disk")];
    let keys = keys.iter().map(|(key, value)| (*key, value.as_bytes()));
    layer.0.append_pax_extensions(keys.chain([("GNU.sparse.realsize", &b"3000000"[..])])).unwrap();
    let mut content = b"2\n1000000\n3\n3000000\n0\n".to_vec();
    content.resize(512, 0);
    content.extend_from_slice(b"end");
    let out =
        layer.entry(EntryType::Regular, "srv/GNUSparseFile.7/disk", "", &content).file("f", "1").unpack().unwrap();
    let disk = fs::read(out.root.join("srv/disk")).unwrap();
    assert_eq!((disk.len(), &disk[1_000_000..1_000_003]), (3_000_000, &b"end"[..]));
    assert!(disk.iter().filter(|byte| **byte != 0).count() == 3 && !out.root.join("srv/GNUSparseFile.7").exists());
    assert_eq!(out.read("f"), "1");
}

#[test]
fn undescribed_folders_are_returned() {
    let layer = Layer::new().file("tmp/x", "").file("srv/app/y", "").dir("srv").file("etc/.wh.gone", "").bytes();
    let temp = tempfile::tempdir().unwrap();
    let told = unpack(&layer[..], temp.path(), &Limits::default()).unwrap();
    let expected: &[&str] = if geteuid().is_root() { &["etc", "srv/app", "tmp"] } else { return };
    assert_eq!(told, expected);
}
