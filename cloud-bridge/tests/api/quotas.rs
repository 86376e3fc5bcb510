//! LimitRanges and ResourceQuotas: defaults and limits of objects in a namespace.

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, STRATEGIC, TABLE, config, merge, pod};

fn quota(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
}

/// Waits until the status of the quota shows this usage.
async fn used(api: &Api, name: &str, used: Value) {
    let path = api.path(&format!("resourcequotas/{name}"));
    api.until(&path, |answer| answer.body["status"]["used"] == used).await;
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut object = pod(name);
    let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    merge(&mut object, json!({"spec": {"containers": [{"name": "c", "image": "busybox", "resources": resources}]}}));
    object
}

#[tokio::test]
async fn a_quota_is_used_up_and_freed() {
    let api = Api::open().await;
    api.post(&api.path("configmaps"), config("before", json!({}))).await.ok();
    let maps = api.get(&api.path("configmaps")).await.ok()["items"].as_array().unwrap().len();
    let hard = json!({"configmaps": maps + 1, "pods": "2", "requests.cpu": "1", "count/leases.coordination.k8s.io": 1});
    let made = api.post(&api.path("resourcequotas"), quota("q", json!({ "hard": hard }))).await.ok();
    assert_eq!(made["spec"]["hard"]["pods"], "2");
    let at = |maps: usize, pods: &str, cpu: &str, leases: &str| json!({"configmaps": maps.to_string(), "pods": pods, "requests.cpu": cpu, "count/leases.coordination.k8s.io": leases});
    used(&api, "q", at(maps, "0", "0", "0")).await;
    api.post(&api.path("configmaps"), config("more", json!({}))).await.ok();
    api.post(&api.path("configmaps"), config("most", json!({}))).await.fails(
        403,
        &format!(
            "configmaps \"most\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps={0}, limited: \
             configmaps={0}",
            maps + 1
        ),
    );
    let dry = format!("{}?dryRun=All", api.path("pods"));
    api.post(&dry, asking("dry", "1")).await.ok();
    api.post(&api.path("pods"), asking("a", "600m")).await.ok();
    let full = api.post(&api.path("pods"), asking("b", "500m")).await;
    full.fails(
        403,
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: \
         requests.cpu=1",
    );
    let unnamed = api.post(&api.path("pods"), pod("c")).await;
    unnamed.fails(403, "pods \"c\" is forbidden: failed quota: q: must specify requests.cpu for: c");
    let leases = api.group_path("coordination.k8s.io/v1", "leases");
    api.post(&leases, json!({"metadata": {"name": "l"}})).await.ok();
    api.post(&leases, json!({"metadata": {"name": "m"}})).await.fails_with(403, "exceeded quota: q");
    used(&api, "q", at(maps + 1, "1", "600m", "1")).await;
    api.delete(&api.path("configmaps/more"), Value::Null).await.ok();
    api.delete(&api.path("pods/a"), json!({"gracePeriodSeconds": 0})).await.ok();
    api.delete(&format!("{leases}/l"), Value::Null).await.ok();
    used(&api, "q", at(maps, "0", "0", "0")).await;
    let table = api.send("GET", &api.path("resourcequotas/q"), &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert!(cells[1].as_str().unwrap().contains("pods: 0/2, requests.cpu: 0/1"), "{cells:?}");
    // The new limits take effect a moment later.
    api.patch(&api.path("resourcequotas/q"), MERGE, json!({"spec": {"hard": {"pods": "5"}}})).await.ok();
    api.until(&api.path("resourcequotas/q"), |answer| answer.body["status"]["hard"]["pods"] == "5").await;
}

#[tokio::test]
async fn a_pod_that_has_ended_makes_room() {
    let api = Api::open().await;
    let spec = json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]});
    api.post(&api.path("resourcequotas"), quota("q", spec)).await.ok();
    used(&api, "q", json!({"pods": "0"})).await;
    api.post(&api.path("pods"), asking("other", "1m")).await.ok();
    api.post(&api.path("pods"), pod("a")).await.ok();
    api.post(&api.path("pods"), pod("b")).await.fails_with(403, "exceeded quota: q, requested: pods=1");
    api.patch(&api.path("pods/a/status"), STRATEGIC, json!({"status": {"phase": "Succeeded"}})).await.ok();
    used(&api, "q", json!({"pods": "0"})).await;
    api.post(&api.path("pods"), pod("b")).await.ok();
    let path = api.path("resourcequotas/q");
    api.patch(&path, MERGE, json!({"spec": {"scopes": ["Terminating"]}})).await.fails_with(422, "field is immutable");
    for body in
        [json!({"hard": []}), json!({"hard": {"pods": "many"}}), json!({"hard": {"pods": true}}), json!({"scopes": 1})]
    {
        assert_eq!(api.post(&api.path("resourcequotas"), quota("w", body.clone())).await.code, 400, "{body}");
    }
    let wrong = json!({"hard": {"pods": "1.5", "beans": "1"}});
    let wrong = api.post(&api.path("resourcequotas"), quota("w", wrong)).await;
    wrong.fails_with(422, "must be a standard resource for quota");
}

