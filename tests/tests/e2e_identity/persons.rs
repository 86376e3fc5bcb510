//! A user who requests a certificate, gets it approved, and uses the API with it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use sampan_tests::{Cluster, Kubectl, can_run, until};
use serde_json::{Value, json};

/// The key as PEM, and the CertificateSigningRequest.
fn request(object: &str, user: &str, group: &str) -> (String, Value) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, user);
    let asked = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let spec = json!({"request": STANDARD.encode(asked), "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"], "expirationSeconds": 3600});
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": object}, "spec": spec});
    (key.serialize_pem(), request)
}

fn field(kubectl: &Kubectl, name: &str, path: &str) -> Result<String, String> {
    let text = kubectl.run(&["get", "csr", name, "-o", &format!("jsonpath={path}")])?;
    if text.is_empty() { Err(kubectl.run(&["get", "csr", name, "-o", "json"])?) } else { Ok(text) }
}

#[test]
fn an_approved_person_is_who_the_certificate_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("persons");
    if cluster.api_address().is_none() {
        return;
    }
    let kubectl = &cluster.kubectl;
    let (key, object) = request("ann", "ann", "team");
    kubectl.apply_all(&[object, request("bob", "bob", "team").1, request("node", "system:node:x", "system:nodes").1]);
    let refused = kubectl.try_apply(&request("root", "eve", "system:masters").1.to_string()).expect_err("refused");
    assert!(refused.contains("system:masters group is not allowed"), "{refused}");
    let table = kubectl.ok(&["get", "csr", "ann", "--no-headers"]);
    assert!(table.contains("sampan-admin") && table.contains("60m") && table.contains("Pending"), "{table}");

    let _ = kubectl.ok(&["certificate", "approve", "ann", "node"]);
    let _ = kubectl.ok(&["certificate", "deny", "bob"]);
    let certificate =
        until(Duration::from_secs(20), "a certificate", || field(kubectl, "ann", "{.status.certificate}"));
    let failed = "{.status.conditions[?(@.type=='Failed')].message}";
    let why = until(Duration::from_secs(20), "a refusal", || field(kubectl, "node", failed));
    assert!(why.contains("when it joins"), "{why}");
    assert!(field(kubectl, "bob", "{.status.certificate}").is_err());
    let table = kubectl.ok(&["get", "csr", "--no-headers"]);
    for words in ["Approved,Issued", "Denied", "Approved,Failed"] {
        assert!(table.contains(words), "{table}");
    }

    let text = std::fs::read_to_string(&kubectl.kubeconfig).expect("a kubeconfig");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["users"][0]["user"] =
        json!({"client-certificate-data": certificate, "client-key-data": STANDARD.encode(key)});
    let path = cluster.folder().join("ann.conf");
    std::fs::write(&path, config.to_string()).expect("written");
    let ann = Kubectl::new(&path, &kubectl.namespace);
    let refused = ann.run(&["get", "pods"]).expect_err("no rights yet");
    assert!(refused.contains("User \"ann\" cannot list resource \"pods\""), "{refused}");
    let _ = kubectl.ok(&["create", "clusterrolebinding", "team", "--clusterrole=view", "--group=team"]);
    until(Duration::from_secs(5), "the group counts", || ann.run(&["get", "pods"]));
    // A user who may create requests may not approve them.
    kubectl.apply_all(&[request("carl", "carl", "team").1]);
    let refused = ann.run(&["certificate", "approve", "carl"]).expect_err("refused");
    assert!(refused.contains("forbidden"), "{refused}");
}
