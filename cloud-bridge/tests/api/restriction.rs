//! NodeRestriction, row by row as in Kubernetes' own tests.

use serde_json::{Value, json};

use crate::harness::{Api, JSON, MERGE, pod};

const PUT: &str = "PUT";
const POST: &str = "POST";
const PATCH: &str = "PATCH";
const DELETE: &str = "DELETE";

/// User, request and body; the code, and a part of the message.
type Row = (&'static str, &'static str, String, Value, u16, String);

async fn run(api: &Api, node: &str, rows: Vec<Row>) {
    let user = format!("system:node:{node}");
    for (what, method, path, body, code, part) in rows {
        let kind = if method == PATCH { MERGE } else { JSON };
        let headers =
            [("impersonate-user", user.as_str()), ("impersonate-group", "system:nodes"), ("content-type", kind)];
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into() };
        let answer = api.send(method, &path, &headers, bytes).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(answer.code == code && message.contains(&part), "{what}: {} {}", answer.code, answer.body);
    }
}

fn mirror(name: &str, node: &str, uid: &Value) -> Value {
    let mut object = pod(name);
    object["spec"].as_object_mut().unwrap().remove("automountServiceAccountToken");
    object["spec"]["nodeName"] = json!(node);
    object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    object
}

fn with(object: &Value, path: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, field) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

