//! How much is done for one pod, and how much of it at a stretch.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Decision, Pace, Site, cpu, in_vain, key, with};

fn apart() -> Value {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    with(cpu("10m"), "affinity", json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
}

fn web(site: &mut Site, name: &str, spec: Value) {
    site.object(name, json!({"labels": {"app": "web"}}), json!({"spec": spec}));
}

/// A node for each number, with a pod that keeps its like off.
fn full(nodes: usize) -> Site {
    let mut site = Site::default();
    for at in 0..nodes {
        site.node(&format!("n{at:04}"), json!({}));
        web(&mut site, &format!("there{at:04}"), with(apart(), "nodeName", format!("n{at:04}").into()));
    }
    site
}

#[test]
fn search_gives_way_and_its_work_is_linear() {
    let looks = |nodes: usize| {
        let mut site = full(nodes);
        web(&mut site, "surplus", apart());
        site.slices(Pace::with_slice(Duration::ZERO)).1
    };
    // Pods that keep it off, pods that it keeps off, nodes, and nodes with victims; the pods as one kin, twice; and what no node
    // says, three times.
    assert_eq!([looks(100), looks(200)], [4 * 100 + 6, 4 * 200 + 6], "one slice for each look");
    let mut site = full(100);
    web(&mut site, "surplus", apart());
    assert_eq!(site.slices(Pace::with_slice(Duration::from_secs(3600))).1, 1);
}

#[test]
fn replicas_of_which_a_pod_says_nothing_are_looked_at_once() {
    let looks = |others: usize| {
        let mut site = full(10);
        for at in 0..others {
            site.object(
                &format!("other{at}"),
                json!({"labels": {"app": "other"}}),
                json!({"spec": {"nodeName": "n0000"}}),
            );
        }
        web(&mut site, "surplus", apart());
        site.slices(Pace::with_slice(Duration::ZERO)).1
    };
    assert_eq!([looks(1), looks(1000)], [4 * 10 + 7; 2]);
}

#[test]
fn search_ends_when_enough_nodes_fit_and_begins_elsewhere_next() {
    let mut site = Site::default();
    for at in 0..1000 {
        site.node(&format!("n{at:04}"), json!({}));
    }
    let mut chosen = Vec::new();
    for name in ["p", "q", "r"] {
        site.pod(name, cpu("10m"));
        let (decision, looks) = site.slices(Pace::with_slice(Duration::ZERO));
        assert!((420..440).contains(&looks), "{looks} looks");
        let Some(Decision::Bind { node, .. }) = decision else { panic!("{decision:?}") };
        chosen.push(node);
    }
    assert_eq!(chosen, ["n0000", "n0420", "n0840"]);
}

#[test]
fn next_replica_asks_only_nodes_that_do_not_refuse_it() {
    let mut site = Site::default();
    let group = |site: &mut Site, at: usize, group: &str| {
        let name = format!("n{at:04}");
        site.labelled(&name, json!({"kubernetes.io/hostname": name, "group": group}), json!({}));
    };
    (0..100).for_each(|at| group(&mut site, at, if at < 10 { "a" } else { "b" }));
    let spec = || with(apart(), "nodeSelector", json!({"group": "a"}));
    let mut looks = Vec::new();
    for at in 0..10 {
        web(&mut site, &format!("p{at}"), spec());
        let (decision, slices) = site.slices(Pace::with_slice(Duration::ZERO));
        assert!(matches!(&decision, Some(Decision::Bind { node, .. }) if *node == format!("n{at:04}")), "{decision:?}");
        looks.push(slices);
    }
    // All nodes at first, all once more to remember which refuse, then no pod is counted and no node asked again.
    assert!(looks[0] > 100 && looks[1] > 100 && looks[2..].iter().all(|looks| *looks < 20), "{looks:?}");
    web(&mut site, "surplus", spec());
    let text = "0/100 nodes are available: 10 node(s) didn't match pod anti-affinity rules, \
                90 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(100, 10))));
    group(&mut site, 50, "a");
    assert_eq!(site.only(), Ok("n0050".to_owned()));
    web(&mut site, "more", spec());
    site.only().unwrap_err();
    site.cluster.pod_gone(&key("p3"));
    assert_eq!(site.only(), Ok("n0003".to_owned()));
}

#[test]
fn cached_screen_does_not_change_where_the_next_search_starts() {
    let mut site = Site::default();
    for at in 0..1000 {
        let name = format!("n{at:04}");
        let group = if at < 502 { "b" } else { "a" };
        site.labelled(&name, json!({"kubernetes.io/hostname": name, "group": group}), json!({}));
    }
    let mut starts = Vec::new();
    for at in 0..4 {
        site.pod(&format!("p{at}"), with(cpu("10m"), "nodeSelector", json!({"group": "a"})));
        let Some(Decision::Bind { node, .. }) = site.slices(Pace::default()).0 else { panic!("no node") };
        starts.push(node);
    }
    // Each search ends behind the 420th of the 498 nodes that fit, and the second one makes the screen.
    assert_eq!(starts, ["n0502", "n0922", "n0844", "n0766"]);
}

#[test]
fn pod_of_a_daemon_set_is_held_against_its_node_alone() {
    let mut site = Site::default();
    (0..200).for_each(|at| site.node(&format!("n{at:04}"), json!({})));
    let named = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0150"]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}});
    site.pod("daemon", with(cpu("10m"), "affinity", json!({"nodeAffinity": required})));
    let (decision, looks) = site.slices(Pace::with_slice(Duration::ZERO));
    assert!(matches!(&decision, Some(Decision::Bind { node, .. }) if node == "n0150"), "{decision:?}");
    assert!(looks < 10, "{looks} looks");
}

#[test]
fn what_cannot_help_a_pod_does_not_wake_it() {
    let mut site = full(3);
    web(&mut site, "surplus", apart());
    site.only().unwrap_err();
    let asleep = site.cluster.deadline();
    // A pod that is bound, one of others that goes, and a node that is full or keeps it off.
    site.pod("other", cpu("10m"));
    site.only().unwrap();
    web(&mut site, "more", with(cpu("10m"), "nodeName", "n0001".into()));
    site.cluster.pod_gone(&key("other"));
    site.labelled(
        "n0001",
        json!({"kubernetes.io/hostname": "n0001", "disk": "n0001"}),
        json!({"/spec": {"unschedulable": true}}),
    );
    assert_eq!(site.cluster.deadline(), asleep);
    site.cluster.pod_gone(&key("there0002"));
    assert_eq!(site.only(), Ok("n0002".to_owned()));
}

#[test]
fn full_node_that_changes_wakes_nobody() {
    let mut site = Site::default();
    site.node("a", json!({}));
    site.there("there", "a", cpu("2"));
    site.pod("p", cpu("1"));
    site.only().unwrap_err();
    let asleep = site.cluster.deadline();
    site.node("a", json!({"/status/allocatable/cpu": "2500m"}));
    site.node("b", json!({"/status/allocatable/cpu": "900m"}));
    site.pod("small", cpu("100m"));
    site.only().unwrap();
    site.cluster.pod_gone(&key("small"));
    assert_eq!(site.cluster.deadline(), asleep, "neither has room for it");
    site.node("b", json!({}));
    assert_eq!(site.only(), Ok("b".to_owned()));
}

#[test]
fn what_is_tried_on_one_node_is_taken_back_before_the_next() {
    let mut site = Site::default();
    for name in ["a", "b"] {
        site.labelled(name, json!({"zone": "z"}), json!({}));
        let spec = with(with(cpu("10m"), "nodeName", name.into()), "priority", 1.into());
        web(&mut site, &format!("on-{name}"), spec);
    }
    let mut spec = with(apart(), "priority", 10.into());
    let zone = json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = zone;
    web(&mut site, "p", spec);
    // Without the pod of one node there is still the one of the other.
    let told = site.only().unwrap_err();
    assert!(
        told.contains("preemption: 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules"),
        "{told}"
    );
}

#[test]
fn search_for_victims_gives_way_after_each_pod_and_budget() {
    let looks = |pods: usize, budgets: usize| {
        let mut site = Site::default();
        site.node("a", json!({"/status/allocatable/pods": "1000"}));
        for at in 0..pods {
            let spec = with(with(cpu("1m"), "nodeName", "a".into()), "priority", 1.into());
            web(&mut site, &format!("there{at}"), spec);
        }
        let budget =
            json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": 1000}});
        (0..budgets).for_each(|at| site.cluster.picture.budgets.put(key(&format!("budget{at}")), &budget));
        site.pod("important", with(cpu("2"), "priority", 10.into()));
        let (decision, looks) = site.slices(Pace::with_slice(Duration::ZERO));
        assert!(matches!(&decision, Some(Decision::Preempt { victims, .. }) if victims.len() == pods), "{decision:?}");
        looks
    };
    let few = looks(100, 0);
    assert_eq!(looks(200, 0) - few, 3 * 100, "each is taken away, tried, and put back");
    assert_eq!(looks(100, 50) - few, 100 * 50, "each is held against each budget");
}

#[test]
fn pods_of_a_node_that_comes_late_or_again_count() {
    let mut site = Site::default();
    site.there("early", "a", cpu("2"));
    site.node("a", json!({}));
    site.pod("p", cpu("1"));
    site.only().unwrap_err();
    site.cluster.node_gone("a");
    site.cluster.pod_gone(&key("early"));
    site.there("next", "a", cpu("1500m"));
    site.node("a", json!({"/status/allocatable/cpu": "3"}));
    assert_eq!(site.only(), Ok("a".to_owned()));
    site.pod("q", cpu("1"));
    site.only().unwrap_err();
}

/// The longest step, and the time of all, for what the tests above count.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stderr, reason = "its result is for people")]
fn measure_steps_of_the_thread() {
    let measure = |site: &mut Site, what: &str| {
        let (start, mut longest, mut decisions) = (Instant::now(), Duration::ZERO, 0);
        site.now += Duration::from_secs(1000);
        while site.cluster.deadline().is_some_and(|at| at <= site.now) {
            decisions += 1;
            site.each_slice(Pace::default(), |took| longest = longest.max(took));
        }
        eprintln!("{what}: {decisions} decisions in {:?}, longest step {longest:?}", start.elapsed());
    };
    let mut site = Site::default();
    for at in 0..1000 {
        site.node(&format!("n{at:04}"), json!({}));
    }
    (0..1100).for_each(|at| web(&mut site, &format!("p{at:04}"), apart()));
    measure(&mut site, "1100 pods that keep each other off 1000 nodes");
    let mut site = Site::default();
    for at in 0..5000 {
        site.node(&format!("n{at:04}"), json!({}));
        for pod in 0..3 {
            let spec = with(with(cpu("10m"), "nodeName", format!("n{at:04}").into()), "priority", 1.into());
            web(&mut site, &format!("p{at:04}-{pod}"), spec);
        }
    }
    site.pod("important", with(cpu("10m"), "priority", 10.into()));
    measure(&mut site, "a pod in the place of others on 5000 nodes");
    for at in 0..20 {
        site.pod(&format!("surplus{at}"), with(cpu("10m"), "priority", 1.into()));
    }
    measure(&mut site, "20 pods for which nobody goes on 5000 nodes");
}
