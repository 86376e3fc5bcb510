//! The codes of answers that Kubernetes documents, or that its API server gives, for requests of an administrator.

/// Method, path (relative to the namespace's core path, or absolute), content type, body, code.
pub(crate) type Case = (&'static str, &'static str, &'static str, String, u16);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const SELF_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

pub(crate) fn cases() -> Vec<Case> {
    let text = str::to_owned;
    vec![
        ("GET", "configmaps/none", "", text(""), 404),
        ("DELETE", "configmaps/none", "", text(""), 404),
        ("PATCH", "configmaps/none", MERGE, text("{}"), 404),
        ("GET", "pods/none/log", "", text(""), 404),
        ("GET", "/apis/none.example/v1/nothings", "", text(""), 404),
        ("GET", "/frob", "", text(""), 404),
        ("POST", "configmaps", JSON, text("[]"), 400),
        ("POST", "configmaps", JSON, text("1"), 400),
        ("POST", "configmaps", JSON, text("\"\""), 400),
        ("POST", "configmaps", JSON, text(""), 400),
        ("POST", "configmaps", JSON, text("{\"metadata\":"), 400),
        ("POST", "configmaps", JSON, text("{\"metadata\":{\"name\":1}}"), 400),
        ("POST", "configmaps", JSON, text("{\"metadata\":{\"name\":\"a\",\"annotations\":{\"a\":1}}}"), 400),
        (
            "POST",
            "configmaps",
            JSON,
            text("{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}"),
            400,
        ),
        ("POST", "configmaps", JSON, "{\"data\":".repeat(10_000) + &"}".repeat(10_000), 400),
        ("POST", "configmaps", JSON, text("{}"), 422),
        ("POST", "configmaps", JSON, text("{\"metadata\":{\"name\":\"No Name\"}}"), 422),
        ("POST", "configmaps", JSON, format!("\"{}\"", "x".repeat(4 << 20)), 413),
        ("POST", "configmaps", "application/xml", text("<a/>"), 415),
        ("PATCH", "configmaps/none", "text/plain", text("{}"), 415),
        ("POST", "configmaps/none", JSON, text("{}"), 405),
        ("PUT", "configmaps", JSON, text("{}"), 405),
        ("GET", "configmaps?limit=x", "", text(""), 400),
        ("GET", "configmaps?continue=garbage", "", text(""), 400),
        ("GET", "configmaps?labelSelector=%28%28", "", text(""), 400),
        ("GET", "configmaps?fieldSelector=a%3Db", "", text(""), 400),
        ("GET", "configmaps?watch=1&timeoutSeconds=x", "", text(""), 400),
        ("POST", SELF_ACCESS, JSON, text("[]"), 400),
        ("POST", SELF_ACCESS, JSON, text("1"), 400),
        ("POST", "pods/none/eviction", JSON, text("[]"), 400),
        ("POST", "pods/none/binding", JSON, text("1"), 400),
    ]
}
