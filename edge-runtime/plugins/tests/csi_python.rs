//! CSI drivers in Python, with the gRPC of Google, which mount folders for real. The helper is a process of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod csi;
mod python;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use csi::*;
use sampan_plugins_control::{FromHelper, ToHelper};
use serde_json::json;

/// Mounting is for root.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn volume_of_two_pods_is_unstaged_after_the_last() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    let shown = json!([{"name": DRIVER, "nodeID": "node-1", "allocatable": {"count": 7},
        "topologyKeys": ["example.com/zone"], "labels": {"example.com/zone": "z1"}}]);
    assert_eq!(node.drivers(1), shown);
    assert_eq!(node.mounted(volume("a")), node.path("a"));
    let seen = driver.seen();
    assert_eq!((&seen["fsType"], &seen["flags"], &seen["mode"]), (&json!("ext4"), &json!(["noatime"]), &json!(1)));
    assert_eq!((&seen["secrets"]["user"], &seen["readOnly"]), (&json!("a"), &json!(false)));
    assert_eq!(seen["context"]["csi.storage.k8s.io/pod.name"], "a-0");
    assert_eq!(seen["context"]["share"], "/a");
    node.mounted(volume("b"));
    // What is there is left alone.
    node.mounted(volume("b"));
    assert!(node.has("a") && node.has("b"));
    node.unmounted("a");
    assert!(!node.path("a").exists() && node.has("b"));
    node.unmounted("b");
    node.unmounted("b");
    assert!(node.is_clean());
    let calls = [
        "NodeStageVolume",
        "NodePublishVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
    ];
    assert_eq!(driver.lines("calls"), calls);
    assert!(driver.lines("wrong").is_empty());
}

/// Calls a controller as the daemon does. Returns gRPC's code and the rest.
fn call(node: &Node, head: &str, length: usize, message: &[u8]) -> (u8, Vec<u8>) {
    let mut stream = node.caller();
    let sent = [head.as_bytes(), b"\n", &u32::try_from(length).unwrap().to_be_bytes(), message].concat();
    // A call that is refused may not be read to its end.
    let _ = stream.write_all(&sent).and_then(|()| stream.shutdown(Shutdown::Write));
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..count]);
    }
    let (length, rest) = answer[1..].split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length), u32::try_from(rest.len()).unwrap());
    (answer[0], rest.to_vec())
}

#[test]
fn controller_is_called_with_its_own_methods_alone() {
    let mut node = Node::start();
    let probe = format!("{DRIVER} /csi.v1.Identity/Probe");
    assert_eq!(call(&node, &probe, 0, &[]).0, 14, "it is not there yet");
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    assert_eq!(call(&node, &probe, 0, &[]), (0, b"\x0a\x02\x08\x01".to_vec()));
    let create = format!("{DRIVER} /csi.v1.Controller/CreateVolume");
    let message = b"\x0a\x01a\x12\x02\x08\x07";
    assert_eq!(call(&node, &create, message.len(), message), (0, b"\x0a\x0f\x08\x07\x12\x0bvolume of a".to_vec()));
    let calls = || driver.lines("calls").iter().filter(|line| *line == "CreateVolume").count();
    assert_eq!(calls(), 1);

    // A message that is cut off or too long, another driver, services of a node, and no call at all.
    let (code, _) = call(&node, &create, message.len() + 1, message);
    assert_eq!(code, 14);
    assert_eq!(call(&node, &create, (4 << 20) + 1, message).0, 8);
    assert_eq!(call(&node, "other.example.com /csi.v1.Controller/CreateVolume", message.len(), message).0, 14);
    for path in ["/csi.v1.Node/NodeUnpublishVolume", "/pluginregistration.Registration/GetInfo", "", "x y z"] {
        assert_eq!(call(&node, &format!("{DRIVER} {path}"), message.len(), message).0, 12, "{path}");
    }
    assert_eq!(call(&node, &"x".repeat(1 << 20), 0, &[]).0, 12);
    assert_eq!(calls(), 1);

    // Answers without an end, and one that never comes.
    driver.flood("CreateVolume");
    assert_eq!(call(&node, &create, message.len(), message).0, 8);
    driver.fail("CreateVolume");
    assert_eq!(call(&node, &create, message.len(), message), (13, b"as asked for".to_vec()));
    driver.hold("CreateVolume", "before");
    let mut held = node.caller();
    held.write_all(&[create.as_bytes(), b"\n\0\0\0\x07", message].concat()).unwrap();
    driver.wait_held();
    drop(held);
    assert_eq!(call(&node, &probe, 0, &[]).0, 0, "others go on");
    driver.release();

    // What is not the socket of the configuration is not called.
    let socket = node.root.join("plugins").join(DRIVER).join("csi.sock");
    std::fs::rename(&socket, socket.with_extension("away")).unwrap();
    symlink(socket.with_extension("away"), &socket).unwrap();
    assert_eq!(call(&node, &probe, 0, &[]).0, 14, "a link");
}