#[tokio::test]
async fn mirror_pods() {
    let api = Api::open().await;
    let node = format!("node-{}", api.ns);
    let pods = api.path("pods");
    let unknown = mirror("early", &node, &json!("none"));
    run(&api, &node, vec![("no Node yet", POST, pods.clone(), unknown, 404, "not found".into())]).await;
    let uid = api.post("/api/v1/nodes", json!({"metadata": {"name": node}})).await.ok()["metadata"]["uid"].clone();
    let good = mirror("static", &node, &uid);
    let owner = |field: &str, value: Value| with(&good, &format!("/metadata/ownerReferences/0/{field}"), value);
    let own_reference = "with an owner reference set to itself";
    let volume = |volume: Value| with(&good, "/spec/volumes", json!([volume]));
    let twice =
        json!([good["metadata"]["ownerReferences"][0], {"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "b"}]);
    let mut rows: Vec<Row> = vec![
        (
            "no mirror",
            POST,
            pods.clone(),
            with(&good, "/metadata/annotations", json!({})),
            403,
            "can only create mirror pods".into(),
        ),
        (
            "of another node",
            POST,
            pods.clone(),
            with(&good, "/spec/nodeName", json!("other")),
            403,
            "with spec.nodeName set to itself".into(),
        ),
        (
            "unbound",
            POST,
            pods.clone(),
            with(&good, "/spec/nodeName", Value::Null),
            403,
            "with spec.nodeName set to itself".into(),
        ),
        (
            "no owner",
            POST,
            pods.clone(),
            with(&good, "/metadata/ownerReferences", json!([])),
            403,
            own_reference.into(),
        ),
        (
            "two owners",
            POST,
            pods.clone(),
            with(&good, "/metadata/ownerReferences", twice),
            403,
            "with a single owner reference".into(),
        ),
        ("owner's name", POST, pods.clone(), owner("name", json!("other")), 403, own_reference.into()),
        ("owner's kind", POST, pods.clone(), owner("kind", json!("Pod")), 403, own_reference.into()),
        ("owner's version", POST, pods.clone(), owner("apiVersion", json!("v2")), 403, own_reference.into()),
        ("owner's uid", POST, pods.clone(), owner("uid", json!("other")), 403, "UID mismatch".into()),
        (
            "no controller",
            POST,
            pods.clone(),
            owner("controller", Value::Null),
            403,
            "with a controller owner reference".into(),
        ),
        (
            "false controller",
            POST,
            pods.clone(),
            owner("controller", json!(false)),
            403,
            "with a controller owner reference".into(),
        ),
        (
            "blocking",
            POST,
            pods.clone(),
            owner("blockOwnerDeletion", json!(true)),
            403,
            "must not set blockOwnerDeletion".into(),
        ),
        (
            "account",
            POST,
            pods.clone(),
            with(&good, "/spec/serviceAccountName", json!("default")),
            403,
            "may not reference service accounts".into(),
        ),
        (
            "secret",
            POST,
            pods.clone(),
            volume(json!({"name": "v", "secret": {"secretName": "s"}})),
            403,
            "may not reference secrets".into(),
        ),
        (
            "token",
            POST,
            pods.clone(),
            volume(json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            403,
            "may not use ServiceAccountToken volume projections".into(),
        ),
    ];
    let env = json!([{"configMapRef": {"name": "c"}}]);
    for (what, object, resource) in [
        ("config map", volume(json!({"name": "v", "configMap": {"name": "c"}})), "configmaps"),
        ("config map of variables", with(&good, "/spec/containers/0/envFrom", env), "configmaps"),
        ("claim", volume(json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})), "persistentvolumeclaims"),
    ] {
        let why = format!("can not create pods that reference {resource}");
        rows.push((what, POST, pods.clone(), object, 403, why));
    }
    rows.push(("a good one", POST, pods.clone(), good.clone(), 201, String::new()));
    let (path, status) = (api.path("pods/static"), api.path("pods/static/status"));
    let running = json!({"status": {"phase": "Running"}});
    let unmask = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": null}}});
    rows.extend([
        ("update", PATCH, path.clone(), json!({"metadata": {"labels": {"a": "b"}}}), 403, String::new()),
        ("status", PATCH, status.clone(), running.clone(), 200, String::new()),
        (
            "label by status",
            PATCH,
            status.clone(),
            json!({"metadata": {"labels": {"a": "b"}}}),
            403,
            "cannot update labels through pod status".into(),
        ),
        (
            "claims by status",
            PATCH,
            status.clone(),
            json!({"status": {"resourceClaimStatuses": [{"name": "a"}]}}),
            403,
            "cannot update resource claim".into(),
        ),
        (
            "no mirror by status",
            PATCH,
            status.clone(),
            unmask,
            422,
            "may not remove or update mirror pod annotation".into(),
        ),
        ("its status is there already", POST, status.clone(), running, 403, String::new()),
        ("read", "GET", path.clone(), Value::Null, 200, String::new()),
    ]);
    run(&api, &node, rows).await;
    // An administrator cannot remove the annotation either.
    let unmask = json!({"metadata": {"annotations": null}});
    api.patch(&path, MERGE, unmask).await.fails_with(422, "may not remove or update mirror pod annotation");
    run(&api, &node, vec![("delete", DELETE, path, json!({"gracePeriodSeconds": 0}), 200, String::new())]).await;
    api.delete(&format!("/api/v1/nodes/{node}"), Value::Null).await.ok();
}

#[tokio::test]
async fn pods_of_the_node_and_of_others() {
    let api = Api::open().await;
    let node = format!("node-{}", api.ns);
    for (name, at) in [("mine", Some(node.as_str())), ("theirs", Some("other")), ("nowhere", None)] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = json!(at);
        api.post(&api.path("pods"), object).await.ok();
    }
    let status = json!({"status": {"phase": "Running"}});
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let mark = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    let mut rows: Vec<Row> = vec![
        ("its own status", PATCH, api.path("pods/mine/status"), status.clone(), 200, String::new()),
        (
            "its own made a mirror",
            PATCH,
            api.path("pods/mine/status"),
            mark,
            422,
            "may not add mirror pod annotation".into(),
        ),
        ("its own spec", PATCH, api.path("pods/mine"), json!({"spec": {"priority": 1}}), 403, String::new()),
        ("all of them", DELETE, api.path("pods"), Value::Null, 403, String::new()),
        ("one that is not there", POST, api.path("pods/none/eviction"), evict("none"), 404, String::new()),
    ];
    for name in ["theirs", "nowhere"] {
        let own = "with spec.nodeName set to itself";
        rows.extend([
            ("read", "GET", api.path(&format!("pods/{name}")), Value::Null, 403, "no relationship found".to_owned()),
            (
                "status",
                PATCH,
                api.path(&format!("pods/{name}/status")),
                status.clone(),
                403,
                format!("can only update pod status for pods {own}"),
            ),
            (
                "delete",
                DELETE,
                api.path(&format!("pods/{name}")),
                Value::Null,
                403,
                format!("can only delete pods {own}"),
            ),
            (
                "evict",
                POST,
                api.path(&format!("pods/{name}/eviction")),
                evict(name),
                403,
                format!("can only evict pods {own}"),
            ),
        ]);
    }
    rows.push(("evict its own", POST, api.path("pods/mine/eviction"), evict("mine"), 201, String::new()));
    run(&api, &node, rows).await;
    for name in ["mine", "theirs", "nowhere"] {
        api.delete(&api.path(&format!("pods/{name}")), json!({"gracePeriodSeconds": 0})).await;
    }
}

#[tokio::test]
async fn its_node_and_lease() {
    let api = Api::open().await;
    let node = format!("node-{}", api.ns);
    let (nodes, path) = ("/api/v1/nodes".to_owned(), format!("/api/v1/nodes/{node}"));
    let named = |name: &str| json!({"metadata": {"name": name}});
    let labelled = |labels: Value| json!({"metadata": {"name": node, "labels": labels}});
    let change = |labels: Value| json!({"metadata": {"labels": labels}});
    let modify = format!("node {node:?} is not allowed to modify node \"other\"");
    let other_lease = "can only access node lease with the same name";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_owned();
    api.post("/api/v1/nodes", named(&format!("{node}-b"))).await.ok();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "y"}]);
    let config =
        json!({"spec": {"configSource": {"configMap": {"name": "c", "namespace": "n", "kubeletConfigKey": "k"}}}});
    let mut rows: Vec<Row> = vec![
        ("another", POST, nodes.clone(), named("other"), 403, modify),
        (
            "forbidden labels",
            POST,
            nodes.clone(),
            labelled(json!({"node-restriction.kubernetes.io/a": "b"})),
            403,
            "is not allowed to set the following labels".into(),
        ),
        (
            "annotations of its own standing",
            POST,
            nodes.clone(),
            json!({"metadata": {"name": node, "annotations": {"sampan.dev/autonomy": "forever"}}}),
            403,
            "is not allowed to modify annotations of sampan.dev/".into(),
        ),
        (
            "its own, with labels and taints",
            POST,
            nodes.clone(),
            {
                let mut object = labelled(json!({"kubernetes.io/hostname": "x", "mine": "1"}));
                object["spec"] = json!({"taints": [{"key": "a", "effect": "NoSchedule"}]});
                object
            },
            201,
            String::new(),
        ),
        (
            "labels of its own",
            PATCH,
            path.clone(),
            change(json!({"mine": null, "node.kubernetes.io/x": "1"})),
            200,
            String::new(),
        ),
        (
            "labels of others",
            PATCH,
            path.clone(),
            change(json!({"other.k8s.io/a": "b"})),
            403,
            "is not allowed to modify labels: other.k8s.io/a".into(),
        ),
        (
            "what decides whether it may connect",
            PATCH,
            path.clone(),
            json!({"metadata": {"annotations": {"sampan.dev/revoked": "false"}}}),
            403,
            "is not allowed to modify annotations of sampan.dev/".into(),
        ),
        (
            "to which board its name belongs",
            PATCH,
            path.clone(),
            json!({"metadata": {"annotations": {"sampan.dev/hardware": "ab"}}}),
            403,
            "is not allowed to modify annotations of sampan.dev/".into(),
        ),
        (
            "the same through its status",
            PATCH,
            format!("{path}/status"),
            json!({"metadata": {"annotations": {"sampan.dev/autonomy": "forever"}}}),
            403,
            "is not allowed to modify annotations of sampan.dev/".into(),
        ),
        (
            "which connection is its newest, and what is nobody's",
            PATCH,
            path.clone(),
            json!({"metadata": {"annotations": {"sampan.dev/session": "7", "sampan.dev/devices-stale": "true",
                "example.com/a": "b"}}}),
            200,
            String::new(),
        ),
        (
            "taints gone",
            PATCH,
            path.clone(),
            json!({"spec": {"taints": null}}),
            403,
            "is not allowed to modify taints".into(),
        ),
        (
            "taints changed",
            PATCH,
            path.clone(),
            json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
            403,
            "is not allowed to modify taints".into(),
        ),
        (
            "an owner",
            PATCH,
            path.clone(),
            json!({"metadata": {"ownerReferences": owner}}),
            403,
            "is not allowed to modify ownerReferences".into(),
        ),
        ("a configuration", PATCH, path.clone(), config, 403, "non-nil configSource".into()),
        (
            "its status",
            PATCH,
            format!("{path}/status"),
            json!({"status": {"capacity": {"cpu": "1"}}}),
            200,
            String::new(),
        ),
        (
            "another's status",
            PATCH,
            format!("{path}-b/status"),
            json!({"status": {"capacity": {"cpu": "1"}}}),
            403,
            "is not allowed to modify node".into(),
        ),
        ("its end", DELETE, path.clone(), Value::Null, 403, String::new()),
        ("its lease", POST, leases.clone(), named(&node), 201, String::new()),
        ("another's lease", POST, leases.clone(), named("other"), 403, other_lease.into()),
        ("another's lease changed", PATCH, format!("{leases}/other"), json!({}), 403, other_lease.into()),
        (
            "a lease elsewhere",
            POST,
            api.group_path("coordination.k8s.io/v1", "leases"),
            named(&node),
            403,
            "system namespace".into(),
        ),
        ("its lease changed", PUT, format!("{leases}/{node}"), Value::Null, 400, String::new()),
        ("its lease gone", DELETE, format!("{leases}/{node}"), Value::Null, 200, String::new()),
    ];
    if api.real {
        // Only the embedded API uses these annotations.
        rows.retain(|row| !row.5.contains("annotations of sampan.dev/"));
    }
    run(&api, &node, rows).await;
    for name in [format!("{path}-b"), path] {
        api.delete(&name, Value::Null).await.ok();
    }
}

