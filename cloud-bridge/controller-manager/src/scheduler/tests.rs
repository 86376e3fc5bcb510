//! Placing pods: the chosen node, the victims, and the messages when no node fits.

mod near;
mod preemption;
mod spread;
mod volumes;
mod work;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sampan_json::SetField;
use serde_json::{Value, json};

use super::cluster::{Cluster, Decision};
use super::pod::{Pod, PodKey};
use super::volumes::Claim;
use apimachinery::pace::Pace;

/// A cluster for tests, with its own clock.
#[derive(Default)]
struct Site {
    cluster: Cluster,
    now: Duration,
}

fn key(name: &str) -> PodKey {
    ("default".to_owned(), name.to_owned())
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"resources": {"requests": {"cpu": amount}}}]})
}

fn with(mut value: Value, field: &str, part: Value) -> Value {
    value.set(field, part);
    value
}

impl Site {
    fn node(&mut self, name: &str, extra: Value) {
        let labels = json!({"kubernetes.io/hostname": name, "disk": name});
        self.labelled(name, labels, extra);
    }

    fn labelled(&mut self, name: &str, labels: Value, extra: Value) {
        let mut node = json!({"spec": {}, "status": {
            "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        for (pointer, value) in extra.as_object().into_iter().flatten() {
            if let Some(target) = node.pointer_mut(pointer) {
                *target = value.clone();
            }
        }
        self.cluster.node(name, labels, &node);
    }

    fn pod(&mut self, name: &str, spec: Value) {
        self.object(name, json!({}), json!({"spec": spec}));
    }

    /// A pod with more in its metadata.
    fn object(&mut self, name: &str, metadata: Value, object: Value) {
        let mut all = json!({"name": name, "namespace": "default", "uid": name});
        for (field, value) in metadata.as_object().into_iter().flatten() {
            all.set(field, value.clone());
        }
        let metadata = serde_json::from_value(all).unwrap();
        self.cluster.pod(Pod::read(&metadata, &object));
    }

    /// A pod that is on a node.
    fn there(&mut self, name: &str, node: &str, spec: Value) {
        self.pod(name, with(spec, "nodeName", node.into()));
    }

    fn decide(&mut self) -> Vec<Decision> {
        self.now += Duration::from_secs(60);
        let all = std::iter::from_fn(|| self.slices(Pace::default()).0);
        all.filter(|one| !matches!(one, Decision::Nothing)).collect()
    }

    /// The next decision, and the number of slices that it took.
    fn slices(&mut self, pace: Pace) -> (Option<Decision>, usize) {
        let mut slices = 0;
        let decision = self.each_slice(pace, |_| slices += 1);
        (decision, slices)
    }

    /// The next decision. `seen` is called with the time of each slice.
    fn each_slice(&mut self, mut pace: Pace, mut seen: impl FnMut(Duration)) -> Option<Decision> {
        let mut next = pin!(self.cluster.next(self.now, &mut pace));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let start = std::time::Instant::now();
            let polled = next.as_mut().poll(&mut context);
            seen(start.elapsed());
            if let Poll::Ready(decision) = polled {
                return decision;
            }
        }
    }

    fn only(&mut self) -> Result<String, String> {
        let mut decisions = self.decide();
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        match decisions.remove(0) {
            Decision::Bind { node, .. } => Ok(node),
            Decision::Tell { failure, .. } | Decision::Preempt { failure, .. } => Err(failure.message),
            other => unreachable!("{other:?}"),
        }
    }

    fn places(&mut self, name: &str, spec: Value) -> Result<String, String> {
        self.pod(name, spec);
        self.only()
    }
}

/// The end of the message if no pod has a lower priority.
fn in_vain(nodes: usize, without_victims: usize) -> String {
    let mut reasons = Vec::new();
    if without_victims > 0 {
        reasons.push(format!("{without_victims} No preemption victims found for incoming pod"));
    }
    if nodes > without_victims {
        reasons.push(format!("{} Preemption is not helpful for scheduling", nodes - without_victims));
    }
    reasons.sort();
    format!("preemption: 0/{nodes} nodes are available: {}.", reasons.join(", "))
}

#[test]
fn without_nodes_there_is_nothing_to_choose() {
    let mut site = Site::default();
    assert_eq!(site.places("p", cpu("1")), Err("no nodes available to schedule pods".to_owned()));
    // The same message is not reported twice.
    site.cluster.stir();
    assert!(site.decide().is_empty());
    site.node("a", json!({}));
    assert_eq!(site.only(), Ok("a".to_owned()));
}

#[test]
fn the_least_allocated_node_is_preferred() {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.node("b", json!({}));
    site.there("there", "a", cpu("1"));
    assert_eq!(site.places("p", cpu("500m")), Ok("b".to_owned()));
    // Pods without requests use something too.
    let mut site = Site::default();
    site.node("a", json!({}));
    site.node("b", json!({}));
    site.there("there", "a", json!({"containers": [{}]}));
    assert_eq!(site.places("p", json!({"containers": [{}]})), Ok("b".to_owned()));
}

#[test]
fn what_is_preferred_weighs_more_than_room() {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.node("b", json!({}));
    site.there("there", "a", cpu("1"));
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [
        {"key": "disk", "operator": "In", "values": ["a"]}]}}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    assert_eq!(site.places("p", with(cpu("500m"), "affinity", affinity)), Ok("a".to_owned()));
    site.node("b", json!({"/spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}));
    assert_eq!(site.places("q", cpu("100m")), Ok("a".to_owned()));
    let tolerations = json!([{"key": "k", "operator": "Exists"}]);
    assert_eq!(site.places("r", with(cpu("100m"), "tolerations", tolerations)), Ok("b".to_owned()));
}

#[test]
fn reasons_are_counted() {
    let mut site = Site::default();
    site.node("a", json!({"/spec": {"unschedulable": true}}));
    site.node("b", json!({"/spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    site.node("c", json!({"/status/allocatable/cpu": "100m", "/status/allocatable/pods": "0"}));
    site.node("d", json!({"/status/conditions": []}));
    let text = "0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) were unschedulable, \
                2 node(s) had untolerated taint(s).";
    // On a node with 100m no preemption makes room for a whole core.
    assert_eq!(site.places("p", cpu("1")), Err(format!("{text} {}", in_vain(4, 0))));
}

#[test]
fn tolerations_selectors_and_affinity() {
    let mut site = Site::default();
    site.node("a", json!({"/spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}));
    site.node("b", json!({}));
    let spec = with(cpu("1"), "tolerations", json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]));
    assert_eq!(site.places("p", with(spec, "nodeSelector", json!({"disk": "a"}))), Ok("a".to_owned()));
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["z"]}]},
                              {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}}});
    assert_eq!(site.places("q", with(cpu("1"), "affinity", affinity)), Ok("b".to_owned()));
    let text = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
                1 node(s) had untolerated taint(s).";
    let told = site.places("r", with(cpu("1"), "nodeSelector", json!({"disk": "z"})));
    assert_eq!(told, Err(format!("{text} {}", in_vain(2, 0))));
}