#[test]
fn cancelled_calls_end_while_the_controller_hangs() {
    let node = Node::start();
    let folder = node.root.join("plugins").join(DRIVER);
    std::fs::create_dir_all(&folder).unwrap();
    let controller = UnixListener::bind(folder.join("csi.sock")).unwrap();
    let head = format!("{DRIVER} /csi.v1.Controller/CreateVolume\n\0\0\0\0");
    // As many as are made at once.
    let callers: Vec<_> = std::iter::repeat_with(|| node.caller()).take(8).collect();
    for mut caller in &callers {
        caller.write_all(head.as_bytes()).unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
    }
    let calls: Vec<_> = callers.iter().map(|_| controller.accept().unwrap().0).collect();
    drop(callers);
    for mut call in calls {
        call.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        call.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// Each call, and which order makes it: mount in a, mount in b, unmount in a, unmount in b.
const CALLS: [(&str, usize); 6] = [
    ("NodeStageVolume", 0),
    ("NodePublishVolume", 0),
    ("NodePublishVolume", 1),
    ("NodeUnpublishVolume", 2),
    ("NodeUnpublishVolume", 3),
    ("NodeUnstageVolume", 3),
];
const ORDERS: [(&str, bool); 4] = [("a", true), ("b", true), ("a", false), ("b", false)];

#[test]
fn helper_killed_at_each_call_unstages_only_at_the_end() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    for (method, at) in CALLS {
        for point in ["before", "after"] {
            for (number, (pod, mounts)) in ORDERS.into_iter().enumerate() {
                if number == at {
                    driver.hold(method, point);
                    if mounts {
                        node.mount(volume(pod));
                    } else {
                        node.unmount(pod);
                    }
                    driver.wait_held();
                    let calls = driver.lines("calls").len();
                    node.kill();
                    // The driver carries out a call whose caller has gone.
                    driver.release();
                    until("the call ends", || driver.lines("calls").len() > calls);
                    node.restart(&["a", "b"], 1);
                }
                if mounts {
                    node.mounted(volume(pod));
                } else {
                    node.unmounted(pod);
                }
                let has = [number < 2, (1..3).contains(&number)];
                assert_eq!([node.has("a"), node.has("b")], has, "{method} {point}, order {number}");
            }
            assert!(node.is_clean(), "{method} {point}");
            assert_eq!(driver.lines("calls").last().map(String::as_str), Some("NodeUnstageVolume"));
            assert_eq!(driver.lines("wrong"), Vec::<String>::new(), "{method} {point}");
        }
    }
}

#[test]
fn volumes_of_pods_that_have_gone_are_undone() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    for point in ["before", "after"] {
        node.mounted(volume("a"));
        driver.hold("NodePublishVolume", point);
        node.mount(volume("b"));
        driver.wait_held();
        let calls = driver.lines("calls").len();
        node.kill();
        driver.release();
        until("the call ends", || driver.lines("calls").len() > calls);
        node.restart(&["a"], 1);
        until("the volume of b is undone", || !node.root.join("pods/b").exists());
        assert!(node.has("a"));
        node.keep(&[]);
        until("that of a as well", || node.is_clean());
    }
    // A pod that comes right after the list does not count as gone.
    node.keep(&[]);
    node.mounted(volume("c"));
    std::thread::sleep(Duration::from_millis(700));
    assert!(node.has("c") && driver.lines("wrong").is_empty());
    node.unmounted("c");
}

