//! What a reset deletes and what it does not.

use super::*;

#[test]
fn state_on_a_disk_of_its_own_is_not_reset() {
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state");
    refuse_mounted(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    refuse_mounted(&state).unwrap();
    std::fs::remove_dir(&state).unwrap();
    std::os::unix::fs::symlink("/proc", &state).unwrap();
    assert!(matches!(refuse_mounted(&state), Err(CliError::Failed(why)) if why.contains("mounted at /proc,")));
}

#[test]
fn logs_of_other_nodes_stay() {
    let root = tempfile::tempdir().unwrap();
    let paths = Paths::new(root.path());
    let logs = ["default_web_0a-1", "default_web_0b-2", "default_web_", "x_..", "readme"];
    for folder in logs.map(|name| paths.all_pod_logs().join(name)).into_iter().chain([paths.pod("0a-1")]) {
        std::fs::create_dir_all(folder).unwrap();
    }
    remove_logs(&paths).unwrap();
    let left = logs.map(|name| paths.all_pod_logs().join(name).exists());
    assert_eq!(left, [false, true, true, true, true]);
    logs[1..].iter().for_each(|name| std::fs::remove_dir(paths.all_pod_logs().join(name)).unwrap());
    remove_logs(&paths).unwrap();
    assert!(!paths.all_pod_logs().exists(), "an empty folder goes, too");
}

#[test]
fn sockets_of_the_helper_go_and_what_is_a_plugins_stays() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("kubelet");
    remove_sockets(&root);
    for folder in ["device-plugins", "pod-resources", "plugins_registry"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let stale = |name: &str| drop(std::os::unix::net::UnixListener::bind(root.join(name)).unwrap());
    stale("device-plugins/kubelet.sock");
    stale("device-plugins/gpu.sock");
    let kubelet = std::os::unix::net::UnixListener::bind(root.join("pod-resources/kubelet.sock")).unwrap();
    remove_sockets(&root);
    let left =
        ["device-plugins/gpu.sock", "device-plugins/kubelet.sock", "pod-resources/kubelet.sock", "plugins_registry"];
    assert_eq!(left.map(|name| root.join(name).exists()), [true, false, true, false]);
    std::fs::remove_file(root.join("device-plugins/gpu.sock")).unwrap();
    drop(kubelet);
    remove_sockets(&root);
    assert!(!root.exists(), "an empty folder goes, too");
}

#[test]
fn volumes_of_drivers_are_unmounted_and_nothing_behind_a_link() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    unmount_volumes(&root.join("missing")).unwrap();
    let place = |below: &str| {
        let place = root.join(below);
        std::fs::create_dir_all(&place).unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("reset-test"), &place, Some("tmpfs"), flags, Some("size=4k")).unwrap();
        place
    };
    place("own/pods/uid/volumes/kubernetes.io~csi/pv/mount");
    place("own/plugins/kubernetes.io/csi/d.example.com/0a/globalmount");
    let others = [place("own/plugins/d.example.com/data"), place("other/pods/uid/volumes/kubernetes.io~csi/pv/mount")];
    std::fs::create_dir(root.join("linked")).unwrap();
    std::os::unix::fs::symlink(root.join("other/pods"), root.join("linked/pods")).unwrap();
    let [own, bind] = [root.join("own"), root.join("bound")];
    std::fs::create_dir(&bind).unwrap();
    let none = None::<&str>;
    nix::mount::mount(Some(&bind), &bind, none, nix::mount::MsFlags::MS_BIND, none).unwrap();
    assert!(files::mounts_below(&own).unwrap().len() == 3 && files::mounts_below(&bind).unwrap().len() == 1);
    for node in ["own", "linked", "bound"] {
        unmount_volumes(&root.join(node)).unwrap();
    }
    let left = files::mounts_below(&root).unwrap();
    for other in &others {
        assert!(files::unmount(other).unwrap());
    }
    assert_eq!(left, others);
}

#[test]
fn helpers_of_this_node_are_known_by_their_arguments() {
    let paths = Paths::new(Path::new("/srv/node"));
    let is = |program: &str, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        is_helper(Path::new(program), &words, &paths)
    };
    let own = "/usr/bin/edge-runtime";
    for line in [
        "/proc/self/exe dns --root /srv/node --listen 10.86.0.1",
        "edge-runtime pull --root /srv/node --helper -- web:1",
        "edge-runtime sweep --root /srv/node/",
    ] {
        assert!(is(own, line) && is("/usr/bin/edge-runtime (deleted)", line), "{line}");
        assert!(!is("/usr/bin/vi", line), "{line}");
    }
    assert!(is("/usr/bin/edge-devices", "edge-devices --socket /srv/node/run/edge-runtime/devices.sock"));
    assert!(is("/usr/bin/edge-api", "edge-api --socket /srv/node/run/edge-runtime/api.sock"));
    assert!(is("/usr/bin/edge-plugins", "edge-plugins --socket /srv/node/run/edge-runtime/device-plugins.sock"));
    for line in [
        "/proc/self/exe dns --root /srv/other",
        "edge-runtime pull --root /srv/node web:1",
        "edge-runtime reset --all --root /srv/node",
        "edge-runtime run --root /srv/node",
        "edge-runtime",
    ] {
        assert!(!is(own, line), "{line}");
    }
    assert!(!is("/usr/bin/edge-devices", "edge-devices --socket /srv/other/run/edge-runtime/devices.sock"));
    assert!(!is("/usr/bin/edge-api", "edge-api --socket /srv/other/run/edge-runtime/api.sock"));
    assert!(!is("/usr/bin/edge-plugins", "edge-plugins --socket /srv/node/run/edge-runtime/api.sock"));
}
