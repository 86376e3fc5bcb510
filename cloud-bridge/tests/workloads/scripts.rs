//! The same scripts on a real control plane, whose answers were recorded, and on the controllers here: equal objects, conditions
//! and events but for names and times. With `TEST_KUBECONFIG` they run on that cluster and write down what it said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use controller_manager::node_lifecycle;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Map;

use super::*;

/// What a kubelet needs to notice, and a controller to react, before the next thing happens: so each order of steps is the
/// only one.
const STEP: Duration = Duration::from_millis(300);

/// A namespace of an API with controllers, and one who plays the nodes.
struct Stage {
    client: Client,
    namespace: String,
    /// What ReplicaSets are called here, also those that have gone.
    names: Arc<Mutex<BTreeMap<String, String>>>,
    _site: Option<Site>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

fn kubeconfig() -> Option<PathBuf> {
    std::env::var_os("TEST_KUBECONFIG").map(PathBuf::from)
}

impl Stage {
    async fn open() -> Self {
        let (client, site) = match kubeconfig() {
            Some(path) => {
                let file = Kubeconfig::read_from(path).expect("a kubeconfig");
                let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
                (Client::try_from(config.expect("a configuration")).expect("a client"), None)
            }
            None => {
                let site = Site::open();
                (site.client.clone(), Some(site))
            }
        };
        let mut tasks = Vec::new();
        if site.is_some() {
            tasks.push(tokio::spawn(workloads::run(
                client.clone(),
                Pods::start(&client),
                workloads::Options::default(),
            )));
            let settings = node_lifecycle::Settings { evicts: true, ipam: None };
            tasks.push(tokio::spawn(node_lifecycle::run(client.clone(), "nobody", settings)));
        }
        let new = serde_json::from_value(json!({"metadata": {"generateName": "scripts-"}})).expect("a namespace");
        let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &new).await.expect("made");
        let namespace = made.name_any();
        let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(client.clone(), &namespace);
        until("its account", async || accounts.get_opt("default").await.is_ok_and(|found| found.is_some())).await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), &namespace);
        let names = Arc::new(Mutex::new(BTreeMap::from([(namespace.clone(), "NS".to_owned())])));
        let known = Arc::clone(&names);
        tasks.push(tokio::spawn(async move {
            loop {
                tokio::time::sleep(STEP).await;
                for set in sets.list(&ListParams::default()).await.into_iter().flatten() {
                    note(&json!(set), &mut known.lock().expect("no panic"));
                }
                play_node(&pods).await;
            }
        }));
        Self { client, namespace, names, _site: site, tasks }
    }

    fn of(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, plural) = match kind {
            "Pod" => ("", "v1", "pods"),
            "Event" => ("", "v1", "events"),
            "ResourceQuota" => ("", "v1", "resourcequotas"),
            "Deployment" => ("apps", "v1", "deployments"),
            "ReplicaSet" => ("apps", "v1", "replicasets"),
            "StatefulSet" => ("apps", "v1", "statefulsets"),
            "Job" => ("batch", "v1", "jobs"),
            other => panic!("{other}"),
        };
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resource = ApiResource {
            group: group.into(),
            version: version.into(),
            api_version,
            kind: kind.into(),
            plural: plural.into(),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn make(&self, object: &Value) {
        let kind = object["kind"].as_str().expect("a kind");
        let object = serde_json::from_value(object.clone()).expect("an object");
        self.of(kind).create(&PostParams::default(), &object).await.expect("made");
    }

    async fn patch(&self, kind: &str, name: &str, patch: &Value) {
        self.of(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    async fn list(&self, kind: &str) -> Vec<Value> {
        let items = self.of(kind).list(&ListParams::default()).await.expect("a list").items;
        items.into_iter().map(|one| json!(one)).collect()
    }

    /// Waits until an object's status is so, and nothing changes any more.
    async fn until(&self, kind: &str, name: &str, met: impl Fn(&Value) -> bool) {
        until(&format!("{kind} {name}"), async || {
            let object = self.of(kind).get(name).await.map(|one| json!(one)).unwrap_or_default();
            let seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            (seen || kind == "Job") && met(&object["status"])
        })
        .await;
        let versions = async || {
            let mut all = Vec::new();
            for kind in ["Pod", "Deployment", "ReplicaSet", "StatefulSet", "Job", "Event"] {
                all.extend(self.list(kind).await.iter().map(|one| one["metadata"]["resourceVersion"].clone()));
            }
            all
        };
        let mut before = versions().await;
        until("rest", async || {
            tokio::time::sleep(STEP * 4).await;
            let now = versions().await;
            now == std::mem::replace(&mut before, now.clone())
        })
        .await;
    }

    /// All that there is, in words that are the same each time.
    async fn shown(&self) -> Value {
        let names = self.names.lock().expect("no panic").clone();
        let mut objects = Vec::new();
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.list("Pod").await {
            let owner = &pod["metadata"]["ownerReferences"][0]["name"];
            let line = format!(
                "{} of {}: {}",
                image_of(&pod),
                owner.as_str().unwrap_or("nobody"),
                pod["status"]["phase"].as_str().unwrap_or_default()
            );
            *pods.entry(line).or_default() += 1;
        }
        objects.push(json!({ "pods": pods }));
        for kind in ["Deployment", "ReplicaSet", "StatefulSet", "Job"] {
            let mut all: Vec<Value> = self.list(kind).await.iter().map(|one| bare(kind, one)).collect();
            all.sort_by_key(|one| renamed(one, &names).to_string());
            objects.extend(all);
        }
        let events: BTreeSet<String> = self.list("Event").await.iter().map(|event| line(event, &names)).collect();
        objects.push(json!({ "events": events }));
        renamed(&json!(objects), &names)
    }
}

fn image_of(template: &Value) -> &str {
    template["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// Calls a ReplicaSet by what is in it.
fn note(set: &Value, names: &mut BTreeMap<String, String>) {
    let text = |pointer: &str| set.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    names.insert(text("/metadata/name"), format!("SET({})", image_of(&set["spec"]["template"])));
    names.insert(text("/metadata/labels/pod-template-hash"), "HASH".to_owned());
}

/// Says of the oldest pod that waits that it runs, has ended or has failed, as its image says.
async fn play_node(pods: &Api<Pod>) {
    let Ok(list) = pods.list(&ListParams::default()).await else { return };
    let mut waiting: Vec<(String, String, String)> = Vec::new();
    for pod in list {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone()).unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if phase == "Pending" && image != "broken" && pod.metadata.deletion_timestamp.is_none() {
            let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
            waiting.push((made, pod.name_any(), image));
        }
    }
    let Some((_, name, image)) = waiting.into_iter().min() else { return };
    let ended = |code: i32| {
        let state = json!({"terminated": {"exitCode": code, "reason": "Ended"}});
        json!([{"name": "c", "image": image, "imageID": "", "ready": false, "restartCount": 0, "state": state}])
    };
    let status = match image.as_str() {
        "ends" => json!({"phase": "Succeeded", "containerStatuses": ended(0)}),
        "fails" => json!({"phase": "Failed", "containerStatuses": ended(3)}),
        _ => json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    };
    // It may be gone meanwhile.
    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await;
}

/// An object without what differs each time.
fn bare(kind: &str, object: &Value) -> Value {
    let mut meta = object["metadata"].clone();
    let fields = meta.as_object_mut().expect("metadata");
    fields.retain(|name, _| ["name", "labels", "annotations", "generation", "finalizers"].contains(&name.as_str()));
    let mut whole = json!({"kind": kind, "metadata": meta, "spec": object["spec"], "status": object["status"]});
    strip(&mut whole);
    if let Some(conditions) = whole["status"].get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.sort_by_key(|one| one["type"].to_string());
    }
    whole
}

fn strip(value: &mut Value) {
    const TIMES: &[&str] =
        &["lastTransitionTime", "lastUpdateTime", "lastProbeTime", "startTime", "completionTime", "creationTimestamp"];
    const OWN: &[&str] = &["controller-uid", "batch.kubernetes.io/controller-uid", "currentRevision", "updateRevision"];
    match value {
        Value::Object(map) => {
            map.retain(|name, value| {
                !TIMES.contains(&name.as_str()) && !OWN.contains(&name.as_str()) && !value.is_null()
            });
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// An event as people see it.
fn line(event: &Value, names: &BTreeMap<String, String>) -> String {
    let part = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let about = part("/involvedObject/kind");
    let message = words(&part("/message"), names);
    // How many were alike is a matter of time.
    let message = message.trim_start_matches("(combined from similar events): ");
    let name = words(&part("/involvedObject/name"), names);
    format!("{about} {name}: {} {} from {}: {message}", part("/type"), part("/reason"), part("/source/component"))
}

/// A text with other names for what is called by chance.
fn words(text: &str, names: &BTreeMap<String, String>) -> String {
    const SAFE: &str = "bcdfghjklmnpqrstvwxz2456789";
    let text = named(text, names);
    let mut parts = text.split('-');
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        let (word, rest) = part.split_at(end);
        let chance = word.len() == 5 && word.chars().all(|c| SAFE.contains(c)) && !rest.starts_with('(');
        all.push('-');
        all.push_str(if chance { "*" } else { word });
        all.push_str(rest);
    }
    all
}

fn named(text: &str, names: &BTreeMap<String, String>) -> String {
    // The longest first: a name may begin with another one.
    let mut all: Vec<_> = names.iter().filter(|(name, _)| !name.is_empty()).collect();
    all.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    all.iter().fold(text.to_owned(), |text, (name, shown)| text.replace(name.as_str(), shown))
}

fn renamed(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => words(text, names).into(),
        Value::Array(list) => list.iter().map(|one| renamed(one, names)).collect(),
        Value::Object(map) => {
            map.iter().map(|(name, value)| (words(name, names), renamed(value, names))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// Compares what came of a script with what a real control plane made of it, or writes that down.
async fn compare(name: &str, stage: &Stage) {
    let shown = stage.shown().await;
    let path = format!("{}/tests/fixtures/reference/scripts/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = format!("{}\n", serde_json::to_string_pretty(&shown).expect("JSON"));
    if kubeconfig().is_some() {
        std::fs::write(&path, text).expect("written");
        return;
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut differences = String::new();
    for line in text.lines().filter(|line| !recorded.lines().any(|other| other == *line)) {
        let _ = writeln!(differences, "ours:   {line}");
    }
    for line in recorded.lines().filter(|line| !text.lines().any(|other| other == *line)) {
        let _ = writeln!(differences, "theirs: {line}");
    }
    assert!(text == recorded, "{name}:\n{differences}{text}");
}

/// Only the simulated nodes handle the pods.
fn template(image: &str) -> Value {
    let container = json!({"name": "c", "image": image, "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}});
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"schedulerName": "nobody", "containers": [container]}})
}

fn deployment(replicas: u32, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("one")},
    });
    object["spec"].as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
    object
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": template(image)}})
}

fn all(replicas: u32) -> impl Fn(&Value) -> bool {
    move |status| ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|name| status[name] == replicas)
}

fn condition(status: &Value, kind: &str, reason: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    { conditions }.any(|one| one["type"] == kind && one["reason"] == reason)
}

#[tokio::test]
async fn roll_out_roll_back_and_scale() {
    let stage = Stage::open().await;
    stage.make(&deployment(3, json!({}))).await;
    stage.until("Deployment", "web", all(3)).await;
    compare("made", &stage).await;
    stage.patch("Deployment", "web", &image("two")).await;
    stage.until("Deployment", "web", all(3)).await;
    compare("rolled", &stage).await;
    stage.patch("Deployment", "web", &json!({"spec": {"replicas": 5}})).await;
    stage.until("Deployment", "web", all(5)).await;
    stage.patch("Deployment", "web", &json!({"spec": {"replicas": 2}})).await;
    stage.until("Deployment", "web", all(2)).await;
    compare("scaled", &stage).await;
    stage.patch("Deployment", "web", &image("one")).await;
    stage.until("Deployment", "web", all(2)).await;
    compare("rolled-back", &stage).await;
}

#[tokio::test]
async fn surge_and_unavailable() {
    let stage = Stage::open().await;
    let strategy = json!({"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}});
    stage.make(&deployment(4, json!({"strategy": strategy, "revisionHistoryLimit": 1}))).await;
    stage.until("Deployment", "web", all(4)).await;
    for version in ["two", "three", "four"] {
        stage.patch("Deployment", "web", &image(version)).await;
        stage.until("Deployment", "web", all(4)).await;
    }
    compare("surge", &stage).await;
}

#[tokio::test]
async fn paused_and_resumed() {
    let stage = Stage::open().await;
    stage.make(&deployment(2, json!({}))).await;
    stage.until("Deployment", "web", all(2)).await;
    stage.patch("Deployment", "web", &json!({"spec": {"paused": true}})).await;
    stage.patch("Deployment", "web", &image("two")).await;
    stage.patch("Deployment", "web", &json!({"spec": {"replicas": 3}})).await;
    stage.until("Deployment", "web", |status| status["availableReplicas"] == 3).await;
    compare("paused", &stage).await;
    stage.patch("Deployment", "web", &json!({"spec": {"paused": false}})).await;
    stage.until("Deployment", "web", all(3)).await;
    compare("resumed", &stage).await;
}

#[tokio::test]
async fn an_image_that_fails_and_the_way_back() {
    let stage = Stage::open().await;
    stage.make(&deployment(3, json!({"progressDeadlineSeconds": 2}))).await;
    stage.until("Deployment", "web", all(3)).await;
    stage.patch("Deployment", "web", &image("broken")).await;
    stage.until("Deployment", "web", |status| condition(status, "Progressing", "ProgressDeadlineExceeded")).await;
    compare("failing", &stage).await;
    stage.patch("Deployment", "web", &image("one")).await;
    stage.until("Deployment", "web", all(3)).await;
    compare("mended", &stage).await;
}

#[tokio::test]
async fn recreated() {
    let stage = Stage::open().await;
    stage.make(&deployment(2, json!({"strategy": {"type": "Recreate"}}))).await;
    stage.until("Deployment", "web", all(2)).await;
    stage.patch("Deployment", "web", &image("two")).await;
    stage.until("Deployment", "web", all(2)).await;
    compare("recreated", &stage).await;
}

#[tokio::test]
async fn a_quota_that_is_used_up() {
    let stage = Stage::open().await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}});
    stage.make(&quota).await;
    until("the quota", async || stage.list("ResourceQuota").await[0]["status"]["used"].is_object()).await;
    stage.make(&deployment(3, json!({}))).await;
    stage
        .until("Deployment", "web", |status| {
            condition(status, "ReplicaFailure", "FailedCreate") && status["availableReplicas"] == 2
        })
        .await;
    compare("quota", &stage).await;
}

fn stateful_set(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}}, "template": template("one")},
    })
}

