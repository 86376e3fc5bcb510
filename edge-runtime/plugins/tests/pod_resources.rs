//! Clients of podresources, and the daemon that has the answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use sampan_grpc::{Client, Code, Status};
use sampan_plugins_control::{Asked, Assigned, ContainerResources, FromHelper, PodResources, Resources, ToHelper};
use support::*;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

async fn asked(node: &mut Node) -> (u64, Asked) {
    loop {
        if let FromHelper::AskResources { id, what } = node.hear().await {
            return (id, what);
        }
    }
}

fn pod() -> PodResources {
    let devices = vec![Assigned { resource: "r".into(), ids: vec!["a".into()] }];
    let containers = vec![ContainerResources { name: "c".into(), devices, cpus: vec![1] }];
    PodResources { namespace: "ns".into(), name: "p".into(), containers }
}

/// A client asks, and the daemon answers.
async fn ask(node: &mut Node, method: &str, message: &[u8], resources: Resources) -> (Asked, Result<Vec<u8>, Status>) {
    let mut client = Client::new(node.root().join("pod-resources/kubelet.sock"));
    let path = format!("/v1.PodResourcesLister/{method}");
    let daemon = async {
        let (id, what) = asked(node).await;
        node.say(&ToHelper::Resources { id, resources }).await;
        what
    };
    tokio::join!(daemon, client.call(&path, message, PATIENCE))
}

#[test]
fn clients_get_what_the_daemon_has() {
    run(async {
        let mut node = Node::start().await;
        let container = [bytes(1, b"c"), bytes(2, &[bytes(1, b"r"), bytes(2, b"a")].concat()), bytes(3, &[1])].concat();
        let expected = bytes(1, &[bytes(1, b"p"), bytes(2, b"ns"), bytes(3, &container)].concat());
        let (what, listed) = ask(&mut node, "List", b"", Resources::Pods(vec![pod()])).await;
        assert_eq!((what, listed), (Asked::List {}, Ok(expected.clone())));
        let request = [bytes(1, b"p"), bytes(2, b"ns")].concat();
        let (what, found) = ask(&mut node, "Get", &request, Resources::Pods(vec![pod()])).await;
        assert_eq!((what, found), (Asked::Get { namespace: "ns".into(), name: "p".into() }, Ok(expected)));
        let why = "pod p in namespace ns not found";
        let (_, refused) = ask(&mut node, "Get", &request, Resources::Refused(why.into())).await;
        assert_eq!(refused, Err(Status::new(Code::Unknown, why)));
        let (what, cpus) = ask(&mut node, "GetAllocatableResources", b"", Resources::Cpus(vec![2, 3])).await;
        assert_eq!((what, cpus), (Asked::Allocatable {}, Ok(bytes(2, &[2, 3]))));
        node.end().await;
    });
}

#[test]
fn clients_have_a_limit_and_need_a_daemon() {
    run(async {
        let mut node = Node::start().await;
        let mut client = Client::new(node.root().join("pod-resources/kubelet.sock"));
        let mut codes = Vec::new();
        for _ in 0..40 {
            let answer = client.call("/v1.PodResourcesLister/Nothing", b"", PATIENCE).await;
            codes.push(answer.unwrap_err().code);
        }
        assert_eq!(codes[0], Code::Unimplemented);
        assert!(codes.iter().all(|code| matches!(code, Code::Unimplemented | Code::ResourceExhausted)), "{codes:?}");
        sleep(SECOND).await;
        // The daemon goes before it answers.
        let call = client.call("/v1.PodResourcesLister/List", b"", PATIENCE);
        let restart = async {
            asked(&mut node).await;
            node.restart_daemon().await;
        };
        let (answer, ()) = tokio::join!(call, restart);
        assert_eq!(answer, Err(Status::new(Code::Unavailable, "the node is restarting")));
        node.end().await;
    });
}
