//! The kubelet API that the bridge serves for its nodes: authorization, and logs.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cloud_bridge::accept::Gate;
use cloud_bridge::bridge::{AddressType, Settings};
use cloud_bridge::kubelet::Ports;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::tls;
use kube::api::DeleteParams;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::fixture::{Cluster, TestBridge, eventually, unique};
use crate::support::{Identity, ask, get, tls as tls_connection};

#[tokio::test]
async fn only_who_may_read_the_node_reads_its_logs() {
    let cluster = Cluster::open().await;
    let (authority, callers) = (Authority::create("serving").unwrap(), Authority::create("callers").unwrap());
    let signed = authority.server(&[]).unwrap();
    let clients = [callers.certificate().clone()];
    let config = tls::server_config(authority.certificate(), signed, &clients, &[b"http/1.1"]).unwrap();
    let ports = Ports::new(
        (AddressType::InternalIp, Ipv4Addr::LOCALHOST.into()),
        (20_000, 29_999),
        config,
        cluster.client.clone(),
        Gate::new(),
    );
    let (kubelet, closing) = (Arc::clone(&ports), Arc::clone(&ports));
    let settings = Settings {
        kubelet: Some(Arc::new(move |node| kubelet.endpoint(node))),
        gone: Some(Arc::new(move |node| closing.close(node))),
        ..Settings::default()
    };
    let bridge = TestBridge::with_settings(&cluster, Authority::create("link").unwrap(), settings).await;
    ports.set_bridge(bridge.bridge.clone(), None);
    let node = unique("kubelet");
    let (_, mut edge) = bridge.edge(&cluster, &node).await;

    // The Node object has the address.
    let status = cluster.nodes().get(&node).await.unwrap().status.unwrap();
    let internal: Vec<_> = status.addresses.into_iter().flatten().filter(|a| a.type_ == "InternalIP").collect();
    assert_eq!(internal.len(), 1);
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    let address = SocketAddr::new(internal[0].address.parse().unwrap(), u16::try_from(port).unwrap());
    assert_eq!(ports.endpoint(&node).unwrap().port, address.port(), "asked again: the same");

    let ca = authority.certificate().clone();
    let path = "/containerLogs/default/pod/c?tailLines=5";
    assert_eq!(get(address, &ca, None, path, "").await.0, 401);
    assert_eq!(get(address, &ca, None, path, "Authorization: Bearer nonsense\r\n").await.0, 401);
    // A body that never arrives is not waited for: the client is authorized first.
    let body = "Content-Length: 1000000\r\n";
    assert_eq!(ask("POST", address, &ca, None, "/exec/default/pod/c?command=ls", body).await.0, 401);
    let stranger = Identity::of_user(&callers, "nobody", "nothing");
    let (code, text) = get(address, &ca, Some(&stranger), path, "").await;
    assert!(code == 403 && text.contains("nobody"), "{code} {text}");

    let master = Identity::of_user(&callers, "kube-apiserver", "system:masters");
    assert_eq!(get(address, &ca, Some(&master), "/healthz", "").await, (200, "ok".to_owned()));
    assert_eq!(get(address, &ca, Some(&master), "/exec/a/b/c?output=1&command=ls", "").await.0, 400, "no upgrade");
    assert_eq!(get(address, &ca, Some(&master), "/nothing", "").await.0, 404);
    let (code, pods) = get(address, &ca, Some(&master), "/pods", "").await;
    assert!(code == 200 && pods.contains("\"PodList\""), "{code} {pods}");
    assert_eq!(get(address, &ca, Some(&master), "/containerLogs/a/b/c?tailLines=x", "").await.0, 400);

    let (path, reader) = (path.to_owned(), master.clone());
    let asked = tokio::spawn({
        let ca = ca.clone();
        async move { get(address, &ca, Some(&reader), &path, "").await }
    });
    edge.until("the request", |edge| !edge.streams.is_empty()).await;
    let (stream, _) = edge.streams.pop().unwrap();
    edge.session.stream_send(stream, b"one\ntwo\n").unwrap();
    edge.session.stream_end(stream, None);
    edge.linger(Duration::from_millis(200)).await;
    let (code, body) = asked.await.unwrap();
    assert!(code == 200 && body.contains("one\ntwo\n"), "{code} {body}");

    drop(edge);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (code, body) = get(address, &ca, Some(&master), "/containerLogs/default/pod/c", "").await;
    assert!(code == 503 && body.contains("last seen"), "{code} {body}");

    // The port may belong to another node after this one is deleted, so all connections to it must end.
    let kept = tls_connection(address, &ca, Some(&master)).await.unwrap();
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    eventually("the port to be closed", || async { TcpStream::connect(address).await.is_err() }).await;
    let mut kept = kept;
    let ended = tokio::time::timeout(Duration::from_secs(5), kept.read(&mut [0; 1])).await.unwrap();
    assert!(!matches!(ended, Ok(1)), "{ended:?}");
}
