//! Create, read, replace: fields that the server sets, and refusals.

use serde_json::{Value, json};

use crate::harness::{Api, JSON, TABLE, config, pod};

#[tokio::test]
async fn a_new_pod_is_defaulted_and_complete() {
    let api = Api::open().await;
    let made = api.post(&api.path("pods"), pod("p")).await;
    assert_eq!(made.code, 201);
    let made = made.ok();
    let meta = &made["metadata"];
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("Pod"), &json!("v1")));
    assert_eq!(meta["generation"], 1);
    assert!(meta["uid"].as_str().is_some_and(|u| u.len() == 36));
    assert!(meta["creationTimestamp"].as_str().is_some_and(|t| t.len() == 20 && t.ends_with('Z')));
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["status"]["qosClass"], "BestEffort");
    let spec = &made["spec"];
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let read = api.get(&api.path("pods/p")).await.ok();
    assert_eq!(read["metadata"]["resourceVersion"], meta["resourceVersion"]);
}

#[tokio::test]
async fn what_is_not_there() {
    let api = Api::open().await;
    let body = api.get(&api.path("pods/nope")).await.fails(404, "pods \"nope\" not found");
    assert_eq!(body["details"], json!({"name": "nope", "kind": "pods"}));
    api.post("/api/v1/namespaces/nowhere/pods", pod("p")).await.fails(404, "namespaces \"nowhere\" not found");
    api.get("/api/v1/frobs").await.fails(404, "the server could not find the requested resource");
    assert_eq!(api.get("/frob").await.body, "404 page not found\n");
    api.delete(&api.path("pods/nope"), Value::Null).await.fails(404, "pods \"nope\" not found");
    api.send("PUT", &api.path("pods"), &[("content-type", JSON)], pod("p").to_string().into())
        .await
        .fails(405, "the server does not allow this method on the requested resource");
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let api = Api::open().await;
    api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    let body =
        api.post(&api.path("configmaps"), config("c", json!({}))).await.fails(409, "configmaps \"c\" already exists");
    assert_eq!(body["reason"], "AlreadyExists");
}

