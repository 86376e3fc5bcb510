//! The requests: every path of the server's own documents, with unsuitable bodies, queries and content types.

use serde_json::Value;

use crate::client::Client;

/// Pseudo-random numbers of a seed (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(bits).unwrap_or_default() % n.max(1)
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

pub(crate) const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "FROB"];

pub(crate) const KINDS: [&str; 9] = [
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "text/plain; charset=\"",
    "",
];

pub(crate) const QUERIES: [&str; 20] = [
    "",
    "",
    "",
    "watch=1&timeoutSeconds=9223372036854775807",
    "watch=1&timeoutSeconds=-1",
    "watch=1&timeoutSeconds=x",
    "watch=1&resourceVersion=x",
    "limit=-1",
    "limit=9223372036854775807",
    "limit=x",
    "continue=garbage",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
    "labelSelector=%28%28%28%2C%21%2C",
    "fieldSelector=a%3D%3D%3Db%2C%2C%00",
    "fieldManager=a&force=x",
    "dryRun=None",
    "fieldValidation=Strict",
    "gracePeriodSeconds=-9223372036854775808",
    "tailLines=-1&sinceSeconds=9223372036854775807&limitBytes=0",
    "resourceVersionMatch=x&sendInitialEvents=1&allowWatchBookmarks=x",
];

/// Bodies, and whether the server may close the connection instead of answering because of their length.
pub(crate) fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let named = |rest: &str| format!("{{\"metadata\":{{\"name\":\"strange\"}}{rest}}}").into_bytes();
    let mut all = vec![
        ("nothing", Vec::new()),
        ("list", text("[]")),
        ("object", text("{}")),
        ("text", text("\"\"")),
        ("number", text("1")),
        ("null", text("null")),
        ("cut off", text("{\"metadata\":{\"name\":\"a")),
        ("no UTF-8", vec![b'"', 0xff, 0xfe, b'"']),
        ("metadata of a list", text("{\"metadata\":[]}")),
        ("name of a number", text("{\"metadata\":{\"name\":1}}")),
        ("annotation of a number", text("{\"metadata\":{\"name\":\"strange\",\"annotations\":{\"a\":1}}}")),
        ("spec of a list", named(",\"spec\":[]")),
        ("spec of a number", named(",\"spec\":1")),
        ("status of a text", named(",\"status\":\"x\"")),
        (
            "spec and status of lists of numbers",
            named(",\"spec\":{\"containers\":[1]},\"status\":{\"conditions\":[1]}"),
        ),
        ("operations", text("[{\"op\":\"add\",\"path\":\"\",\"value\":[]}]")),
        ("operations of numbers", text("[1,{\"op\":1,\"path\":[]}]")),
        ("directives", text("{\"$patch\":1,\"$setElementOrder/a\":1,\"$retainKeys\":{}}")),
        ("protobuf", [b"k8s\0".to_vec(), vec![0x0a, 0x7f], vec![0xff; 30]].concat()),
        (
            "quantities",
            named(
                ",\"spec\":{\"capacity\":{\"storage\":\"1e2147483647\"}},\"status\":{\"capacity\":{\"cpu\":\"1e-2147483648\"}}",
            ),
        ),
        ("exec options", text("{\"gracePeriodSeconds\":-9223372036854775808,\"preconditions\":[]}")),
    ];
    let deep = |open: &str, close: &str| (open.repeat(10_000) + &close.repeat(10_000)).into_bytes();
    all.push(("deep lists", deep("[", "]")));
    all.push(("deep objects", deep("{\"a\":", "}")));
    all
}

/// Bodies of megabytes, sent occasionally.
pub(crate) fn huge_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let list = |element: &str, count: usize| format!("[{}0]", element.repeat(count)).into_bytes();
    vec![
        ("4 MiB of text", format!("\"{}\"", "x".repeat(4 << 20)).into_bytes()),
        ("many objects", list("{\"\":0},", 400_000)),
        ("many fields", {
            let fields: String = (0..150_000).map(|n| format!("\"x{n}\":0,")).collect();
            format!("{{\"metadata\":{{\"name\":\"strange\"}},{fields}\"y\":0}}").into_bytes()
        }),
        ("many conditions", {
            let condition = "{\"type\":\"a\",\"status\":\"True\"},".repeat(80_000);
            format!("{{\"status\":{{\"conditions\":[{condition}{{}}]}}}}").into_bytes()
        }),
        ("doubling copies", {
            let copies = "{\"op\":\"copy\",\"from\":\"\",\"path\":\"/metadata/x\"},".repeat(60);
            format!("[{copies}{{\"op\":\"test\",\"path\":\"/a\",\"value\":1}}]").into_bytes()
        }),
    ]
}

