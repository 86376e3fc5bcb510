//! The rights in `deploy/bridge/rbac.yaml`: the whole path works with them and no others.

use apimachinery::user::{UserInfo, account_groups, account_name};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

use super::lab::{DEFINITIONS, Lab, online, report, reported};
use crate::support::fixture::{Cluster, TestBridge, eventually, unique};

const RIGHTS: &str = include_str!("../../../../deploy/bridge/rbac.yaml");

#[tokio::test]
async fn a_bridge_with_its_own_rights_alone_does_all_of_it() {
    let (namespace, account) = ("sampan-system", "cloud-bridge");
    let user = UserInfo::new(&account_name(namespace, account), account_groups(namespace));
    let lab = Lab { cluster: Cluster::open_as(user) };
    lab.define(DEFINITIONS).await;
    for (kind, list) in [("ClusterRole", "clusterroles"), ("ClusterRoleBinding", "clusterrolebindings")] {
        let line = format!("kind: {kind}");
        let text = RIGHTS.split("\n---\n").find(|text| text.lines().any(|found| found == line)).unwrap();
        lab.apply(&format!("/apis/rbac.authorization.k8s.io/v1/{list}"), text).await;
    }
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, model, name, alone) = (unique("gate"), unique("m"), unique("t"), unique("alone"));
    let (_, mut edge) = lab.edge(&bridge, &node).await;
    lab.model(&model).await;
    let uid = lab.device(&name, &node, &model).await;
    lab.device(&alone, &node, "missing").await;
    edge.until("the devices", |edge| edge.held() == 3).await;
    let refused = edge.report_devices(vec![online(report(&name, &uid, 1, &[("temp", "1")]))]).await;
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(reported(&lab.status(&name).await.unwrap(), "temp"), "1");
    edge.linger(std::time::Duration::from_secs(11)).await;
    let events: Api<Event> = Api::namespaced(lab.cluster.client.clone(), "default");
    eventually("the event", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter().any(|event| event.involved_object.name.as_deref() == Some(&alone))
    })
    .await;
    lab.delete(&name).await;
    edge.until("its end", |edge| edge.held() == 1).await;
    lab.until_collected(&name).await;
}
