//! Refusals and tables of Ingresses.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{row, validate, warnings};

fn complaints(spec: Value) -> Vec<String> {
    validate::create(&json!({ "spec": spec })).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

fn path(change: Value) -> Value {
    let mut path =
        json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}});
    json_patch::merge(&mut path, &change);
    path
}

#[test]
fn rules_lead_from_hosts_to_services() {
    let none: [&str; 0] = [];
    let of = |host: &str, change: Value| {
        let told = complaints(json!({"rules": [{"host": host, "http": {"paths": [path(change)]}}]}));
        told.iter().map(|one| one.replace("spec.rules[0].", "")).collect::<Vec<_>>()
    };
    assert_eq!(of("a.example", json!({})), none);
    assert_eq!(of("*.example", json!({})), none);
    assert_eq!(of("", json!({"pathType": "ImplementationSpecific", "path": null})), none);
    let address = of("10.0.0.1", json!({}));
    assert_eq!(address, ["host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"]);
    assert!(of("a.*.example", json!({}))[0].contains("a wildcard DNS-1123 subdomain must start with '*.'"));
    let at = "http.paths[0]";
    assert_eq!(
        of("", json!({"pathType": null})),
        [format!("{at}.pathType: Required value: pathType must be specified")]
    );
    assert_eq!(
        of("", json!({"path": "a//b/.."})),
        [
            format!("{at}.path: Invalid value: \"a//b/..\": must be an absolute path"),
            format!("{at}.path: Invalid value: \"a//b/..\": must not contain '//'"),
            format!("{at}.path: Invalid value: \"a//b/..\": cannot end with '/..'"),
        ]
    );
    assert!(of("", json!({"pathType": "Regex"}))[0].ends_with("\"Exact\", \"ImplementationSpecific\", \"Prefix\""));
    let backend = |service: Value| of("", json!({"backend": {"service": service}}));
    assert_eq!(
        backend(json!({"port": {"number": null}})),
        [format!("{at}.backend: Required value: port name or number is required")]
    );
    assert_eq!(
        backend(json!({"port": {"name": "http"}})),
        [format!("{at}.backend: Invalid value: \"\": cannot set both port name & port number")]
    );
    assert!(backend(json!({"name": "Web"}))[0].starts_with(&format!("{at}.backend.service.name: Invalid value")));
    assert_eq!(
        of("", json!({"backend": {"service": null}})),
        [format!("{at}.backend: Invalid value: \"\": resource or service backend is required")]
    );
}

#[test]
fn an_ingress_leads_somewhere() {
    assert_eq!(
        complaints(json!({})),
        ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
    );
    let backend = json!({"defaultBackend": {"resource": {"apiGroup": "example.com", "kind": "Bucket", "name": "b"}}});
    assert!(complaints(backend).is_empty());
    let mut named = json!({"metadata": {"annotations": {validate::CLASS_ANNOTATION: "a"}},
        "spec": {"rules": [{}], "ingressClassName": "b"}});
    assert_eq!(validate::create(&named)[0].field, "annotations.kubernetes.io/ingress.class");
    assert!(warnings(&named).is_empty());
    named["spec"] = json!({"rules": [{}]});
    assert_eq!(warnings(&named).len(), 1);
    let tls = |secret: &str| json!({"spec": {"rules": [{}], "tls": [{"secretName": secret, "hosts": ["a.example"]}]}});
    assert_eq!(validate::update(&tls("A_b"), &tls("ok"))[0].field, "spec.tls[0].secretName");
    assert!(validate::update(&tls("A_b"), &tls("A_b")).is_empty());
    let status = |ip: &str| json!({"status": {"loadBalancer": {"ingress": [{"ip": ip, "hostname": "10.0.0.1"}]}}});
    let fields: Vec<String> = validate::status(&status("x"), &status("y")).into_iter().map(|e| e.field).collect();
    assert_eq!(fields, ["status.loadBalancer.ingress[0].ip", "status.loadBalancer.ingress[0].hostname"]);
}

#[test]
fn a_row_shows_the_first_hosts() {
    let rules: Vec<Value> = ["a", "b", "c", "d", "e"].iter().map(|host| json!({ "host": host })).collect();
    let cells = |rules: &[Value]| {
        let ingress = json!({"metadata": {"name": "i"}, "spec": {"rules": rules, "tls": [{}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"hostname": "x"}]}}});
        row(&ingress, Timestamp::UNIX_EPOCH)[1..5].to_vec()
    };
    assert_eq!(cells(&rules), [json!("<none>"), json!("a,b,c + 2 more..."), json!("10.0.0.2,x"), json!("80, 443")]);
    assert_eq!(cells(&rules[..3])[1], "a,b,c");
    assert_eq!(cells(&[])[1], "*");
}