#[tokio::test]
async fn a_stateful_set_rolls_and_shrinks() {
    let stage = Stage::open().await;
    stage.make(&stateful_set(3)).await;
    let ready = |count: u32| {
        move |status: &Value| {
            status["availableReplicas"] == count && status["updatedReplicas"] == count && status["replicas"] == count
        }
    };
    stage.until("StatefulSet", "db", ready(3)).await;
    stage.patch("StatefulSet", "db", &image("two")).await;
    stage.until("StatefulSet", "db", |status| ready(3)(status) && status["currentReplicas"] == 3).await;
    stage.patch("StatefulSet", "db", &json!({"spec": {"replicas": 1}})).await;
    stage.until("StatefulSet", "db", ready(1)).await;
    compare("stateful-set", &stage).await;
}

fn job(name: &str, image: &str, more: Value) -> Value {
    let mut pod = template(image);
    pod["metadata"] = json!({});
    pod["spec"]["restartPolicy"] = "Never".into();
    let mut object =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": pod}});
    object["spec"].as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
    object
}

#[tokio::test]
async fn jobs_complete_and_fail() {
    let stage = Stage::open().await;
    stage.make(&job("work", "ends", json!({"completions": 3, "parallelism": 2}))).await;
    stage.make(&job("indexed", "ends", json!({"completions": 2, "completionMode": "Indexed"}))).await;
    stage.make(&job("wrong", "fails", json!({"backoffLimit": 0}))).await;
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]);
    stage.make(&job("policy", "fails", json!({"backoffLimit": 5, "podFailurePolicy": {"rules": rules}}))).await;
    let done = |kind: &'static str| {
        move |status: &Value| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            { conditions }.any(|one| one["type"] == kind && one["status"] == "True")
        }
    };
    for (name, kind) in [("work", "Complete"), ("indexed", "Complete"), ("wrong", "Failed"), ("policy", "Failed")] {
        stage.until("Job", name, done(kind)).await;
    }
    compare("jobs", &stage).await;
}

