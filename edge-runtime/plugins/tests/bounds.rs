//! Device plugins at real sockets that say too much: long answers, lists and refusals without a pause.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use sampan_plugins_control::FromHelper;
use support::*;
use tokio::time::sleep;

const RESOURCE: &str = "example.com/gpu";

#[test]
fn long_answers_cost_their_order_alone() {
    run(async {
        let mut node = Node::start().await;
        let text = "\u{1}".repeat(900 << 10);
        let env = |name: &str, value: &str| {
            bytes(1, &bytes(1, &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat()))
        };
        let answers = RefCell::new(vec![env("A", &text), env(&format!("{text}="), ""), bytes(1, b"")]);
        let _plugin = plugin(
            &node.root().join("device-plugins/p.sock"),
            list(&[("a", true)]),
            Box::new(move |method, _| match method {
                "Allocate" => Ok(answers.borrow_mut().remove(0)),
                _ => Ok(Vec::new()),
            }),
        );
        node.register("v1beta1", "p.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[("a", true)]));
        let failed = node.allocate(1, RESOURCE, &["a"], 1).await;
        let FromHelper::Failed { id: 1, gone: false, why } = failed else { panic!("not refused") };
        assert!(
            why.starts_with("the plugin of example.com/gpu: the changes of the container have 921601 bytes"),
            "{why}"
        );
        let failed = node.allocate(2, RESOURCE, &["a"], 1).await;
        let FromHelper::Failed { id: 2, gone: false, why } = failed else { panic!("not refused") };
        assert!(why.len() < 4_096, "{} bytes", why.len());
        assert!(matches!(node.allocate(3, RESOURCE, &["a"], 1).await, FromHelper::Allocated { id: 3, .. }));
        node.end().await;
    });
}

#[test]
fn plugin_that_floods_is_told_seldom() {
    run(async {
        let mut node = Node::start().await;
        let plugin = plugin(&node.root().join("device-plugins/p.sock"), list(&[]), empty());
        node.register("v1beta1", "p.sock", RESOURCE).await.unwrap();
        assert_eq!(node.news().await, devices(RESOURCE, &[]));
        let start = Instant::now();
        for number in 0..150 {
            plugin.lists(list(&[("a", number % 2 == 1)]));
            plugin.lists(list(&[("a", number % 2 == 0)]));
        }
        plugin.lists(list(&[("last", true)]));
        let last = devices(RESOURCE, &[("last", true)]);
        let mut lines = 1;
        while node.news().await != last {
            lines += 1;
        }
        let seconds = start.elapsed().as_secs();
        assert!(lines <= seconds + 2, "{lines} lines in {seconds} s");
        assert!(seconds < 60);
        node.end().await;
    });
}

#[test]
fn refusals_that_alternate_are_told_once_a_second() {
    run(async {
        let mut node = Node::start().await;
        let start = Instant::now();
        for number in 0..100 {
            let resource = ["cpu", "memory"][number % 2];
            node.register("v1beta1", "p.sock", resource).await.unwrap_err();
        }
        node.register("v1beta1", "p.sock", "last").await.unwrap_err();
        let mut lines = 0;
        loop {
            if let FromHelper::Ready { refused } = node.hear().await {
                lines += 1;
                if refused.iter().any(|line| line.ends_with("the ResourceName \"last\" is invalid")) {
                    break;
                }
            }
        }
        let seconds = start.elapsed().as_secs();
        assert!(lines <= seconds + 4, "{lines} lines in {seconds} s");
        node.end().await;
    });
}

#[test]
fn slow_daemon_gets_the_last_lists() {
    run(async {
        let mut node = Node::start().await;
        let (ids, mut plugins) = ((0..200).map(|id| format!("{id:0250}")).collect::<Vec<_>>(), Vec::new());
        for number in 0..16 {
            let (socket, resource) = (format!("{number}.sock"), format!("example.com/gpu-{number}"));
            plugins.push(plugin(&node.root().join("device-plugins").join(&socket), list(&[]), empty()));
            node.register("v1beta1", &socket, &resource).await.unwrap();
            assert_eq!(node.news().await, devices(&resource, &[]));
        }
        // Lists of 50 kB, 80 a second, which the daemon does not read.
        for round in 0..20 {
            let all: Vec<_> = ids.iter().map(|id| (id.as_str(), round % 2 == 0)).collect();
            plugins.iter().for_each(|plugin| plugin.lists(list(&all)));
            sleep(Duration::from_millis(200)).await;
        }
        plugins.iter().for_each(|plugin| plugin.lists(list(&[("last", true)])));
        let (mut last, mut bytes) = (0, 0);
        while last < plugins.len() {
            let line = node.news().await;
            bytes += serde_json::to_vec(&line).unwrap().len();
            let FromHelper::Devices { all, .. } = line else { panic!("{line:?}") };
            last += usize::from(all.first().is_some_and(|device| device.id == "last"));
        }
        assert!(bytes < 8 << 20, "{bytes} bytes waited");
        node.end().await;
    });
}