#[test]
fn room_is_taken_and_given_back() {
    let mut site = Site::default();
    site.node("a", json!({}));
    let spec = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]});
    assert_eq!(site.places("p", spec.clone()), Ok("a".to_owned()));
    // Old news of a pod just placed changes nothing.
    site.pod("p", spec.clone());
    assert!(site.decide().is_empty());
    let text = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(site.places("q", spec), Err(format!("{text} {}", in_vain(1, 1))));
    // A heartbeat does not count as a change.
    site.node("a", json!({}));
    assert!(site.cluster.deadline() > Some(site.now + Duration::from_secs(200)));
    site.object("p", json!({}), json!({"spec": {"nodeName": "a"}, "status": {"phase": "Succeeded"}}));
    assert_eq!(site.only(), Ok("a".to_owned()));
}

#[test]
fn a_binding_that_failed_is_tried_again_and_takes_no_room_until_then() {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.pod("p", cpu("2"));
    let Some(Decision::Bind { waiting, .. }) = site.decide().pop() else { panic!("no binding") };
    site.cluster.binding_failed(*waiting, site.now);
    assert_eq!(site.cluster.deadline(), Some(site.now + Duration::from_secs(1)));
    assert_eq!(site.only(), Ok("a".to_owned()));
}

#[test]
fn binding_that_failed_is_forgotten_if_there_was_news_of_the_pod() {
    let mut site = Site::default();
    site.node("a", json!({}));
    let binding = |site: &mut Site| {
        site.pod("p", cpu("2"));
        let Some(Decision::Bind { waiting, .. }) = site.decide().pop() else { panic!("no binding") };
        *waiting
    };
    let waiting = binding(&mut site);
    site.cluster.pod_gone(&key("p"));
    site.cluster.binding_failed(waiting, site.now);
    assert!(site.decide().is_empty() && site.cluster.deadline().is_none(), "it was deleted");
    let waiting = binding(&mut site);
    site.there("p", "a", cpu("2"));
    site.cluster.binding_failed(waiting, site.now);
    assert!(site.decide().is_empty());
    assert!(site.places("q", cpu("1")).is_err(), "another scheduler has bound it");
}

