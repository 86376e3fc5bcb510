use std::os::fd::AsRawFd;
use std::process::Command;

use nix::fcntl::openat;

use super::super::limits::LONGEST;
use super::*;

fn question(uid: &str, logs: &Path) -> Question {
    Question { uid: uid.into(), logs: logs.into(), elsewhere: false, patience: LONGEST }
}

fn bounds() -> Bounds {
    Bounds { entries: MOST_ENTRIES, until: Instant::now() + LONGEST }
}

#[test]
fn a_pods_folders_are_counted_by_kind() {
    let temp = tempfile::tempdir().unwrap();
    let paths = Paths::new(temp.path());
    let (pod, logs) = (paths.pod("u"), temp.path().join("logs"));
    for (file, kib) in [("volumes/v/a/b", 64), ("containers/c/0/upper/x", 8), ("containers/c/1/volumes/0/held/x", 8)] {
        let file = pod.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, vec![1; kib << 10]).unwrap();
    }
    std::fs::create_dir_all(logs.join("c")).unwrap();
    std::fs::write(logs.join("c/0.log"), vec![1; 4 << 10]).unwrap();
    std::fs::create_dir_all(pod.join("objects/o")).unwrap();
    // What every pod can write without a volume or a layer.
    std::fs::write(pod.join("containers/c/1/termination-log"), vec![1; 32 << 10]).unwrap();
    std::fs::create_dir_all(paths.pod_files("u")).unwrap();
    std::fs::write(paths.pod_files("u").join("hosts"), vec![1; 128 << 10]).unwrap();
    std::fs::hard_link(pod.join("volumes/v/a/b"), pod.join("volumes/v/a/again")).unwrap();
    let used = usage_of(&paths, &question("u", &logs));
    let near = |used: Used, kib: u64| used.bytes >= kib << 10 && used.bytes <= (kib + 16) << 10;
    assert!(near(used.volumes["v"], 64), "{used:?}");
    assert!(near(used.layers["c"], 48) && near(used.files, 128) && near(used.logs["c"], 4), "{used:?}");
    assert_eq!((used.total().inodes, used.beyond), (3 + 7 + 2 + 2, None));
    assert!(used.elsewhere.is_empty());
    let all = usage_of(&paths, &Question { elsewhere: true, ..question("u", &logs) });
    assert_eq!((all.elsewhere["o"].inodes, all.total()), (1, used.total()));
    assert_eq!(usage_of(&paths, &question("x", Path::new("/nowhere"))), DiskUsage::default());
}

/// Folders in one another.
fn deep(top: &Path, name: &str, depth: usize) -> std::os::fd::OwnedFd {
    let mut at = open(top, FOLDER, Mode::empty()).unwrap();
    for _ in 0..depth {
        nix::sys::stat::mkdirat(&at, name, Mode::S_IRWXU).unwrap();
        at = openat(&at, name, FOLDER, Mode::empty()).unwrap();
    }
    at
}

#[test]
fn a_deep_tree_hides_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let at = deep(temp.path(), &"n".repeat(200), 40);
    std::fs::write(format!("/proc/self/fd/{}/file", at.as_raw_fd()), vec![1; 1 << 20]).unwrap();
    let (used, stopped) = size(temp.path(), &mut bounds());
    assert!(used.bytes >= 1 << 20 && used.inodes == 42 && stopped.is_none(), "{used:?} {stopped:?}");
    crate::sys::delete::delete_tree(temp.path()).unwrap();
}

/// One path is as long as all names together; the other paths have one name.
#[test]
fn a_wide_folder_deep_down_costs_no_memory() {
    let temp = tempfile::tempdir().unwrap();
    let at = deep(temp.path(), &"d".repeat(255), 100);
    for n in 0..3000 {
        nix::sys::stat::mkdirat(&at, format!("{n:0255}").as_str(), Mode::S_IRWXU).unwrap();
    }
    let before = peak();
    let (used, stopped) = size(temp.path(), &mut bounds());
    assert_eq!((used.inodes, stopped), (1 + 100 + 3000, None));
    // Whole paths of 26 KB each would be 78 MB.
    assert!(peak() - before < 32 << 10, "{} KiB", peak() - before);
    crate::sys::delete::delete_tree(temp.path()).unwrap();
}

/// Most memory that this process has had at once, in KiB.
fn peak() -> i64 {
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap().max_rss()
}

#[test]
fn pod_beyond_the_bounds_is_reported_so() {
    let temp = tempfile::tempdir().unwrap();
    let paths = Paths::new(temp.path());
    let volume = paths.pod("u").join("volumes/v");
    std::fs::create_dir_all(&volume).unwrap();
    drop(deep(&volume, "d", crate::sys::walk::DEEPEST + 1));
    let used = usage_of(&paths, &question("u", Path::new("/nowhere")));
    assert_eq!(used.beyond, Some(Bound::Depth));
    crate::sys::delete::delete_tree(&volume).unwrap();
    std::fs::create_dir(&volume).unwrap();
    for file in 0..200 {
        std::fs::write(volume.join(file.to_string()), "").unwrap();
    }
    let hurried = Question { patience: Duration::ZERO, ..question("u", Path::new("/nowhere")) };
    assert_eq!(usage_of(&paths, &hurried).beyond, Some(Bound::Time));
    let mut few = Bounds { entries: 100, ..bounds() };
    assert_eq!(size(&volume, &mut few).1, Some(Bound::Entries));
}

#[test]
fn a_helper_that_dies_costs_one_pod() {
    let questions = ["a", "bad", "c", "d"].map(|uid| question(uid, Path::new("/nowhere")));
    // Answers line by line, and dies at the pod `bad`.
    let script = r#"read line || true; for uid in $(printf %s "$line" | grep -o '"uid":"[a-z]*"' | cut -d'"' -f4); do
        [ "$uid" = bad ] && kill -9 $$; echo "{\"volumes\":{\"$uid\":{\"bytes\":1,\"inodes\":1}},\"layers\":{},\"logs\":{}}"; done"#;
    let helper = || {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    };
    let answers = smol::block_on(ask_of(helper, &questions));
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["a", "c", "d"]);
    assert!(answers.iter().all(|(uid, used)| used.volumes.contains_key(uid)), "{answers:?}");
}