/// The quota is recounted periodically, as by Kubernetes' controller every five minutes.
#[tokio::test]
async fn a_pod_that_should_be_gone_makes_room_without_a_write() {
    let api = Api::embedded(|config| config.quota_resync = std::time::Duration::from_millis(500));
    api.post(&api.path("resourcequotas"), quota("q", json!({"hard": {"pods": "1"}}))).await.ok();
    used(&api, "q", json!({"pods": "0"})).await;
    let mut one = pod("a");
    one["spec"]["nodeName"] = "far".into();
    api.post(&api.path("pods"), one).await.ok();
    used(&api, "q", json!({"pods": "1"})).await;
    let going = api.delete(&api.path("pods/a"), json!({"gracePeriodSeconds": 1})).await.ok();
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    api.post(&api.path("pods"), pod("b")).await.fails_with(403, "exceeded quota: q");
    used(&api, "q", json!({"pods": "0"})).await;
    api.get(&api.path("pods/a")).await.ok();
    api.post(&api.path("pods"), pod("b")).await.ok();
}

/// An object that is created during a count is counted once.
#[tokio::test]
async fn nobody_waits_while_a_large_namespace_is_counted() {
    let api = Api::embedded(|_| {});
    let data: serde_json::Map<_, _> = (0..1500).map(|at| (format!("key-{at}"), "value".into())).collect();
    for number in 0..300 {
        let mut object = config(&format!("m{number}"), json!({}));
        object["data"] = data.clone().into();
        api.post(&api.path("configmaps"), object).await.ok();
    }
    let before = api.get(&api.path("configmaps")).await.ok()["items"].as_array().unwrap().len();
    let path = api.path("resourcequotas");
    api.post(&path, quota("q", json!({"hard": {"configmaps": 1000}}))).await.ok();
    api.until(&format!("{path}/q"), |answer| answer.body["status"]["used"].is_object()).await;
    // A changed limit causes a complete count.
    api.patch(&format!("{path}/q"), MERGE, json!({"spec": {"hard": {"configmaps": 999}}})).await.ok();
    let (mut made, mut longest) = (0, std::time::Duration::ZERO);
    loop {
        let spent = crate::hostile::spent();
        let answer = api.post(&api.path("configmaps"), config(&format!("n{made}"), json!({}))).await;
        longest = longest.max(crate::hostile::spent() - spent);
        answer.ok();
        made += 1;
        if api.get(&format!("{path}/q")).await.ok()["status"]["hard"]["configmaps"] == "999" {
            break;
        }
    }
    assert!(made > 2, "it was counted in a moment: {made}");
    assert!(longest.as_millis() < 200, "{longest:?}");
    used(&api, "q", json!({"configmaps": (before + made).to_string()})).await;
}

#[tokio::test]
async fn a_limit_range_fills_and_bounds() {
    let api = Api::open().await;
    let limits = json!([
        {"type": "Container", "max": {"cpu": 2}, "min": {"cpu": "100m"}, "default": {"cpu": "500m"},
            "defaultRequest": {"cpu": "200m"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]);
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": limits}});
    let made = api.post(&api.path("limitranges"), range.clone()).await.ok();
    assert_eq!(made["spec"]["limits"][0]["max"], json!({"cpu": "2"}));
    // A real API server reads its ranges from a cache.
    tokio::time::sleep(std::time::Duration::from_millis(if api.real { 1000 } else { 0 })).await;
    let filled = api.post(&api.path("pods"), pod("filled")).await.ok();
    let resources = json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "200m"}});
    assert_eq!(filled["spec"]["containers"][0]["resources"], resources);
    assert_eq!(
        filled["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(filled["status"]["qosClass"], "Burstable");
    api.post(&api.path("pods"), asking("large", "3"))
        .await
        .fails(403, "pods \"large\" is forbidden: maximum cpu usage per Container is 2, but limit is 3");
    let claim = |size: &str| {
        json!({"metadata": {"generateName": "c-"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}})
    };
    api.post(&api.path("persistentvolumeclaims"), claim("1Gi")).await.ok();
    let large = api.post(&api.path("persistentvolumeclaims"), claim("2Gi")).await;
    large.fails_with(403, "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi");
    let unnamed = api.post(&api.path("limitranges"), json!({"spec": {"limits": []}})).await.ok();
    assert_eq!(unnamed["metadata"]["name"].as_str().map(str::len), Some(36), "{unnamed}");
    let mut wrong = range;
    merge(
        &mut wrong,
        json!({"metadata": {"name": "w"}, "spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}}),
    );
    let wrong = api.post(&api.path("limitranges"), wrong).await;
    wrong.fails_with(422, "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'");
    for limits in [json!({}), json!([1]), json!([{"type": 1}]), json!([{"max": []}]), json!([{"max": {"cpu": {}}}])] {
        let body = json!({"metadata": {"name": "w"}, "spec": {"limits": limits}});
        assert_eq!(api.post(&api.path("limitranges"), body.clone()).await.code, 400, "{body}");
    }
}
