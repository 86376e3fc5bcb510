//! HorizontalPodAutoscalers on the embedded API: metrics of a simulated node, scaled by the API's own `scale`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use controller_manager::podautoscaler::{self, Options};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kubelet_api::backend::{
    BackendError, BoxFuture, Channels, KubeletBackend, LogOptions, LogStream, PodOnNode, SessionOptions,
};
use serde_json::Value;

use super::*;

/// A node whose pods use two cores each, as long as it answers.
struct Burning {
    start: Instant,
    pods: Mutex<Vec<String>>,
    away: AtomicBool,
}

impl Burning {
    fn knows(&self, pod: String) {
        let mut pods = self.pods.lock().expect("no panic");
        if !pods.contains(&pod) {
            pods.push(pod);
        }
    }
}

fn none<T>() -> BoxFuture<'static, Result<T, BackendError>> {
    Box::pin(async { Err(BackendError::Unavailable("there is no such node".to_owned())) })
}

impl KubeletBackend for Burning {
    fn logs(&self, _: PodOnNode, _: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>> {
        none()
    }

    fn exec(&self, _: PodOnNode, _: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        none()
    }

    fn attach(&self, _: PodOnNode, _: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        none()
    }

    fn port_forward(&self, _: PodOnNode, _: u16) -> BoxFuture<'_, Result<Channels, BackendError>> {
        none()
    }

    fn connected(&self, _: &str) -> Result<(), BackendError> {
        Ok(())
    }

    fn stats(&self, _: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        if self.away.load(Ordering::Relaxed) {
            return none();
        }
        let burnt = 2 * u64::try_from(self.start.elapsed().as_nanos()).expect("a short test");
        let of = |uid: &String| {
            let container = json!({"name": "web", "startTime": "t", "cpu": {"usageCoreNanoSeconds": burnt},
                "memory": {"workingSetBytes": 4096}});
            json!({"podRef": {"uid": uid}, "containers": [container]})
        };
        let pods: Vec<Value> = self.pods.lock().expect("no panic").iter().map(of).collect();
        Box::pin(async move { Ok(json!({ "pods": pods })) })
    }

    fn pods(&self, _: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        none()
    }
}

fn autoscaler(name: &str, kind: &str, min: i32, max: i32) -> HorizontalPodAutoscaler {
    let version = if kind == "Deployment" { "apps/v1" } else { "x.io/v1" };
    let target = json!({"apiVersion": version, "kind": kind, "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": min, "maxReplicas": max});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a HorizontalPodAutoscaler")
}

fn condition(autoscaler: &HorizontalPodAutoscaler, kind: &str) -> String {
    let all = autoscaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = { all }.find(|one| one.type_ == kind);
    found.map(|one| format!("{} {}", one.status, one.reason.as_deref().unwrap_or_default())).unwrap_or_default()
}

#[tokio::test]
async fn use_scales_a_deployment_and_silence_does_not() {
    let site = Site::open();
    let node = std::sync::Arc::new(Burning { start: Instant::now(), pods: Mutex::default(), away: false.into() });
    site.server.set_backend(node.clone());
    let options = Options {
        sync_period: Duration::from_secs(1),
        cpu_initialization_period: Duration::ZERO,
        initial_readiness_delay: Duration::ZERO,
        ..Options::default()
    };
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let scaling = tokio::spawn(podautoscaler::run(site.client.clone(), options));
    let mut deployment = serde_json::to_value(web(1, "one")).expect("a Deployment");
    let template = deployment.pointer_mut("/spec/template/spec").expect("a template");
    template["nodeName"] = json!("n1");
    template["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
    site.deployments().create(&PostParams::default(), &deployment).await.expect("created");
    let all: Api<HorizontalPodAutoscaler> = Api::namespaced(site.client.clone(), "default");
    all.create(&PostParams::default(), &autoscaler("web", "Deployment", 1, 3)).await.expect("created");
    let status = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions":
        [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]}});
    let wanted = async || {
        for pod in site.pods().list(&ListParams::default()).await.expect("a list") {
            node.knows(pod.metadata.uid.clone().expect("a uid"));
            let patch = Patch::Merge(&status);
            let _ = site.pods().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
        }
        site.deployments().get("web").await.expect("it is there").spec.expect("a spec").replicas
    };
    until("three replicas", async || wanted().await == Some(3)).await;
    until("a status", async || {
        let now = all.get("web").await.expect("it is there");
        condition(&now, "ScalingActive") == "True ValidMetricFound"
            && condition(&now, "ScalingLimited") == "True TooManyReplicas"
            && now.status.is_some_and(|status| status.desired_replicas == 3 && status.last_scale_time.is_some())
    })
    .await;
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    until("its event", async || {
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        let reason = "reason: cpu resource utilization (percentage of request) above target";
        events.iter().any(|event| {
            event.reason.as_deref() == Some("SuccessfulRescale")
                && event.message.as_deref().is_some_and(|message| message.ends_with(reason))
        })
    })
    .await;
    node.away.store(true, Ordering::Relaxed);
    until("its silence to be told", async || {
        condition(&all.get("web").await.expect("it is there"), "ScalingActive") == "False FailedGetResourceMetric"
    })
    .await;
    assert_eq!(wanted().await, Some(3));
    scaling.abort();
    controllers.abort();
}

#[tokio::test]
async fn a_custom_resource_is_scaled_by_its_own_subresource() {
    let site = Site::open();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties":
        {"replicas": {"type": "integer"}}}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}});
    let names = json!({"plural": "tanks", "singular": "tank", "kind": "Tank", "listKind": "TankList"});
    let definition = json!({"metadata": {"name": "tanks.x.io"}, "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]}});
    let call = async |method: &str, url: &str, body: &Value| -> Result<Value, kube::Error> {
        let request = http::Request::builder().method(method).uri(url).header("content-type", "application/json");
        site.client.request(request.body(body.to_string().into_bytes()).expect("a request")).await
    };
    call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect("created");
    let tank = json!({"apiVersion": "x.io/v1", "kind": "Tank", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
    let tanks = "/apis/x.io/v1/namespaces/default/tanks";
    until("the kind", async || call("POST", tanks, &tank).await.is_ok()).await;
    let options = Options { sync_period: Duration::from_millis(200), ..Options::default() };
    let scaling = tokio::spawn(podautoscaler::run(site.client.clone(), options));
    let all: Api<HorizontalPodAutoscaler> = Api::namespaced(site.client.clone(), "default");
    all.create(&PostParams::default(), &autoscaler("tank", "Tank", 2, 3)).await.expect("created");
    all.create(&PostParams::default(), &autoscaler("odd", "Odd", 2, 3)).await.expect("created");
    until("two replicas", async || {
        let tank = call("GET", &format!("{tanks}/web"), &Value::Null).await.expect("it is there");
        tank["spec"]["replicas"] == 2
    })
    .await;
    // It has no selector: only its limits are known.
    until("its conditions", async || {
        condition(&all.get("tank").await.expect("it is there"), "ScalingActive") == "False InvalidSelector"
    })
    .await;
    until("what is no kind to be told", async || {
        condition(&all.get("odd").await.expect("it is there"), "AbleToScale") == "False FailedGetScale"
    })
    .await;
    scaling.abort();
}
