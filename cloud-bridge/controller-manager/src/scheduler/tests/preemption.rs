//! The victims of a pod with a higher priority.

use serde_json::{Value, json};

use super::{Decision, Site, cpu, in_vain, key, with};

fn important(priority: i64, amount: &str) -> Value {
    with(cpu(amount), "priority", priority.into())
}

/// Name, node, priority, cpu.
type Placed<'a> = (&'a str, &'a str, i64, &'a str);

/// The node and the names of the pods that go.
fn victims(site: &mut Site) -> (String, Vec<String>) {
    let mut decisions = site.decide();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    match decisions.remove(0) {
        Decision::Preempt { node, victims, .. } => (node, victims.iter().map(|pod| pod.key.1.clone()).collect()),
        other => panic!("{other:?}"),
    }
}

fn site(pods: &[Placed<'_>]) -> Site {
    let mut site = Site::default();
    let mut nodes: Vec<&str> = pods.iter().map(|(_, node, ..)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        site.node(node, json!({}));
    }
    for (name, node, priority, amount) in pods {
        site.object(
            name,
            json!({"labels": {"app": name}}),
            json!({"spec": with(important(*priority, amount), "nodeName", (*node).into())}),
        );
    }
    site
}

#[test]
fn as_few_as_possible_go_and_the_least_important_first() {
    let mut site = site(&[("low", "a", 0, "500m"), ("mid", "a", 5, "500m"), ("high", "a", 20, "1")]);
    site.pod("p", important(10, "500m"));
    assert_eq!(victims(&mut site), ("a".to_owned(), vec!["low".to_owned()]));
    let text = "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.";
    site.pod("q", important(10, "500m"));
    let decisions = site.decide();
    let Some(Decision::Preempt { failure, victims, .. }) = decisions.first() else { panic!("{decisions:?}") };
    assert_eq!(failure.message, text);
    // The room that is made for `p` is not for `q`: both of the less important go.
    assert_eq!(victims.iter().map(|pod| pod.key.1.as_str()).collect::<Vec<_>>(), ["mid", "low"]);
}

#[test]
fn pods_that_are_as_important_stay_and_never_means_never() {
    let mut site = site(&[("there", "a", 10, "2")]);
    site.pod("p", important(10, "1"));
    let text = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(1, 1))));
    site.pod("q", with(important(20, "1"), "preemptionPolicy", "Never".into()));
    assert_eq!(site.only(), Err(format!("{text} preemption: not eligible due to preemptionPolicy=Never.")));
}

#[test]
fn the_node_where_least_is_lost_is_chosen() {
    let cases: [(&[Placed], &str); 4] = [
        // The less important victim.
        (&[("x", "a", 5, "2"), ("y", "b", 1, "2")], "b"),
        // The smaller sum, which is the fewer pods where they are as important.
        (&[("x", "a", 1, "1"), ("y", "a", 1, "1"), ("z", "b", 1, "2")], "b"),
        (&[("x", "b", 5, "1"), ("y", "b", 1, "1"), ("z", "a", 5, "1"), ("w", "a", 4, "1")], "b"),
        // The first by name.
        (&[("x", "a", 1, "2"), ("y", "b", 1, "2")], "a"),
    ];
    for (pods, node) in cases {
        let mut site = site(pods);
        site.pod("p", important(10, "2"));
        assert_eq!(victims(&mut site).0, node, "{pods:?}");
    }
}

#[test]
fn the_younger_goes_where_all_else_is_equal() {
    let mut site = site(&[("x", "a", 1, "2"), ("y", "b", 1, "2")]);
    for (name, node, time) in [("x", "a", "2026-01-01T00:00:00Z"), ("y", "b", "2026-02-01T00:00:00Z")] {
        let spec = with(important(1, "2"), "nodeName", node.into());
        site.object(name, json!({}), json!({"spec": spec, "status": {"startTime": time}}));
    }
    site.pod("p", important(10, "1"));
    assert_eq!(victims(&mut site), ("b".to_owned(), vec!["y".to_owned()]));
}