#[tokio::test]
async fn what_one_node_writes_fills_no_disk() {
    let api = Api::embedded(|_| {});
    let events = api.path("events");
    let event = |number: usize| {
        json!({"metadata": {"name": format!("e{number}")}, "reason": "Much", "type": "Normal",
            "message": "x".repeat(1000), "annotations": {}, "involvedObject": {"kind": "Pod", "name": "p",
            "namespace": api.ns, "uid": "u", "fieldPath": "x".repeat(200 << 10)}})
    };
    let user = |name: &'static str, group: &'static str| {
        [("impersonate-user", name), ("impersonate-group", group), ("content-type", JSON)]
    };
    let mut codes = Vec::new();
    for number in 0..8 {
        let headers = user("system:node:greedy", "system:nodes");
        let answer = api.send(POST, &events, &headers, event(number).to_string().into()).await;
        codes.push(answer.code);
    }
    assert_eq!(codes, [201, 201, 201, 201, 201, 201, 429, 429], "1 MiB, the last of it exceeded");
    for (number, (name, group)) in [("system:node:modest", "system:nodes"), ("a", "system:masters")].iter().enumerate()
    {
        let answer = api.send(POST, &events, &user(name, group), event(100 + number).to_string().into()).await;
        assert_eq!(answer.code, 201, "{name}: {}", answer.body);
    }
}
