//! The API over real TLS: certificates, tokens, and no one else; and `kube` as a client of it.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloud_bridge::api::UserInfo;
use cloud_bridge::pki::authority::{Authority, to_pem};
use cloud_bridge::pki::tls;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{Api, pod};

struct Listening {
    _api: Api,
    authority: Arc<Authority>,
    address: String,
}

async fn listen() -> Listening {
    tls::install_provider();
    let api = Api::embedded(|config| {
        config.tokens = vec![("secret-token".into(), UserInfo::new("robot", ["system:masters"]))]
    });
    let authority = Arc::new(Authority::create("test").unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let signed = authority.server(&["127.0.0.1".into()]).unwrap();
    let ca = authority.certificate();
    let config = tls::server_config(ca, signed, std::slice::from_ref(ca), &[b"h2", b"http/1.1"]).unwrap();
    let server = api.server.clone().unwrap();
    tokio::spawn(async move { server.serve_tls(listener, config).await });
    Listening { _api: api, authority, address }
}

impl Listening {
    fn client(&self, auth: AuthInfo) -> Client {
        let mut config = kube::Config::new(self.address.parse().unwrap());
        config.root_cert = Some(vec![self.authority.certificate().to_vec()]);
        config.auth_info = auth;
        Client::try_from(config).unwrap()
    }

    fn certificate(&self, user: &str, group: &str) -> AuthInfo {
        let signed = self.authority.client(user, group).unwrap();
        AuthInfo {
            client_certificate_data: Some(BASE64_STANDARD.encode(to_pem("CERTIFICATE", &signed.certificate))),
            client_key_data: Some(BASE64_STANDARD.encode(to_pem("PRIVATE KEY", signed.key.secret_der())).into()),
            ..AuthInfo::default()
        }
    }
}

#[tokio::test]
async fn certificates_and_tokens_identify() {
    let api = listen().await;
    let admin = api.client(api.certificate("admin", "system:masters"));
    kube::Api::<Pod>::all(admin).list(&ListParams::default()).await.unwrap();
    let robot = api.client(AuthInfo { token: Some("secret-token".to_owned().into()), ..AuthInfo::default() });
    kube::Api::<Pod>::all(robot).list(&ListParams::default()).await.unwrap();
    let eve = api.client(api.certificate("eve", "people"));
    let error = kube::Api::<Pod>::all(eve).list(&ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("User \"eve\" cannot list resource \"pods\""), "{error}");
    for auth in [AuthInfo::default(), AuthInfo { token: Some("wrong".to_owned().into()), ..AuthInfo::default() }] {
        let error = kube::Api::<Pod>::all(api.client(auth)).list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
    }
}

#[tokio::test]
async fn nodes_come_by_the_link_alone() {
    let api = listen().await;
    let node = api.certificate("system:node:a", "system:nodes");
    let mut tricks =
        vec![node, api.certificate("system:node:a", "system:masters"), api.certificate("b", "system:nodes")];
    // A token does not help who shows a node's certificate.
    tricks.extend(tricks.clone().into_iter().map(|mut auth| {
        auth.token = Some("secret-token".to_owned().into());
        auth
    }));
    for auth in tricks {
        let error = kube::Api::<Pod>::all(api.client(auth)).list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
    }
}

#[tokio::test]
async fn a_foreign_authority_is_refused() {
    let api = listen().await;
    let other = Authority::create("other").unwrap().client("admin", "system:masters").unwrap();
    let auth = AuthInfo {
        client_certificate_data: Some(BASE64_STANDARD.encode(to_pem("CERTIFICATE", &other.certificate))),
        client_key_data: Some(BASE64_STANDARD.encode(to_pem("PRIVATE KEY", other.key.secret_der())).into()),
        ..AuthInfo::default()
    };
    assert!(kube::Api::<Pod>::all(api.client(auth)).list(&ListParams::default()).await.is_err());
}

#[tokio::test]
async fn kube_watches_patches_and_applies() {
    let api = listen().await;
    let client = api.client(api.certificate("admin", "system:masters"));
    let pods = kube::Api::<Pod>::namespaced(client.clone(), "default");
    let mut seen = watcher(pods.clone(), watcher::Config::default()).applied_objects().boxed();
    let object: Pod = serde_json::from_value(pod("p")).unwrap();
    pods.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(seen.try_next().await.unwrap().unwrap().name_any(), "p");
    let patch = json!({"status": {"phase": "Running"}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let changed = seen.try_next().await.unwrap().unwrap();
    assert_eq!(changed.status.unwrap().phase.as_deref(), Some("Running"));
    let maps = kube::Api::<ConfigMap>::namespaced(client, "default");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
    let made = maps.patch("c", &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    assert_eq!(made.data.unwrap()["a"], "b");
}
