//! A bridge whose watches hang: what it sends to a node that connects after another bridge.

use std::time::Duration;

use bytes::Bytes;
use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use futures::{StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, StreamBody};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;

use crate::support::fixture::{Cluster, TestBridge, force_delete, twins, unique};
use crate::support::{Edge, Store};

/// A client whose watches deliver nothing while `hung` is true; events are delayed, not lost.
fn hanging(client: kube::Client, hung: watch::Receiver<bool>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, hung) = (client.clone(), hung.clone());
        async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let response = client.send(request).await?;
            Ok::<http::Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>(response.map(|body| {
                let body = body.map_err(|error| kube::Error::Service(error.into()));
                if !watches {
                    return body.boxed_unsync();
                }
                let frames = BodyDataStream::new(body).then(move |frame| {
                    let mut hung = hung.clone();
                    async move {
                        let _ = hung.wait_for(|hung| !hung).await;
                        frame
                    }
                });
                StreamBody::new(frames.map_ok(hyper::body::Frame::data)).boxed_unsync()
            }))
        }
    });
    kube::Client::new(service, "default")
}

fn held(edge: &Edge) -> Vec<(String, String)> {
    edge.store.held.values().map(|object| (object.digest.uid.clone(), object.digest.digest.clone())).collect()
}

#[tokio::test]
async fn g12_bridge_with_hung_watches_undoes_nothing() {
    let cluster = Cluster::open().await;
    let (first, second) = twins();
    let (hang, hung) = watch::channel(false);
    let clients = Clients::impersonating(hanging(cluster.client.clone(), hung));
    let a = TestBridge::over(clients, &cluster.client, first, Settings::default()).await;
    let b = TestBridge::with(&cluster, second).await;
    let (node, map) = (unique("behind"), unique("behind-map"));
    let names = ["stays", "goes", "comes"].map(unique);
    let naming = json!({
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "configMap": {"name": map}}],
    });
    cluster.create_map(&map, "old").await;
    let (identity, mut edge) = a.edge(&cluster, &node).await;
    cluster.create_pod(&names[0], &node, naming.clone()).await;
    cluster.create_pod(&names[1], &node, json!({})).await;
    edge.until("two pods and a ConfigMap", |edge| edge.held() == 3).await;

    // The node connects to the other bridge, and its objects change.
    hang.send(true).unwrap();
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let mut edge = b.connect(&identity, store).await;
    edge.until("the list", |edge| edge.synced).await;
    let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
    cluster.pods().patch(&names[0], &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    let data = Patch::Merge(json!({"data": {"key": "new"}}));
    cluster.maps().patch(&map, &PatchParams::default(), &data).await.unwrap();
    force_delete(&cluster.pods(), &names[1]).await;
    cluster.create_pod(&names[2], &node, naming).await;
    edge.until("all that", |edge| {
        let label =
            edge.object("Pod", "default", &names[0]).is_some_and(|pod| !pod.body["metadata"]["labels"].is_null());
        let value = edge.object("ConfigMap", "default", &map).is_some_and(|map| map.body["data"]["key"] == "new");
        let pods = names.iter().map(|name| edge.object("Pod", "default", name).is_some());
        label && value && pods.eq([true, false, true])
    })
    .await;
    let wanted = held(&edge);

    // Back at the first bridge, which has received none of it.
    let store = Store { position: edge.store.position.clone(), held: std::mem::take(&mut edge.store.held) };
    let mut back = a.connect(&identity, store).await;
    back.until("the list", |edge| edge.synced).await;
    let undone = |edge: &Edge| (edge.puts, edge.deleted.clone(), held(edge) == wanted);
    assert_eq!(undone(&back), (0, vec![], true));

    // Its watches deliver everything in the end.
    hang.send(false).unwrap();
    back.linger(Duration::from_millis(500)).await;
    assert_eq!((back.deleted.clone(), held(&back) == wanted), (vec![], true));
    for name in [&names[0], &names[2]] {
        force_delete(&cluster.pods(), name).await;
    }
    back.until("the end of the pods", |edge| edge.held() == 0).await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}
