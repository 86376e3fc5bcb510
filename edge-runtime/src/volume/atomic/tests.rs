//! Layout, atomicity under a reader, and what a crash leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn payload(files: &[(&str, &str)]) -> Payload {
    files
        .iter()
        .map(|(path, data)| ((*path).to_string(), File { data: data.as_bytes().to_vec(), mode: 0o640, owner: None }))
        .collect()
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_appear_change_and_go_as_one() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("v");
    assert!(!exists(&dir));
    assert!(write(&dir, &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap());
    assert!(exists(&dir));
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
    assert_eq!(fs::read_to_string(dir.join("sub/b")).unwrap(), "2");
    assert_eq!(fs::read_link(dir.join("a")).unwrap(), Path::new("..data/a"));
    assert_eq!(fs::metadata(dir.join("a")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert!(!write(&dir, &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap());
    assert!(write(&dir, &payload(&[("a", "3")]), None).unwrap());
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "3");
    assert_eq!(entries(&dir).len(), 3, "{:?}", entries(&dir));
    assert!(write(&dir, &payload(&[]), None).unwrap());
    assert_eq!(entries(&dir).len(), 2);
}

#[test]
fn remains_of_a_crash_are_repaired() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("v");
    let files = payload(&[("a", "1")]);
    write(&dir, &files, None).unwrap();
    // Killed before the switch (stray folder and link), and another time before the names were published.
    fs::create_dir(dir.join("..2020_01_01_00_00_00.000000001")).unwrap();
    symlink("..gone", dir.join(DATA_NEW)).unwrap();
    fs::remove_file(dir.join("a")).unwrap();
    assert!(!write(&dir, &files, None).unwrap());
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
    assert!(write(&dir, &payload(&[("a", "2")]), None).unwrap());
    assert_eq!(entries(&dir).len(), 3, "{:?}", entries(&dir));
}

#[test]
fn group_gets_the_permissions_of_the_owner() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("v");
    let files = Payload::from_iter([("sub/a".to_string(), File { data: Vec::new(), mode: 0o400, owner: None })]);
    write(&dir, &files, Some(2000)).unwrap();
    let file = fs::metadata(dir.join("sub/a")).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o7777), (2000, 0o440));
    let folder = fs::metadata(dir.join("sub")).unwrap();
    assert_eq!((folder.gid(), folder.mode() & 0o7777), (2000, 0o2755));
}

#[test]
fn a_reader_never_sees_a_mixed_set() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("v");
    let files = |n: u32| payload(&[("a", &n.to_string()), ("b", &n.to_string())]);
    write(&dir, &files(0), None).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let (dir, stop) = (dir.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                // One resolution of `..data`, as a careful program does it.
                let Ok(set) = fs::canonicalize(dir.join(DATA)) else { continue };
                if let (Ok(a), Ok(b)) = (fs::read_to_string(set.join("a")), fs::read_to_string(set.join("b"))) {
                    assert_eq!(a, b);
                    seen += 1;
                }
                // By name there is always a whole file.
                assert!(!fs::read_to_string(dir.join("a")).is_ok_and(|text| text.is_empty()));
            }
            seen
        })
    };
    for n in 1..=1000 {
        write(&dir, &files(n), None).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}