#[tokio::test]
async fn names_are_generated() {
    let api = Api::open().await;
    let object = json!({"metadata": {"generateName": "g-"}});
    let one = api.post(&api.path("configmaps"), object.clone()).await.ok();
    let two = api.post(&api.path("configmaps"), object).await.ok();
    let name = |o: &Value| o["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&one).starts_with("g-") && name(&one).len() == 7);
    assert_ne!(name(&one), name(&two));
}

#[tokio::test]
async fn wrong_metadata_is_named_by_field() {
    let api = Api::open().await;
    api.post(&api.path("configmaps"), json!({"metadata": {}}))
        .await
        .fails(422, "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required");
    let body = api
        .post(
            &api.path("configmaps"),
            json!({"metadata": {"name": "x", "labels": {"a": "b c"}, "finalizers": ["bad one"]}}),
        )
        .await
        .fails_with(422, "metadata.labels: Invalid value: \"b c\": a valid label must be");
    let fields: Vec<&Value> = body["details"]["causes"].as_array().unwrap().iter().map(|c| &c["field"]).collect();
    assert!(fields.contains(&&json!("metadata.labels")) && fields.contains(&&json!("metadata.finalizers")));
    api.post(&api.path("configmaps"), json!({"metadata": {"name": "x", "namespace": "other"}}))
        .await
        .fails(400, "the namespace of the provided object does not match the namespace sent on the request");
}

#[tokio::test]
async fn a_wrong_pod_gets_the_field_path() {
    let api = Api::open().await;
    let mut wrong = pod("p");
    wrong["spec"]["containers"] = json!([]);
    api.post(&api.path("pods"), wrong).await.fails(422, "Pod \"p\" is invalid: spec.containers: Required value");
    let mut wrong = pod("p");
    wrong["spec"]["containers"][0]["name"] = json!(7);
    api.post(&api.path("pods"), wrong)
        .await
        .fails_with(400, "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal");
}

#[tokio::test]
async fn unknown_fields() {
    let api = Api::open().await;
    let mut wrong = pod("p");
    wrong["spec"]["foo"] = json!(1);
    wrong["spec"]["containers"][0]["bar"] = json!(2);
    let path = api.path("pods");
    api.post(&format!("{path}?fieldValidation=Strict"), wrong.clone())
        .await
        .fails_with(400, "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.containers[0].bar\", unknown field \"spec.foo\"");
    let warned = api.post(&format!("{path}?fieldValidation=Warn&dryRun=All"), wrong.clone()).await;
    assert_eq!(warned.code, 201);
    assert!(warned.warnings.contains(&"\"unknown field \\\"spec.foo\\\"\"".to_owned()), "{:?}", warned.warnings);
    assert!(warned.body["spec"].get("foo").is_none());
    let ignored = api.post(&format!("{path}?fieldValidation=Ignore&dryRun=All"), wrong).await;
    assert_eq!((ignored.code, ignored.warnings.len()), (201, 0));
    let twice = r#"{"metadata":{"name":"p","name":"q"}}"#;
    api.send(
        "POST",
        &format!("{}?fieldValidation=Strict", api.path("configmaps")),
        &[("content-type", JSON)],
        twice.into(),
    )
    .await
    .fails_with(400, "strict decoding error: duplicate field \"metadata.name\"");
}

#[tokio::test]
async fn dry_runs_leave_nothing() {
    let api = Api::open().await;
    let path = api.path("configmaps");
    let dry = api.post(&format!("{path}?dryRun=All"), config("c", json!({}))).await;
    assert_eq!(dry.code, 201);
    assert!(dry.body["metadata"]["uid"].is_string());
    assert_eq!(api.get(&format!("{path}/c")).await.code, 404);
    api.post(&format!("{path}?dryRun=Some"), config("c", json!({}))).await.fails(
        422,
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
    );
    api.post(&path, config("c", json!({}))).await.ok();
    assert_eq!(api.delete(&format!("{path}/c?dryRun=All"), Value::Null).await.code, 200);
    assert_eq!(api.get(&format!("{path}/c")).await.code, 200);
}

#[tokio::test]
async fn updates_need_the_newest_version() {
    let api = Api::open().await;
    let path = api.path("configmaps/c");
    let first = api.post(&api.path("configmaps"), config("c", json!({}))).await.ok();
    let mut changed = first.clone();
    changed["data"]["k"] = json!("w");
    let second = api.put(&path, changed.clone()).await.ok();
    assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    let body = api.put(&path, changed.clone()).await.fails(
        409,
        "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please apply your changes to the latest version and try again",
    );
    assert_eq!(body["reason"], "Conflict");
    let same = api.put(&path, second.clone()).await.ok();
    assert_eq!(
        same["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"],
        "an update without change writes nothing"
    );
    changed["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    changed["data"]["k"] = json!("x");
    api.put(&path, changed.clone()).await.ok();
    changed["metadata"]["uid"] = json!("other");
    api.put(&path, changed)
        .await
        .fails_with(409, "Precondition failed: UID in precondition: other, UID in object meta: ");
    api.put(&path, config("d", json!({})))
        .await
        .fails(400, "the name of the object (d) does not match the name on the URL (c)");
}

#[tokio::test]
async fn leases_are_created_by_put_but_never_updated_blindly() {
    let api = Api::open().await;
    let path = api.group_path("coordination.k8s.io/v1", "leases/l");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    assert_eq!(api.put(&path, lease.clone()).await.code, 201);
    api.put(&path, lease).await.fails(
        422,
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    );
}

#[tokio::test]
async fn secrets_take_plain_strings() {
    let api = Api::open().await;
    let made = api.post(&api.path("secrets"), json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).await.ok();
    assert_eq!(made["data"], json!({"a": "Yg=="}));
    assert_eq!(made["type"], "Opaque");
    assert!(made.get("stringData").is_none());
}

#[tokio::test]
async fn events_have_two_views() {
    let api = Api::open().await;
    let event = json!({
        "metadata": {"name": "e"}, "reason": "R", "message": "m", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": api.ns, "name": "p"},
    });
    api.post(&api.path("events"), event).await.ok();
    let seen = api.get(&api.group_path("events.k8s.io/v1", "events/e")).await.ok();
    assert_eq!((&seen["note"], &seen["regarding"]["name"]), (&json!("m"), &json!("p")));
    assert_eq!(seen["apiVersion"], "events.k8s.io/v1");
    let newer = json!({
        "metadata": {"name": "n"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "action": "a",
        "reportingInstance": "i", "reason": "R", "type": "Normal", "regarding": {"kind": "Pod", "namespace": api.ns, "name": "q"},
    });
    api.post(&api.group_path("events.k8s.io/v1", "events"), newer).await.ok();
    for (view, selector, found) in [
        (api.path("events"), "source=c", "n"),
        (api.path("events"), "reportingComponent=c", "n"),
        (api.path("events"), "involvedObject.name=p", "e"),
        (api.group_path("events.k8s.io/v1", "events"), "reportingController=c", "n"),
        (api.group_path("events.k8s.io/v1", "events"), "regarding.name=p", "e"),
    ] {
        let list = api.get(&format!("{view}?fieldSelector={selector}")).await.ok();
        let names: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|e| &e["metadata"]["name"]).collect();
        assert_eq!(names, [found], "{selector}");
    }
    let other = api.group_path("events.k8s.io/v1", "events?fieldSelector=source=c");
    api.get(&other).await.fails_with(400, "field label not supported: source");
}

#[tokio::test]
async fn tables_for_people() {
    let api = Api::open().await;
    api.post(&api.path("pods"), pod("p")).await.ok();
    let table = api.send("GET", &api.path("pods"), &[("accept", TABLE)], Vec::new()).await.ok();
    assert_eq!(table["kind"], "Table");
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("p"), json!("0/1"), json!("Pending")]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn formats_that_are_not_served() {
    let api = Api::open().await;
    let answer = api.send("GET", &api.path("pods"), &[("accept", "text/html")], Vec::new()).await;
    assert_eq!((answer.code, &answer.body["reason"]), (406, &json!("NotAcceptable")));
    let answer = api.send("POST", &api.path("pods"), &[("content-type", "text/plain")], b"x".to_vec()).await;
    assert_eq!((answer.code, &answer.body["reason"]), (415, &json!("UnsupportedMediaType")));
    let protobuf_first = "application/vnd.kubernetes.protobuf,application/json";
    if !api.real {
        assert_eq!(api.send("GET", &api.path("pods"), &[("accept", protobuf_first)], Vec::new()).await.code, 200);
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (accept, code) in [(TABLE, 406), ("application/json, */*", 201)] {
        let headers = [("accept", accept), ("content-type", "application/json")];
        let answer = api.send("POST", reviews, &headers, review.to_string().into()).await;
        assert_eq!(answer.code, code, "{accept}: {}", answer.body);
    }
    // An unserved kind is not found, whatever the body is: typed clients detect a missing kind by that.
    let mut body = b"k8s\0".to_vec();
    body.extend(b"\x0a\x14\x0a\x0aexample/v1\x12\x06Widget\x12\x00");
    let typed = [("content-type", "application/vnd.kubernetes.protobuf")];
    let answer = api.send("POST", "/apis/example/v1/namespaces/default/widgets", &typed, body.clone()).await;
    assert_eq!(answer.code, 404, "{}", answer.body);
    let answer = api.send("POST", &api.path("widgets"), &typed, body).await;
    assert_eq!((answer.code, &answer.body["reason"]), (404, &json!("NotFound")));
}

#[tokio::test]
async fn kinds_that_nothing_acts_on_are_found_and_refused() {
    let api = Api::embedded(|_| {});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let listed = api.get(hooks).await.ok();
    assert_eq!((&listed["kind"], &listed["items"]), (&json!("ValidatingWebhookConfigurationList"), &json!([])));
    assert_eq!(api.get(&format!("{hooks}/h")).await.code, 404);
    let hook = json!({"metadata": {"name": "h"}, "webhooks": []});
    let told = "validatingwebhookconfigurations.admissionregistration.k8s.io is forbidden: this API asks no webhooks";
    let refused = api.post(hooks, hook).await.fails_with(403, "this API asks no webhooks");
    assert!(refused["message"].as_str().unwrap().starts_with(told), "{refused}");
    let typed = [("content-type", "application/vnd.kubernetes.protobuf")];
    let answer = api.send("POST", hooks, &typed, b"k8s\0\x0a\x00".to_vec()).await;
    assert_eq!(answer.code, 403, "whatever the body is: {}", answer.body);
    let found = api.get("/apis/apiregistration.k8s.io/v1").await.ok();
    assert_eq!(found["resources"][0]["name"], "apiservices");
}

#[tokio::test]
async fn reviews_are_found_and_can_only_be_asked() {
    let api = Api::open().await;
    for (group, reviews) in
        [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
    {
        let found = api.get(&format!("/apis/{group}/v1")).await.ok();
        let rows = found["resources"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == reviews).unwrap();
        assert_eq!((&row["verbs"], &row["namespaced"]), (&json!(["create"]), &json!(false)));
        assert_eq!(api.get(&format!("/apis/{group}/v1/{reviews}")).await.code, 405);
    }
}

/// Computed once, when the object is stored.
#[tokio::test]
async fn writes_answer_with_the_bytes_that_a_get_gives() {
    let api = Api::open().await;
    let (path, one) = (api.path("configmaps"), api.path("configmaps/same"));
    let object = |data: Value| {
        let mut map = config("same", json!({}));
        map["data"] = data;
        map.to_string().into_bytes()
    };
    let labelled = json!({"metadata": {"labels": {"a": "b"}}}).to_string().into_bytes();
    for (method, path, kind, body) in [
        ("POST", &path, "application/json", object(json!({"k": "1"}))),
        ("PUT", &one, "application/json", object(json!({"k": "2"}))),
        ("PATCH", &one, "application/merge-patch+json", labelled.clone()),
        ("PATCH", &one, "application/merge-patch+json", labelled),
    ] {
        let (code, _, answer) = api.raw(method, path, &[("content-type", kind)], body).await;
        assert!((200..300).contains(&code), "{method}: {code}");
        let (_, _, got) = api.raw("GET", &one, &[], Vec::new()).await;
        assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(&got), "{method}");
    }
}

/// An object that was read and written in protobuf is unchanged: both directions encode all fields.
#[tokio::test]
async fn who_takes_protobuf_alone_gets_it() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let api = Api::open().await;
    let apps = |name: &str| format!("/apis/apps/v1/namespaces/{}/{name}", api.ns);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i",
        "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "100m"}},
        "readinessProbe": {"httpGet": {"port": "web"}}, "securityContext": {"runAsUser": 0, "privileged": false}}]}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template,
        "strategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}}});
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "AAEC/w=="}, "immutable": false});
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80, "targetPort": "web"}], "selector": {"a": "b"}}});
    let lone = json!({"metadata": {"name": "p"}, "spec": template["spec"]});
    let made = [
        (apps("deployments"), web, "web"),
        (api.path("secrets"), secret, "s"),
        (api.path("services"), service, "web"),
        (api.path("pods"), lone, "p"),
    ];
    for (path, object, name) in made {
        api.post(&path, object).await.ok();
        let one = format!("{path}/{name}");
        // A controller may write meanwhile.
        let mut same = false;
        for _ in 0..20 {
            let before = api.get(&one).await.ok();
            let (code, kind, bytes) = api.raw("GET", &one, &[("accept", PROTOBUF)], Vec::new()).await;
            assert_eq!((code, kind.as_str(), &bytes[..4]), (200, PROTOBUF, &b"k8s\0"[..]), "{one}");
            let headers = [("content-type", PROTOBUF), ("accept", "application/json")];
            let after = api.send("PUT", &one, &headers, bytes).await;
            same =
                after.code == 200 && after.body["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"];
            if same {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        assert!(same, "{one}");
        let (code, _, list) = api.raw("GET", &path, &[("accept", PROTOBUF)], Vec::new()).await;
        assert!(code == 200 && list.starts_with(b"k8s\0"));
    }
    let (code, kind, status) = api.raw("GET", &api.path("pods/none"), &[("accept", PROTOBUF)], Vec::new()).await;
    assert_eq!((code, kind.as_str(), &status[..4]), (404, PROTOBUF, &b"k8s\0"[..]));
    let watch = format!("{}?watch=1&timeoutSeconds=1", api.path("secrets"));
    let (code, kind, events) =
        api.raw("GET", &watch, &[("accept", &format!("{PROTOBUF};stream=watch"))], Vec::new()).await;
    assert_eq!((code, kind.as_str()), (200, "application/vnd.kubernetes.protobuf;stream=watch"));
    let length = usize::try_from(u32::from_be_bytes(events[..4].try_into().unwrap())).unwrap();
    assert!(events.len() >= 4 + length && events[4..].starts_with(b"\x0a\x05ADDED"));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, kind, _) = api.raw("GET", definitions, &[("accept", PROTOBUF)], Vec::new()).await;
    assert_eq!((code, kind.as_str()), (200, PROTOBUF));
}

/// Go's encoder ends each object with a newline, and clients compare a refusal as text.
#[tokio::test]
async fn json_answers_end_with_a_newline() {
    let api = Api::open().await;
    let all = api.path("configmaps");
    let body = config("c", json!({})).to_string();
    let typed = [("content-type", JSON), ("accept", JSON)];
    let (code, _, made) = api.raw("POST", &all, &typed, body.clone().into()).await;
    assert!(code == 201 && made.ends_with(b"}\n"), "{}", String::from_utf8_lossy(&made));
    let (_, _, refused) = api.raw("POST", &all, &typed, body.into()).await;
    let expected = concat!(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"c\" already exists","#,
        r#""reason":"AlreadyExists","details":{"name":"c","kind":"configmaps"},"code":409}"#,
        "\n"
    );
    assert_eq!(String::from_utf8_lossy(&refused), expected);
    for path in [all.clone(), format!("{all}/c"), "/api/v1".to_owned(), "/apis".to_owned()] {
        let (_, _, shown) = api.raw("GET", &path, &[("accept", JSON)], Vec::new()).await;
        assert!(shown.ends_with(b"}\n"), "{path}");
    }
}
