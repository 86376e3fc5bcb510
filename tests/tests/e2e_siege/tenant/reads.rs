//! Lists, watches and documents that are expensive to compute.

use serde_json::json;

use super::{JSON, Tenant, named, path};
use crate::siege::Attack;

/// Content types, with the rest of an `Accept` header.
const FORMS: [&str; 4] = [
    JSON,
    "application/json\r\naccept: application/vnd.kubernetes.protobuf",
    "application/json\r\naccept: application/yaml",
    "application/json\r\naccept: application/json;as=Table;v=v1;g=meta.k8s.io",
];
/// Length of a query, below the limit of a request's head.
const LONG: usize = 5_000;

pub(super) fn attacks(tenant: &Tenant) -> Vec<Attack<'_>> {
    let values: Vec<String> = (0..LONG / 8).map(|at| format!("v{at}")).collect();
    let set = format!("a+notin+%28{}%29", values.join(","));
    let fields: Vec<String> = (0..LONG / 30).map(|at| format!("metadata.name%21%3Dx-{at}")).collect();
    let fields = fields.join(",");
    let documents = ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/api/v1", "/apis", "/api"];
    let listed = ["configmaps", "events", "pods", "services", "secrets", "apps/v1/replicasets"];
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let wide: serde_json::Map<_, _> = (0..30_000).map(|at| (format!("k{at}"), json!("v"))).collect();
    vec![
        tenant.making("large objects in every form", &["configmaps"], move |asker, random| {
            let map = json!({"metadata": {"name": named(random, 40)}, "data": wide});
            asker.post(&path("configmaps"), &map);
            let query =
                random.one(&["", "?limit=500", "?labelSelector=a", "?watch=1&timeoutSeconds=1&labelSelector=!a"]);
            asker.ask("GET", &format!("{}{query}", path("configmaps")), random.one(&FORMS), b"")
        }),
        tenant.repeated("selectors", move |asker, random| {
            let collection = path(random.one(&listed));
            let query =
                if random.below(2) == 0 { format!("labelSelector={set}") } else { format!("fieldSelector={fields}") };
            asker.ask("GET", &format!("{collection}?{query}"), "", b"")
        }),
        tenant.repeated("watches with selectors", move |asker, random| {
            let query = format!("watch=1&timeoutSeconds=1&labelSelector=a%3D{}", named(random, 100));
            asker.ask("GET", &format!("{}?{query}", path(random.one(&listed))), "", b"")
        }),
        tenant.repeated("pages of one object", move |asker, random| {
            let base = format!("{}?limit=1", path(random.one(&listed)));
            let mut next = base.clone();
            for _ in 0..50 {
                let (_, body) = asker.answer("GET", &next, "", b"")?;
                let page: serde_json::Value = serde_json::from_slice(&body).ok()?;
                let token = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty())?;
                let bent = if random.below(10) == 0 { token.to_lowercase() } else { token.to_owned() };
                next = format!("{base}&continue={}", bent.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F"));
            }
            None
        }),
        tenant.repeated("old revisions", move |asker, random| {
            let collection = path(random.one(&listed));
            let query = match random.below(4) {
                0 => "watch=1&timeoutSeconds=1&resourceVersion=1".to_owned(),
                1 => "resourceVersion=1&resourceVersionMatch=Exact".to_owned(),
                2 => "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                      &allowWatchBookmarks=true"
                    .to_owned(),
                _ => "resourceVersion=99999999999&resourceVersionMatch=NotOlderThan&timeoutSeconds=1".to_owned(),
            };
            asker.ask("GET", &format!("{collection}?{query}"), "", b"")
        }),
        tenant.repeated("documents", move |asker, random| asker.ask("GET", random.one(&documents), "", b"")),
        tenant.repeated("reviews", move |asker, random| {
            let attributes = json!({"namespace": "evil", "verb": named(random, 50), "resource": "pods"});
            let spec = json!({"resourceAttributes": attributes, "namespace": "evil"});
            let path = format!("/apis/authorization.k8s.io/v1/{}", random.one(&reviews));
            asker.post(&path, &json!({"spec": spec}))
        }),
        tenant.repeated("what is forbidden", move |asker, random| {
            let other = ["/api/v1/secrets", "/api/v1/nodes", "/api/v1/namespaces/honest/configmaps", "/metrics"];
            let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            match random.below(4) {
                0 => asker.post(definitions, &json!({"metadata": {"name": "a.b"}, "spec": {}})),
                1 => asker.ask("DELETE", "/api/v1/namespaces/honest/configmaps", "", b""),
                _ => asker.ask("GET", random.one(&other), "", b""),
            }
        }),
    ]
}