#[test]
fn budgets_are_kept_where_that_is_possible() {
    let budget = |allowed: i64| json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {"disruptionsAllowed": allowed}});
    let pods: [Placed; 2] = [("x", "a", 1, "2"), ("y", "b", 5, "2")];
    for (allowed, node) in [(0, "b"), (1, "a")] {
        let mut site = site(&pods);
        site.cluster.picture.budgets.put(key("budget"), &budget(allowed));
        site.pod("p", important(10, "1"));
        assert_eq!(victims(&mut site).0, node, "{allowed} allowed");
    }
    // Of two pods on a node the one with room in its budget is preempted, even if its priority is higher.
    let mut site = site(&[("x", "a", 1, "1"), ("y", "a", 5, "1")]);
    site.cluster.picture.budgets.put(key("budget"), &budget(0));
    site.pod("p", important(10, "1"));
    assert_eq!(victims(&mut site).1, ["y"]);
    // Where nothing else helps, a budget is broken.
    let mut site = self::site(&[("x", "a", 1, "2")]);
    site.cluster.picture.budgets.put(key("budget"), &budget(0));
    site.pod("p", important(10, "1"));
    assert_eq!(victims(&mut site).1, ["x"]);
}

#[test]
fn while_pods_go_nobody_else_has_to_and_the_room_is_kept() {
    let mut site = site(&[("x", "a", 1, "2"), ("y", "b", 1, "2")]);
    site.pod("p", important(10, "2"));
    assert_eq!(victims(&mut site).0, "a");
    let going = |name: &str, node: &str| {
        let condition = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        let spec = with(important(1, "2"), "nodeName", node.into());
        let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        (name.to_owned(), metadata, json!({"spec": spec, "status": {"conditions": condition}}))
    };
    let (name, metadata, object) = going("x", "a");
    site.object(&name, metadata, object);
    site.cluster.stir();
    let text = "0/2 nodes are available: 2 Insufficient cpu.";
    let freed = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert_eq!(site.only(), Err(format!("{text} {freed}")));
    // It is deleted; a pod with a lower priority is tried first, and does not get the room.
    site.cluster.pod_gone(&key("x"));
    site.pod("late", important(5, "1"));
    let decisions = site.decide();
    let bound: Vec<&str> = decisions
        .iter()
        .filter_map(|one| match one {
            Decision::Bind { waiting, node } if node == "a" => Some(waiting.pod.key.1.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(bound, ["p"], "{decisions:?}");
}

#[test]
fn what_is_made_for_one_is_given_to_a_more_important_one() {
    let mut site = site(&[("x", "a", 1, "2")]);
    site.pod("p", important(10, "2"));
    assert_eq!(victims(&mut site).0, "a");
    site.pod("q", important(20, "2"));
    let decisions = site.decide();
    let Some(Decision::Preempt { outdone, .. }) = decisions.first() else { panic!("{decisions:?}") };
    assert_eq!(outdone.iter().map(|pod| pod.key.1.as_str()).collect::<Vec<_>>(), ["p"]);
}

#[test]
fn a_pod_that_keeps_others_off_goes_and_what_no_pod_can_give_takes_nobody() {
    let mut site = site(&[("x", "a", 1, "10m")]);
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}]}});
    site.pod("p", with(important(10, "10m"), "affinity", apart));
    assert_eq!(victims(&mut site).1, ["x"]);
    let mut site = self::site(&[("x", "a", 1, "10m")]);
    site.pod("p", important(10, "3"));
    let text = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(1, 0))));
}

#[test]
fn a_preemption_that_failed_is_looked_at_again() {
    let mut site = site(&[("x", "a", 1, "2")]);
    site.pod("p", important(10, "2"));
    assert_eq!(victims(&mut site).0, "a");
    site.cluster.preemption_failed(&key("p"));
    assert_eq!(victims(&mut site).0, "a");
}
