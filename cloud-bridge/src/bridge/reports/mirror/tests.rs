//! Tests of mirror pods.

use std::sync::Arc;

use super::*;
use crate::bridge::node::Node;

#[test]
fn a_mirror_is_marked_and_owned_by_the_node() {
    let pod = json!({"metadata": {"name": "s-edge-1", "namespace": "default", "uid": "static",
                                  "annotations": {HASH_ANNOTATION: "static"}},
                     "spec": {"containers": []}, "status": {"phase": "Running"}});
    let mirror = mirror("edge-1", "node-uid", &pod).unwrap();
    assert_eq!(mirror["metadata"]["annotations"][MIRROR_ANNOTATION], "static");
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    assert_eq!(mirror["spec"]["nodeName"], "edge-1");
    assert_eq!((mirror.get("status"), mirror["metadata"].get("uid")), (None, None));
}

#[test]
fn what_is_no_pod_is_refused() {
    let metadata = json!({"name": "s", "annotations": {HASH_ANNOTATION: "h"}});
    for spec in [json!([]), json!(1), json!("x"), Value::Null] {
        let pod = json!({"metadata": metadata, "spec": spec});
        assert!(matches!(mirror("n", "u", &pod), Err(Failure::Refused(_))), "{pod}");
    }
    for odd in [json!([]), json!(1), json!({"metadata": []}), json!({"metadata": {"annotations": [1]}, "spec": {}})] {
        assert!(matches!(mirror("n", "u", &odd), Err(Failure::Refused(_))), "{odd}");
    }
}

/// With the reference, the node could read what pods of other nodes name.
#[test]
fn g27_a_mirror_that_names_objects_of_the_api_is_refused() {
    let metadata = json!({"name": "s", "annotations": {HASH_ANNOTATION: "h"}});
    let pod = json!({"metadata": metadata, "spec": {"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}});
    let refused = mirror("n", "u", &pod);
    assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("secrets")), "{refused:?}");
}

/// Reports of a node to an API that accepts everything.
fn reports(node: Arc<Node>) -> Reports {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        let object = r#"{"metadata": {"name": "n", "uid": "u"}}"#;
        Ok::<_, kube::Error>(http::Response::new(http_body_util::Full::new(bytes::Bytes::from(object))))
    });
    let client = kube::Client::new(service, "default");
    let (requests, own) = (Requests::new(client.clone()), Requests::new(client));
    Reports::new(node, 1, requests, own, crate::bridge::reports::NodeOverrides::default())
}

fn static_pod(namespace: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": namespace, "annotations": {HASH_ANNOTATION: "h"}});
    json!({"metadata": metadata, "spec": {"containers": []}})
}

#[tokio::test]
async fn mirrors_are_made_in_the_named_namespaces_alone() {
    let mut named = reports(Arc::new(Node::new("edge-1", "stream".into())));
    named.mirror(&static_pod("prod", "anywhere")).await.unwrap();
    named.mirror_namespaces = Arc::new(["static".to_owned(), "kube-system".to_owned()]);
    for namespace in ["static", "kube-system"] {
        named.mirror(&static_pod(namespace, "s")).await.unwrap();
    }
    for namespace in ["prod", "", "stati", "static/x"] {
        let refused = named.mirror(&static_pod(namespace, "s")).await;
        assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("--mirror-namespace")), "{refused:?}");
    }
}

/// The limit includes the mirrors that the node has and those that the watch does not show yet.
#[tokio::test]
async fn g27_a_node_with_too_many_pods_makes_no_more_mirrors() {
    let mirror = |number: usize| static_pod("default", &format!("s{number}"));
    let fresh = reports(Arc::new(Node::new("edge-1", "stream".into())));
    for number in 0..MOST_PODS {
        fresh.mirror(&mirror(number)).await.unwrap();
    }
    assert!(matches!(fresh.mirror(&mirror(MOST_PODS)).await, Err(Failure::Refused(why)) if why.contains("1024")));
    fresh.mirror(&mirror(7)).await.unwrap();

    let crowded = Arc::new(Node::new("edge-2", "stream".into()));
    for number in 0..MOST_PODS {
        let key = ObjectKey { kind: "Pod".into(), namespace: "default".into(), name: format!("p{number}") };
        let digest = edge_protocol::message::ObjectDigest { key, uid: "u".into(), digest: "d".into() };
        crowded.state().set(edge_protocol::message::Object { digest, body: json!({}) }).unwrap();
    }
    let crowded = reports(crowded);
    assert!(matches!(crowded.mirror(&mirror(0)).await, Err(Failure::Refused(_))));
}

#[test]
fn a_static_pod_without_hash_is_refused() {
    assert!(mirror("n", "u", &json!({"metadata": {"name": "s"}})).is_err());
    assert!(mirror("n", "u", &json!({})).is_err());
}