/// Binds all pods that have no node to this one, as a scheduler would.
async fn place(pods: &Api<Pod>, node: &str) {
    for pod in pods.list(&ListParams::default()).await.into_iter().flatten() {
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()) {
            let name = pod.name_any();
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
            // It may be gone meanwhile.
            let _ = pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding).await;
        }
    }
}

#[tokio::test]
async fn a_node_that_is_lost() {
    let stage = Stage::open().await;
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let state = |ready: &str| {
        let ready =
            json!({"type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "message": "nothing is heard"});
        json!({"status": {"conditions": [ready]}})
    };
    let names = ["first", "second"].map(|name| format!("{}-{name}", stage.namespace));
    for name in &names {
        stage.names.lock().expect("no panic").insert(name.clone(), "NODE".to_owned());
        // Ready from the first: one that nothing was heard of has pods go, and it is chance which pods see that.
        let mut node = state("True");
        node["metadata"] = json!({"name": name});
        let node = serde_json::from_value(node).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("created");
    }
    let patience = ["unreachable", "not-ready"].map(|taint| {
        json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2})
    });
    let mut web = deployment(2, json!({}));
    web["spec"]["template"]["spec"]["tolerations"] = json!(patience);
    stage.make(&web).await;
    until("two pods", async || {
        place(&pods, &names[0]).await;
        stage.of("Deployment").get("web").await.is_ok_and(|web| all(2)(&json!(web)["status"]))
    })
    .await;
    nodes.patch_status(&names[0], &PatchParams::default(), &Patch::Strategic(state("Unknown"))).await.expect("patched");
    until("two others", async || {
        let list = pods.list(&ListParams::default()).await.expect("a list").items;
        let (going, others): (Vec<_>, Vec<_>) = list.iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        if !going.is_empty() {
            place(&pods, &names[1]).await;
        }
        let ready = |pod: &&&Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        going.len() == 2 && others.iter().filter(ready).count() == 2
    })
    .await;
    stage.until("Deployment", "web", all(2)).await;
    compare("node-lost", &stage).await;
    for name in &names {
        let _ = nodes.delete(name, &DeleteParams::default()).await;
    }
}