/// A path and its properties.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) path: String,
    /// A collection of cluster-scoped objects, or of the clients' own identities: deleting it as an administrator
    /// affects every client.
    pub(crate) shared: bool,
}

/// Every path of the discovery documents and of OpenAPI, with names that do not exist.
pub(crate) fn places(admin: &mut Client, namespace: &str) -> Vec<Place> {
    let mut get = |path: &str| -> Value {
        let answer = admin.send("GET", path, "", b"").expect("an answer").expect("an answer");
        assert_eq!(answer.code, 200, "{path}");
        serde_json::from_slice(&answer.body).unwrap_or_default()
    };
    let mut roots = vec!["/api/v1".to_owned()];
    for group in get("/apis")["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            roots.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap_or_default()));
        }
    }
    let mut found = Vec::new();
    for root in &roots {
        for resource in get(root)["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            let namespaced = resource["namespaced"] == true;
            let base = if namespaced { format!("{root}/namespaces/{namespace}") } else { root.clone() };
            match name.split_once('/') {
                Some((plural, part)) => {
                    found.push(Place { path: format!("{base}/{plural}/strange/{part}"), shared: false });
                }
                None => {
                    found.push(Place { path: format!("{base}/{name}"), shared: !namespaced });
                    found.push(Place { path: format!("{base}/{name}/strange"), shared: false });
                    if namespaced {
                        found.push(Place { path: format!("{root}/{name}"), shared: true });
                    }
                }
            }
        }
    }
    for document in get("/openapi/v3")["paths"].as_object().into_iter().flat_map(serde_json::Map::values) {
        let url = document["serverRelativeURL"].as_str().unwrap_or_default();
        let described = get(url);
        for path in described["paths"].as_object().into_iter().flat_map(serde_json::Map::keys) {
            let filled = path.replace("{namespace}", namespace).replace("{name}", "strange").replace("{path}", "x");
            let shared = !path.contains("{name}") && !path.contains("{namespace}");
            found.push(Place { path: filled, shared });
        }
    }
    for path in
        ["/", "/api", "/apis", "/version", "/healthz", "/openapi/v2", "/metrics", "/frob", "/api/v1/../..", "/%ff%00"]
    {
        found.push(Place { path: path.to_owned(), shared: false });
    }
    for place in &mut found {
        place.shared |= place.path.ends_with("/serviceaccounts");
    }
    found.sort_by(|a, b| (&a.path, !a.shared).cmp(&(&b.path, !b.shared)));
    found.dedup_by(|a, b| a.path == b.path);
    found
}

/// Whether every authenticated user may read it (the role system:discovery), or any client (system:public-info-viewer).
pub(crate) fn is_open(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    matches!(
        segments.as_slice(),
        [] | ["version" | "healthz" | "livez" | "readyz" | "api" | "apis"]
            | ["api", _]
            | ["apis", _]
            | ["apis", _, _]
            | ["openapi" | "openid" | ".well-known", ..]
    )
}

/// Bytes that are not a request of HTTP/1.1.
pub(crate) fn garbage() -> Vec<Vec<u8>> {
    let head =
        |rest: &str| format!("POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\n{rest}").into_bytes();
    let fields: String = (0..1_000).map(|n| format!("x-{n}: y\r\n")).collect();
    vec![
        b"\r\n\r\n".to_vec(),
        b"GET /version HTTP/9.9\r\n\r\n".to_vec(),
        b"GET http://[::1/ HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\xff\xff\x04\x00\x00\x00\x00\x01".to_vec(),
        vec![0xff; 70_000],
        head("content-length: -1\r\n\r\n{}"),
        head("content-length: 18446744073709551616\r\n\r\n{}"),
        head("content-length: 18446744073709551615\r\n\r\n{}"),
        head("content-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
        head("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        head("transfer-encoding: chunked\r\n\r\nffffffffffffffff0\r\n{}"),
        head("transfer-encoding: chunked\r\n\r\n2;a=\"\r\n{}\r\n-1\r\n"),
        head("authorization: Bearer \u{28}\u{fffd}\r\ncookie: \0\r\n\r\n"),
        head("connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n"),
        head(&format!("{fields}\r\n")),
        head("content-length: 1000\r\n\r\n{\"meta"),
    ]
}