#[test]
fn order_of_an_earlier_daemon_mounts_nothing_in_a_gone_pod() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    driver.hold("NodeStageVolume", "before");
    node.mount(volume("a"));
    driver.wait_held();
    // It waits for the first one, and nothing is recorded of it.
    node.mount(volume("b"));
    node.say(&ToHelper::Ping {});
    assert_eq!(node.answer(), FromHelper::Pong {}, "it has been read");
    node.reconnect(&["c"]);
    driver.release();
    until("all is undone", || driver.lines("calls").last().is_some_and(|call| call == "NodeUnstageVolume"));
    until("no record is left", || node.is_clean());
    let calls = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
    assert_eq!(driver.lines("calls"), calls, "of a alone");
    node.mounted(volume("c"));
    node.unmounted("c");
    assert!(node.is_clean() && driver.lines("wrong").is_empty());
}

#[test]
fn driver_that_hangs_holds_its_own_volumes_alone() {
    if !is_root() {
        return;
    }
    let other = "other.example.com";
    let mut node = Node::start();
    let (driver, _second) = (Driver::start(&node, DRIVER), Driver::start(&node, other));
    node.drivers(2);
    driver.hold("NodeStageVolume", "before");
    let hung = node.mount(volume("a"));
    driver.wait_held();
    let mut elsewhere = volume("b");
    elsewhere.driver = other.to_owned();
    assert_eq!(node.mounted(elsewhere), node.path("b"));
    node.say(&ToHelper::Ping {});
    assert_eq!(node.answer(), FromHelper::Pong {});
    node.unmounted("b");
    driver.release();
    let path = node.path("a").to_str().unwrap().to_owned();
    assert_eq!(node.answer(), FromHelper::Mounted { id: hung, path });
    // One that dies.
    driver.hold("NodeUnpublishVolume", "before");
    node.unmount("a");
    driver.wait_held();
    let registration = driver.registration.clone();
    drop(driver);
    assert!(!node.failed().1, "it is registered still");
    std::fs::remove_file(registration).unwrap();
    node.drivers(1);
    node.unmount("a");
    let (why, gone) = node.failed();
    assert!(gone && why.contains("not found in the list of registered CSI drivers"), "{why}");
    assert!(node.has("a"), "nothing is undone without the driver");
    // As it comes back, what is left is undone.
    node.keep(&[]);
    let _driver = Driver::start(&node, DRIVER);
    node.drivers(2);
    until("the volume is undone", || node.is_clean());
}

#[test]
fn failed_call_is_repeated_from_the_records() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    for method in ["NodeStageVolume", "NodePublishVolume"] {
        driver.fail(method);
        node.mount(volume("a"));
        let wanted = format!("{method}: rpc error: code = Internal desc = as asked for");
        assert_eq!(node.failed(), (wanted, false));
        // The pod is given up.
        node.unmounted("a");
        assert!(node.is_clean(), "{method}");
    }
    driver.flood("NodeStageVolume");
    node.mount(volume("a"));
    assert!(node.failed().0.contains("ResourceExhausted"));
    node.unmounted("a");
    let unpublished = driver.lines("calls").iter().filter(|call| *call == "NodeUnpublishVolume").count();
    assert_eq!(unpublished, 1, "not where nothing was published");
    node.mounted(volume("a"));
    for method in ["NodeUnpublishVolume", "NodeUnstageVolume"] {
        driver.fail(method);
        node.unmount("a");
        assert!(node.failed().0.contains(method));
    }
    node.unmounted("a");
    assert!(node.is_clean() && driver.lines("wrong").is_empty());
}

