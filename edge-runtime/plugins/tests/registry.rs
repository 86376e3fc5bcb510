//! Plugins that are found by their socket in `plugins_registry`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::os::unix::net::UnixListener;

use sampan_grpc::Status;
use support::*;
use tokio::time::sleep;

fn info(kind: &str, name: &str, endpoint: &str) -> Vec<u8> {
    let texts = [(1, kind), (2, name), (3, endpoint), (4, "v1beta1")];
    texts.iter().flat_map(|(number, text)| bytes(*number, text.as_bytes())).collect()
}

/// A plugin that only says what it is.
fn registrar(name: Vec<u8>) -> Box<Answer> {
    Box::new(move |method, _| match method {
        "GetInfo" => Ok(name.clone()),
        "NotifyRegistrationStatus" => Ok(Vec::new()),
        _ => Err::<_, Status>(unimplemented()),
    })
}

async fn notified(plugin: &Plugin) -> Vec<u8> {
    loop {
        if let Some(message) = plugin.messages("NotifyRegistrationStatus").pop() {
            return message;
        }
        sleep(MOMENT).await;
    }
}

#[test]
fn device_plugin_is_found_by_its_socket_and_gone_with_it() {
    run(async {
        let mut node = Node::start().await;
        let folder = node.root().join("plugins_registry");
        let place = node.root().join("device-plugins/gpu.sock");
        let _served = plugin(&place, list(&[("a", true)]), empty());
        // The folder is made by the helper.
        while !folder.is_dir() {
            sleep(MOMENT).await;
        }
        let socket = folder.join("gpu-reg.sock");
        let found = plugin(&socket, list(&[]), registrar(info("DevicePlugin", "a.b/c", place.to_str().unwrap())));
        assert_eq!(node.news().await, devices("a.b/c", &[("a", true)]));
        assert_eq!(notified(&found).await, [0x08, 1]);
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(node.news().await, gone("a.b/c"));
        node.end().await;
    });
}

#[test]
fn socket_from_before_the_boot_is_removed() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("kubelet/plugins_registry");
        std::fs::create_dir_all(&folder).unwrap();
        drop(UnixListener::bind(folder.join("old-reg.sock")).unwrap());
        let _alive = UnixListener::bind(folder.join("alive.sock")).unwrap();
        let mut node = Node::with(root, true).await;
        while folder.join("old-reg.sock").exists() {
            sleep(MOMENT).await;
        }
        assert!(folder.join("alive.sock").exists());
        node.end().await;
    });
}

#[test]
fn plugin_that_is_not_taken_is_told_why() {
    run(async {
        let mut node = Node::start().await;
        let folder = node.root().join("plugins_registry");
        while !folder.is_dir() {
            sleep(MOMENT).await;
        }
        for (name, info, why) in [
            (
                "csi.sock",
                info("CSIPlugin", "nfs.csi.k8s.io", ""),
                "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket",
            ),
            (
                "name.sock",
                info("DevicePlugin", "c", ""),
                "invalid name of device plugin socket: the ResourceName \"c\" is invalid",
            ),
            ("out.sock", info("DevicePlugin", "a.b/c", "/run/docker.sock"), "is not below"),
        ] {
            let refused = plugin(&folder.join(name), list(&[]), registrar(info));
            let told = notified(&refused).await;
            assert!(String::from_utf8_lossy(&told).contains(why), "{}", String::from_utf8_lossy(&told));
            assert_ne!(told.first(), Some(&0x08), "not registered");
            node.refused(why).await;
        }
        node.end().await;
    });
}
