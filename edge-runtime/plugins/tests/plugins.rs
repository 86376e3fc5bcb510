//! Device plugins at real sockets: registrations, lists of devices, orders, restarts, floods and wrong fields.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use sampan_grpc::{Code, Status};
use sampan_plugins_control::{Edits, FromHelper, ToHelper};
use support::*;
use tokio::time::sleep;

const RESOURCE: &str = "example.com/gpu";

fn code<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, |status| status.code)
}

#[test]
fn devices_are_listed_allocated_and_gone_with_their_plugin() {
    run(async {
        let mut node = Node::start().await;
        let socket = node.root().join("device-plugins/gpu.sock");
        std::fs::create_dir(node.folder.path().join("run-cdi")).unwrap();
        let spec = r#"{"cdiVersion": "0.6.0", "kind": "v.com/c",
            "devices": [{"name": "0", "containerEdits": {"env": ["CDI=yes"]}}]}"#;
        std::fs::write(node.folder.path().join("run-cdi/v.json"), spec).unwrap();
        let first = plugin(
            &socket,
            list(&[("a", true), ("b", true), ("c", false)]),
            Box::new(|method, _| match method {
                // Both calls are wanted.
                "GetDevicePluginOptions" => Ok(vec![0x08, 1, 0x10, 1]),
                "GetPreferredAllocation" => Ok(bytes(1, &bytes(1, b"b"))),
                "Allocate" => {
                    let env = bytes(1, &[bytes(1, b"GPU"), bytes(2, b"b")].concat());
                    Ok(bytes(1, &[env, bytes(5, &bytes(1, b"v.com/c=0"))].concat()))
                }
                _ => Ok(Vec::new()),
            }),
        );
        node.register("v1beta1", "gpu.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true), ("b", true), ("c", false)]));
        let FromHelper::Allocated { id, ids, pre_start, edits } = node.allocate(7, RESOURCE, &["a", "b"], 1).await
        else {
            panic!("not allocated")
        };
        assert_eq!((id, ids, pre_start), (7, vec!["b".to_owned()], true));
        let edits: Edits = serde_json::from_value(edits).unwrap();
        let env: Vec<_> = edits.env.iter().map(|pair| (pair.name.as_str(), pair.value.as_str())).collect();
        assert_eq!(env, [("GPU", "b"), ("CDI", "yes")]);
        assert_eq!(first.messages("Allocate"), [bytes(1, &bytes(1, b"b"))]);
        assert!(matches!(
            node.allocate(8, RESOURCE, &["a"], 2).await,
            FromHelper::Failed { id: 8, gone: false, why } if why.ends_with("Requested: 2, Available: 1")
        ));
        node.say(&ToHelper::PreStart { id: 9, resource: RESOURCE.into(), ids: vec!["b".into()] }).await;
        assert_eq!(node.news().await, FromHelper::Prepared { id: 9 });
        assert_eq!(first.messages("PreStartContainer"), [bytes(1, b"b")]);
        first.lists(list(&[("a", false)]));
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", false)]));
        // A new daemon is told what there is.
        node.restart_daemon().await;
        assert_eq!(node.hear().await, devices(RESOURCE, &[("a", false)]));
        assert_eq!(node.hear().await, FromHelper::Told {});
        drop(first);
        assert_eq!(node.news().await, gone(RESOURCE));
        assert!(matches!(node.allocate(10, RESOURCE, &["a"], 1).await, FromHelper::Failed { id: 10, gone: true, .. }));
        // It is called again at the same place, without a registration.
        let again = plugin(&socket, list(&[("a", true)]), empty());
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        assert!(matches!(
            node.allocate(11, RESOURCE, &["a"], 1).await,
            FromHelper::Failed { id: 11, gone: false, why } if why.contains("no containers return in allocation response")
        ));
        drop(again);
        node.end().await;
        assert!(!node.root().join("device-plugins/kubelet.sock").exists());
    });
}

#[test]
fn newest_registration_of_a_resource_counts() {
    run(async {
        let mut node = Node::start().await;
        let folder = node.root().join("device-plugins");
        let first = plugin(&folder.join("1.sock"), list(&[("a", true)]), empty());
        let second = plugin(&folder.join("2.sock"), list(&[("b", true)]), empty());
        node.register("v1beta1", "1.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        node.register("v1beta1", "2.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, gone(RESOURCE));
        assert_eq!(node.news().await, devices(RESOURCE, &[("b", true)]));
        first.lists(list(&[("x", true)]));
        second.lists(list(&[("c", true)]));
        assert_eq!(node.news().await, devices(RESOURCE, &[("c", true)]));
        // The one before may end without harm.
        drop(first);
        second.lists(list(&[("d", true)]));
        assert_eq!(node.news().await, devices(RESOURCE, &[("d", true)]));
        node.end().await;
    });
}