#[test]
fn files_belong_to_the_group_and_the_volume_grows() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    let mut wanted = volume("a");
    (wanted.fs_group, wanted.capacity) = (Some(4_242), Some(1 << 30));
    let path = node.mounted(wanted.clone());
    let file = std::fs::metadata(path.join("handle")).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o660), (4_242, 0o660));
    node.mounted(wanted.clone());
    wanted.capacity = Some(1 << 31);
    node.mounted(wanted);
    assert_eq!(driver.lines("sizes"), ["1073741824", "2147483648"]);
    node.unmounted("a");
    assert!(node.is_clean());
}

#[test]
fn exclusive_volume_is_mounted_in_one_pod() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    let exclusive = |pod: &str| {
        let mut wanted = volume(pod);
        wanted.access_modes = vec!["ReadWriteOncePod".into()];
        wanted
    };
    node.mounted(exclusive("a"));
    node.mount(exclusive("b"));
    let why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    assert_eq!(node.failed(), (why.to_owned(), false));
    node.kill();
    node.restart(&["a", "b"], 1);
    node.mount(exclusive("b"));
    assert_eq!(node.failed().0, why, "also while the first pod waits for its order");
    node.mounted(exclusive("a"));
    node.unmounted("a");
    node.mounted(exclusive("b"));
    node.unmounted("b");
    assert!(node.is_clean() && driver.lines("wrong").is_empty());
}

#[test]
fn block_volume_is_a_device() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    let block = |pod: &str| {
        let mut wanted = volume(pod);
        wanted.block = true;
        wanted
    };
    let devices = node.root.join("plugins/kubernetes.io/csi/volumeDevices");
    let path = node.mounted(block("a"));
    assert_eq!(path, devices.join("publish").join(VOLUME).join("a"));
    assert!(std::fs::metadata(&path).unwrap().file_type().is_char_device());
    let second = node.mounted(block("b"));
    node.kill();
    node.restart(&["a", "b"], 1);
    node.mounted(block("a"));
    node.unmounted("a");
    assert!(!path.exists() && second.exists());
    assert!(!driver.lines("calls").contains(&"NodeUnstageVolume".to_owned()));
    node.unmounted("b");
    assert!(node.is_clean() && driver.lines("calls").contains(&"NodeUnstageVolume".to_owned()));
    assert!(!devices.join(VOLUME).exists() && !devices.join("staging").join(VOLUME).exists());
}

#[test]
fn link_in_the_folder_of_pods_leads_nowhere() {
    if !is_root() {
        return;
    }
    let mut node = Node::start();
    let driver = Driver::start(&node, DRIVER);
    node.drivers(1);
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), node.root.join("pods/a")).unwrap();
    node.mount(volume("a"));
    let (why, gone) = node.failed();
    assert!(!gone && why.contains("pods/a"), "{why}");
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
    for (pod, name) in [("..", VOLUME), ("b", "../../x"), ("b", "")] {
        let mut wanted = volume(pod);
        wanted.volume = name.to_owned();
        node.mount(wanted);
        assert!(node.failed().0.contains("cannot be the name of a folder"), "{pod} {name}");
        // There is nothing to undo, so the pod can go.
        node.say(&ToHelper::Unmount { id: 99, pod: pod.to_owned(), volume: name.to_owned() });
        assert_eq!(node.answer(), FromHelper::Unmounted { id: 99 }, "{pod} {name}");
    }
    assert!(driver.lines("calls").is_empty());
    // Others are served all the same.
    node.mounted(volume("c"));
    node.unmounted("c");
}