#[test]
fn pods_of_others_and_pods_on_their_way_out_are_left_alone() {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.pod("other", json!({"schedulerName": "mine"}));
    site.pod("gated", json!({"schedulingGates": [{"name": "g"}]}));
    site.object("leaving", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({"spec": {}}));
    assert!(site.decide().is_empty());
    site.pod("gated", json!({}));
    assert_eq!(site.only(), Ok("a".to_owned()));
}

#[test]
fn objects_of_any_shape_are_taken_for_what_they_say() {
    let mut site = Site::default();
    site.cluster.node("a", json!(null), &json!({"spec": 1, "status": {"allocatable": [1], "conditions": "x"}}));
    site.cluster.node(
        "b",
        json!({"zone": 1}),
        &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let strange = json!({"affinity": {"podAffinity": 1, "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [7, {"topologyKey": "zone", "labelSelector": []}],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": i64::MIN}]}},
        "topologySpreadConstraints": [3, {"topologyKey": "zone", "maxSkew": i64::MAX, "minDomains": -1}],
        "priority": i64::MAX, "tolerations": "x", "nodeSelector": [], "containers": 5});
    site.pod("p", strange.clone());
    site.there("q", "b", strange);
    assert_eq!(site.decide().len(), 1);
}

#[test]
fn a_pod_goes_where_its_volume_is() {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.node("b", json!({}));
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let told = site.places("p", with(cpu("1"), "volumes", volumes)).unwrap_err();
    let none = in_vain(2, 0);
    assert_eq!(told, format!("0/2 nodes are available: persistentvolumeclaim \"data\" not found. {none}"));
    let told = |site: &mut Site| {
        site.cluster.stir();
        site.only()
    };
    let claims = |phase: &str| Claim::read("u", "", &json!({"spec": {"volumeName": "pv"}, "status": {"phase": phase}}));
    assert!(site.cluster.picture.volumes.claim(key("data"), claims("Pending")));
    let unbound = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert_eq!(told(&mut site).unwrap_err(), format!("{unbound} {none}"));
    let local = |names: Value| {
        let on = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": names});
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}}}})
    };
    assert!(site.cluster.picture.volumes.volume("pv", &local(json!(["c"]))));
    assert!(site.cluster.picture.volumes.claim(key("data"), claims("Bound")));
    let conflict = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.";
    assert_eq!(told(&mut site).unwrap_err(), format!("{conflict} {none}"));
    assert!(site.cluster.picture.volumes.volume("pv", &local(json!(["b"]))));
    assert_eq!(told(&mut site).unwrap(), "b");
}

#[test]
fn waiting_claim_gets_the_node_and_the_pod_waits_for_the_volume() {
    let mut site = Site::default();
    site.labelled("a", json!({"zone": "x"}), json!({}));
    site.labelled("b", json!({"zone": "y"}), json!({}));
    let claim = |selected: &str, status: Value| {
        let claim = json!({"spec": {"storageClassName": "local", "volumeName": "pv"}, "status": status});
        Claim::read("u7", selected, &claim)
    };
    let mut class = json!({"provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["y"]}]}]});
    let volumes = &mut site.cluster.picture.volumes;
    assert!(volumes.class("local", &class) && !volumes.class("local", &class));
    assert!(volumes.claim(key("data"), claim("", json!({}))));
    let spec = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    site.pod("p", with(cpu("1"), "volumes", spec));
    let selected = |site: &mut Site| {
        site.cluster.stir();
        site.decide().into_iter().find_map(|one| match one {
            Decision::Select { node, claims, .. } => Some((node, claims)),
            _ => None,
        })
    };
    let told = Some(("b".to_owned(), vec![("data".to_owned(), "u7".to_owned())]));
    assert_eq!(selected(&mut site), told);
    // The choice stays, unless the node is deleted.
    assert!(site.cluster.picture.volumes.claim(key("data"), claim("b", json!({}))));
    site.cluster.stir();
    assert!(site.decide().is_empty(), "it is being made");
    assert!(site.cluster.picture.volumes.claim(key("data"), claim("gone", json!({}))));
    assert_eq!(selected(&mut site), told);
    let on = json!({"key": "zone", "operator": "In", "values": ["y"]});
    let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}}}});
    site.cluster.picture.volumes.volume("pv", &volume);
    site.cluster.picture.volumes.claim(key("data"), claim("b", json!({"phase": "Bound"})));
    site.cluster.stir();
    assert_eq!(site.only().unwrap(), "b");
    // A volume without a provisioner is not waited for.
    class["provisioner"] = "kubernetes.io/no-provisioner".into();
    assert!(site.cluster.picture.volumes.class("local", &class), "it is no longer such a class");
}

/// The task can be spawned.
#[test]
fn scheduler_is_send() {
    fn spawnable<F: Future + Send>(_: impl Fn(kube::Client, crate::pods::Pods) -> F) {}
    spawnable(super::run);
}