#[test]
fn plugin_with_another_resource_is_not_there_under_the_first() {
    run(async {
        let mut node = Node::start().await;
        let _plugin = plugin(&node.root().join("device-plugins/p.sock"), list(&[("a", true)]), empty());
        node.register("v1beta1", "p.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        node.register("v1beta1", "p.sock", "a.b/new").await.unwrap();
        assert_eq!(node.news().await, gone(RESOURCE));
        assert_eq!(node.news().await, devices("a.b/new", &[("a", true)]));
        assert!(matches!(node.allocate(1, RESOURCE, &["a"], 1).await, FromHelper::Failed { gone: true, .. }));
        node.end().await;
    });
}

#[test]
fn plugin_may_register_before_it_serves() {
    run(async {
        let mut node = Node::start().await;
        let socket = node.root().join("device-plugins/late.sock");
        let late = async {
            sleep(Duration::from_millis(500)).await;
            plugin(&socket, list(&[("a", true)]), empty())
        };
        let (registered, _plugin) = tokio::join!(node.register("v1beta1", "late.sock", RESOURCE), late);
        registered.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        node.end().await;
    });
}

#[test]
fn plugin_that_registers_once_is_followed_by_another_helper() {
    run(async {
        let mut node = Node::start().await;
        let folder = node.root().join("device-plugins");
        let plugins = ["1.sock", "2.sock"].map(|name| plugin(&folder.join(name), list(&[("a", true)]), empty()));
        node.register("v1beta1", "1.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        node.register("v1beta1", "2.sock", "example.com/other").await.unwrap();
        assert_eq!(node.news().await, devices("example.com/other", &[("a", true)]));
        // By its configuration the node has one of the resources itself now.
        node.settings.taken.insert(0, "example.com/other".into());
        node.restart_helper().await;
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        plugins[1].lists(list(&[("b", true)]));
        plugins[0].lists(list(&[("b", true)]));
        assert_eq!(node.news().await, devices(RESOURCE, &[("b", true)]));
        node.end().await;
    });
}

#[test]
fn wrong_registrations_are_refused_and_harm_no_other() {
    run(async {
        let mut node = Node::start().await;
        let folder = node.root().join("device-plugins");
        let good = plugin(&folder.join("good.sock"), list(&[("a", true)]), empty());
        node.register("v1beta1", "good.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        for (version, endpoint, resource, text) in [
            ("v1", "good.sock", "a.b/c", "requested API version \"v1\" is not supported by kubelet"),
            ("v1beta1", "good.sock", "cpu", "the ResourceName \"cpu\" is invalid"),
            ("v1beta1", "good.sock", "example.com/taken", "config.yaml"),
            ("v1beta1", "../good.sock", "a.b/c", "is not the name of a socket"),
            ("v1beta1", "none.sock", "a.b/c", "No such file"),
        ] {
            let refused = node.register(version, endpoint, resource).await.unwrap_err();
            assert!(refused.message.contains(text), "{refused}");
            node.refused(text).await;
        }
        // A plugin that refuses its options, and bytes that are no message.
        let bad = plugin(
            &folder.join("bad.sock"),
            list(&[]),
            Box::new(|_, _| Err(Status::new(Code::Internal, "broken firmware"))),
        );
        let refused = node.register("v1beta1", "bad.sock", "a.b/c").await.unwrap_err();
        assert!(refused.message.contains("code = Internal desc = broken firmware"), "{refused}");
        drop(bad);
        let mut kubelet = sampan_grpc::Client::new(folder.join("kubelet.sock"));
        let register = "/v1beta1.Registration/Register";
        assert_eq!(code(&kubelet.call(register, &[0x0a, 9], PATIENCE).await), Code::InvalidArgument);
        assert_eq!(code(&kubelet.call("/v1beta1.Registration/List", &[], PATIENCE).await), Code::Unimplemented);
        good.lists(list(&[("a", false)]));
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", false)]));
        node.end().await;
    });
}

#[test]
fn wrong_answers_cost_their_plugin_alone() {
    run(async {
        let mut node = Node::start().await;
        let folder = node.root().join("device-plugins");
        let good = plugin(&folder.join("good.sock"), list(&[("a", true)]), empty());
        node.register("v1beta1", "good.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        let bad = plugin(
            &folder.join("bad.sock"),
            list(&[("z", true)]),
            Box::new(|method, _| match method {
                "GetDevicePluginOptions" => Err(unimplemented()),
                "Allocate" => {
                    let mount = [bytes(1, b"/c"), bytes(2, b"/opt/../etc")].concat();
                    Ok(bytes(1, &bytes(2, &mount)))
                }
                _ => Ok(Vec::new()),
            }),
        );
        node.register("v1beta1", "bad.sock", "a.b/bad").await.unwrap();
        assert_eq!(node.news().await, devices("a.b/bad", &[("z", true)]));
        let failed = node.allocate(1, "a.b/bad", &["z"], 1).await;
        let FromHelper::Failed { id: 1, gone: false, why } = failed else { panic!("{failed:?}") };
        assert_eq!(
            why,
            "the plugin of a.b/bad: mount: host_path \"/opt/../etc\" is not an absolute path without \"..\""
        );
        for wrong in [list(&[("", true)]), vec![0x0a, 9], list(&[(&"x".repeat(300), true)])] {
            bad.lists(wrong);
            node.refused("a.b/bad: its plugin cannot be used: ListAndWatch: ").await;
            assert_eq!(node.news().await, gone("a.b/bad"));
            // It is called again, after a pause that becomes longer.
            bad.lists(list(&[("z", true)]));
            assert_eq!(node.news().await, devices("a.b/bad", &[("z", true)]));
        }
        good.lists(list(&[("a", false)]));
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", false)]));
        node.end().await;
    });
}

#[test]
fn socket_of_another_kubelet_is_left_alone() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("kubelet/device-plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        let kubelet = tokio::net::UnixListener::bind(plugins.join("kubelet.sock")).unwrap();
        let mut node = Node::with(folder, false).await;
        node.refused("another kubelet answers there; stop it, or set plugins.root").await;
        drop(kubelet);
        // It is tried again.
        let plugin = plugin(&plugins.join("p.sock"), list(&[("a", true)]), empty());
        while node.register("v1beta1", "p.sock", RESOURCE).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        drop(plugin);
        node.end().await;
    });
}
