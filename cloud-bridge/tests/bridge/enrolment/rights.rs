//! The rights in `deploy/bridge/enrolment.yaml`: boards enrol with them and those of `rbac.yaml`, and not without.

use apimachinery::user::{UserInfo, account_groups, account_name};
use cloud_bridge::bridge::Settings;
use cloud_bridge::pki::authority::Authority;
use http::Request;
use serde_json::Value;

use super::{Board, decide, token};
use crate::support::fixture::{Cluster, TestBridge, unique};

const RIGHTS: &str = include_str!("../../../../deploy/bridge/rbac.yaml");
const MORE: &str = include_str!("../../../../deploy/bridge/enrolment.yaml");
const NAMESPACE: &str = "sampan-system";

async fn apply(cluster: &Cluster, manifest: &str) {
    for text in manifest.split("\n---\n") {
        let word = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let list = match word("kind: ") {
            "Namespace" => "/api/v1/namespaces".to_owned(),
            "ClusterRole" => format!("{rbac}/clusterroles"),
            "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings"),
            "Role" => format!("{rbac}/namespaces/{NAMESPACE}/roles"),
            "RoleBinding" => format!("{rbac}/namespaces/{NAMESPACE}/rolebindings"),
            _ => continue,
        };
        let request = Request::patch(format!("{list}/{}?fieldManager=test&fieldValidation=Strict", word("  name: ")))
            .header("content-type", "application/apply-patch+yaml")
            .body(text.as_bytes().to_vec())
            .unwrap();
        let _: Value = cluster.client.request(request).await.unwrap();
    }
}

#[tokio::test]
async fn boards_enrol_with_the_rights_of_enrolment_yaml() {
    let user = UserInfo::new(&account_name(NAMESPACE, "cloud-bridge"), account_groups(NAMESPACE));
    let cluster = Cluster::open_as(user);
    apply(&cluster, RIGHTS).await;
    let own = cluster.clients.own().clone();
    let authority = Authority::create("rights").unwrap();
    let bridge = TestBridge::over(cluster.clients.clone(), &own, authority, Settings::default()).await;
    let (manual, auto) = (unique("manual"), unique("auto"));
    let manual = token(&cluster, &bridge, &manual, 1, false).await.text();
    let auto = token(&cluster, &bridge, &auto, 1, true).await.text();
    let boards = [Board::new("1"), Board::new("2")];
    let (code, refused) = boards[0].ask(&bridge, &manual).await;
    assert_eq!(code, 503, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("deploy/bridge/enrolment.yaml"), "{refused}");

    apply(&cluster, MORE).await;
    let (code, waits) = boards[0].ask(&bridge, &manual).await;
    assert_eq!(code, 202, "{waits}");
    decide(&cluster, &waits, "Approved").await;
    let (code, joined) = boards[0].ask(&bridge, &manual).await;
    assert_eq!(code, 200, "{joined}");
    let (code, joined) = boards[1].ask(&bridge, &auto).await;
    assert_eq!(code, 200, "{joined}");
}
