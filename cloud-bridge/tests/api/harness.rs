//! One API, one namespace per test, and raw requests, so that codes, texts and bytes can be compared.

use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// An answer: code, body and warnings.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// The object of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{}: {}", self.code, self.body);
        self.body
    }

    /// Checks a failure's code and the exact message.
    #[track_caller]
    pub(crate) fn fails(self, code: u16, message: &str) -> Value {
        assert_eq!((self.code, self.body["message"].as_str().unwrap_or_default()), (code, message), "{}", self.body);
        self.body
    }

    /// Checks a failure's code and a part of the message.
    #[track_caller]
    pub(crate) fn fails_with(self, code: u16, part: &str) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        assert!(self.body["message"].as_str().is_some_and(|m| m.contains(part)), "{}", self.body);
        self.body
    }
}

/// The embedded API's usual settings, with the real helper for validation rules.
fn settings(folder: &std::path::Path) -> Config {
    let cel_helper = cloud_bridge::standalone::cel_helper(env!("CARGO_BIN_EXE_cloud-bridge"));
    Config { cel_helper: Some(cel_helper), ..Config::new(folder.join("api.db")) }
}

/// An API and a fresh namespace in it.
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) ns: String,
    /// True when this is a real API server.
    pub(crate) real: bool,
    /// The embedded API, if it is used.
    pub(crate) server: Option<Server>,
    pub(crate) dir: Option<tempfile::TempDir>,
}

impl Api {
    /// Opens the API and makes a namespace.
    pub(crate) async fn open() -> Self {
        let mut api = match std::env::var("TEST_KUBECONFIG") {
            Ok(path) => {
                let file = Kubeconfig::read_from(path).unwrap();
                let options = KubeConfigOptions::default();
                let mut config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
                // A 504 is an answer here, and must not be retried.
                config.default_retry = false;
                Self {
                    client: Client::try_from(config).unwrap(),
                    ns: String::new(),
                    real: true,
                    server: None,
                    dir: None,
                }
            }
            Err(_) => Self::embedded(|_| {}),
        };
        let made = api.post("/api/v1/namespaces", json!({"metadata": {"generateName": "api-test-"}})).await.ok();
        api.ns = made["metadata"]["name"].as_str().unwrap().to_owned();
        // A real cluster creates the account a moment later.
        api.until(&api.path("serviceaccounts/default"), |a| a.code == 200).await;
        api
    }

    /// The embedded API with other settings, without a namespace.
    pub(crate) fn embedded(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = settings(dir.path());
        change(&mut config);
        let server = Server::open(config).unwrap();
        let client = Client::new(server.service(UserInfo::master("admin")), "default");
        Self { client, ns: "default".into(), real: false, server: Some(server), dir: Some(dir) }
    }

    /// Ends the embedded API and opens its state again, as a restart does.
    pub(crate) async fn reopen(self) -> Self {
        let Self { client, ns, dir, server, .. } = self;
        drop((client, server));
        let folder = dir.as_ref().unwrap().path().to_owned();
        // The last users of the old one end when the runtime polls them.
        let server = loop {
            match Server::open(settings(&folder)) {
                Ok(server) => break server,
                Err(error) => assert!(error.to_string().contains("locked"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let client = Client::new(server.service(UserInfo::master("admin")), "default");
        Self { client, ns, real: false, server: Some(server), dir }
    }

    /// Folder with the state of the embedded API.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.dir.as_ref().unwrap().path()
    }

    /// A core path in the test's namespace.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.ns)
    }

    /// A path of a named group in the test's namespace.
    pub(crate) fn group_path(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.ns)
    }

    /// Sends any request. `headers` may name `accept` and others.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|w| w.to_str().unwrap().trim_start_matches("299 - ").to_owned())
            .collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code, body, warnings }
    }

    /// Same as [`send`](Self::send): returns the status, the content type and the bytes.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> (u16, String, Vec<u8>) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let code = response.status().as_u16();
        (code, kind.unwrap_or_default(), response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[("accept", JSON)], Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[("content-type", JSON)], body.to_string().into()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, &[("content-type", JSON)], body.to_string().into()).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        self.send("PATCH", path, &[("content-type", kind)], body.to_string().into()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        let body = if options.is_null() { Vec::new() } else { options.to_string().into() };
        self.send("DELETE", path, &[("content-type", JSON)], body).await
    }

    /// Repeats a request until the answer is accepted; fails after half a minute.
    pub(crate) async fn until(&self, path: &str, wish: impl Fn(&Answer) -> bool) -> Answer {
        let end = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.get(path).await;
            if wish(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < end, "{path} never became as wished: {}", answer.body);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, JSON).await
    }

    /// Opens a watch with this `Accept` header.
    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = self.client.send(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        Watch { body: Box::pin(response.into_body().into_data_stream()), rest: Vec::new() }
    }
}

/// The lines of a watch.
pub(crate) struct Watch {
    body: std::pin::Pin<Box<dyn futures::Stream<Item = Result<bytes::Bytes, kube::Error>> + Send>>,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk =
                tokio::time::timeout(Duration::from_secs(10), self.body.next()).await.expect("no event came")?;
            self.rest.extend_from_slice(&chunk.unwrap());
        }
    }

    /// The next event's type and the object's name.
    pub(crate) async fn line(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch ended");
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

/// A small valid pod that stays untouched: no scheduler has this name, so a real cluster leaves it as it is.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "busybox"}]},
    })
}

/// A config map.
pub(crate) fn config(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"k": "v"}})
}

/// Merges a change into an object.
pub(crate) fn merge(object: &mut Value, change: Value) {
    match change {
        Value::Object(fields) => {
            let Some(object) = object.as_object_mut() else { return };
            for (name, value) in fields {
                merge(object.entry(name).or_insert_with(|| json!({})), value);
            }
        }
        other => *object = other,
    }
}
