//! Real namespaces, made on the test's own thread inside namespaces of its own: nothing is left behind.
#![allow(clippy::print_stderr)]

use super::*;

/// Moves this thread away from the host's mounts and network. False (with the reason said) without root.
pub(in crate::net) fn isolate() -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to make namespaces");
        return false;
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)
        .unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
    true
}

fn own(name: &str) -> PathBuf {
    fs::read_link(Path::new("/proc/thread-self/ns").join(name)).unwrap()
}

fn mounts_below(dir: &Path) -> usize {
    let dir = dir.display().to_string();
    fs::read_to_string("/proc/thread-self/mountinfo").unwrap().matches(&dir).count()
}

const POD: NamespaceRequest<'_> =
    NamespaceRequest { net: true, ipc: true, hostname: Some("web-0"), sysctls: &[], first_id: None };

#[test]
fn a_pods_namespaces_are_its_own_and_the_thread_comes_back() {
    if !isolate() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("ns/u1");
    let maker = NamespaceMaker::open().unwrap();
    let before: Vec<_> = ["net", "ipc", "uts"].map(own).into();
    let made = maker.create(&dir, &POD).unwrap();
    assert_eq!(before, Vec::from(["net", "ipc", "uts"].map(own)));
    assert_eq!(existing(&dir, &POD).as_ref(), Some(&made));

    let netns = File::open(made.net.unwrap()).unwrap();
    let inside = OwnNetwork::open()
        .unwrap()
        .inside(&netns, || (own("net"), std::net::TcpListener::bind("127.0.0.1:0").is_ok()))
        .unwrap();
    assert_ne!(inside.0, before[0]);
    assert!(inside.1, "loopback is up");
    let uts = File::open(made.uts.unwrap()).unwrap();
    setns(&uts, CloneFlags::CLONE_NEWUTS).unwrap();
    assert_eq!(nix::unistd::gethostname().unwrap(), "web-0");
    maker.come_back(CloneFlags::CLONE_NEWUTS);

    remove(&dir).unwrap();
    assert!(!dir.exists());
    assert_eq!(mounts_below(&dir), 0);
    assert_eq!(existing(&dir, &POD), None);
    remove(&dir).unwrap();
}

#[test]
fn host_network_pins_only_requested_namespaces() {
    if !isolate() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("u1");
    let request = NamespaceRequest { net: false, ipc: true, hostname: None, sysctls: &[], first_id: None };
    let made = NamespaceMaker::open().unwrap().create(&dir, &request).unwrap();
    assert_eq!((made.net, made.uts), (None, None));
    assert!(made.ipc.is_some() && existing(&dir, &request).is_some() && existing(&dir, &POD).is_none());
    remove(&dir).unwrap();
}

#[test]
fn remains_of_a_crash_are_replaced_and_removed() {
    if !isolate() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("u1");
    let maker = NamespaceMaker::open().unwrap();
    // A folder with one file not yet mounted on, one mounted twice.
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("net"), "").unwrap();
    fs::write(dir.join("ipc"), "").unwrap();
    for _ in 0..2 {
        mount(Some("/proc/thread-self/ns/ipc"), &dir.join("ipc"), None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .unwrap();
    }
    assert_eq!(existing(&dir, &POD), None);
    maker.create(&dir, &POD).unwrap();
    assert_eq!(mounts_below(&dir), 3);
    maker.create(&dir, &POD).unwrap();
    assert_eq!(mounts_below(&dir), 3);
    etc_files::write(&dir, &etc_files::EtcFiles::default()).unwrap();
    remove(&dir).unwrap();
    assert_eq!(mounts_below(&dir), 0);
    assert!(!dir.exists());
}

#[test]
fn files_are_rewritten_in_place() {
    use std::os::unix::fs::MetadataExt;
    let temp = tempfile::tempdir().unwrap();
    let mut files = etc_files::EtcFiles { hosts: "a".into(), hostname: "b".into(), resolv_conf: "c".into() };
    etc_files::write(temp.path(), &files).unwrap();
    let hosts = temp.path().join(etc_files::HOSTS);
    let inode = fs::metadata(&hosts).unwrap().ino();
    files.hosts = "longer".into();
    etc_files::write(temp.path(), &files).unwrap();
    assert_eq!(fs::metadata(&hosts).unwrap().ino(), inode);
    assert_eq!(fs::read_to_string(&hosts).unwrap(), "longer");
}
