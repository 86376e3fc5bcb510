//! What to attach to a node and what to detach from it (K8s pkg/controller/volume/attachdetach/reconciler). Pure.
//!
//! A volume is detached when no pod on the node needs it and the node no longer reports it in `status.volumesInUse`.
//! Kubernetes detaches it from an unready node after six minutes, too; here never, because an offline node may still
//! write to it. An administrator confirms that a node is off with the taint `node.kubernetes.io/out-of-service`, or by
//! deleting the Node.

use std::collections::{BTreeMap, BTreeSet};

use super::object::{Attachment, Volume};
use super::state::State;

/// An attachment to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Create {
    pub(super) name: String,
    pub(super) volume: String,
    pub(super) driver: String,
}

/// An attachment to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delete {
    pub(super) name: String,
    pub(super) uid: String,
    /// The volume's name in the status of the Node.
    pub(super) unique_name: String,
    /// Whether the Node need not be read again: whatever it reports as in use, the node is off.
    pub(super) forced: bool,
}

/// Why an attachment is not created yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blocked {
    /// The name that the attachment would have.
    pub(super) name: String,
    /// The pods that wait.
    pub(super) pods: Vec<String>,
    pub(super) message: String,
}

/// The next steps for a node, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The names for `status.volumesAttached`, if they change.
    pub(super) report: Option<BTreeSet<String>>,
    pub(super) delete: Vec<Delete>,
    pub(super) create: Vec<Create>,
    pub(super) blocked: Vec<Blocked>,
}

/// Plans the next steps for a node. `making`: attachments that are being created.
pub(super) fn plan(state: &State, making: &BTreeMap<String, Attachment>, node: &str) -> Plan {
    let mut plan = Plan::default();
    let found = state.nodes.get(node);
    let mut wanted: BTreeMap<String, (&str, &Volume, Vec<String>)> = BTreeMap::new();
    for (key, pod) in state.pods_on(node) {
        for (name, volume) in pod.claims.iter().filter_map(|claim| state.attachable(claim)) {
            let entry = wanted.entry(volume.attachment_name(node)).or_insert((name, volume, Vec::new()));
            entry.2.push(key.to_owned());
        }
    }
    let mut report = BTreeSet::new();
    for (name, attachment) in state.attachments_on(node) {
        // Others are not of this controller.
        let Some(volume) = state.volumes.get(&attachment.volume).filter(|one| one.attachment_name(node) == name) else {
            continue;
        };
        if attachment.deleting {
            continue;
        }
        let unique_name = volume.unique_name();
        let forced = found.is_some_and(|node| node.out_of_service);
        if wanted.contains_key(name) || found.is_some_and(|node| !forced && node.in_use.contains(&unique_name)) {
            if attachment.attached {
                report.insert(unique_name);
            }
        } else {
            plan.delete.push(Delete { name: name.to_owned(), uid: attachment.uid.clone(), unique_name, forced });
        }
    }
    plan.report = found.filter(|node| node.attached != report).map(|_| report);
    for (name, (volume_name, volume, pods)) in wanted {
        if found.is_none() || state.attachments.contains_key(&name) || making.contains_key(&name) {
            continue;
        }
        match blocker(state, making, (volume_name, volume), node, &pods) {
            Some(why) => {
                let message = format!("Multi-Attach error for volume {volume_name:?} {why}");
                plan.blocked.push(Blocked { name, pods, message });
            }
            None => {
                let (volume, driver) = (volume_name.to_owned(), volume.driver.clone());
                plan.create.push(Create { name, volume, driver });
            }
        }
    }
    plan
}

/// Why a volume cannot be attached to one more node.
fn blocker(
    state: &State,
    making: &BTreeMap<String, Attachment>,
    (name, volume): (&str, &Volume),
    node: &str,
    pods: &[String],
) -> Option<String> {
    if volume.shared {
        return None;
    }
    let others = state.attachments_of(name).chain(making.values().filter(|one| one.volume == name));
    let others: BTreeSet<&str> = others.map(|one| one.node.as_str()).filter(|other| *other != node).collect();
    if others.is_empty() {
        return None;
    }
    let users = state
        .users(&volume.claim)
        .filter(|(key, pod)| others.contains(&*pod.node) && !pods.contains(&(*key).to_owned()));
    // All are of the namespace of the claim.
    let names: Vec<&str> = users.filter_map(|(key, _)| Some(key.split_once('/')?.1)).collect();
    Some(if names.is_empty() {
        "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
    } else {
        format!("Volume is already used by pod(s) {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::object::{Node, Pod};
    use super::*;

    const UNIQUE: &str = "kubernetes.io/csi/d^h";

    fn volume(shared: bool) -> Volume {
        Volume { driver: "d".into(), handle: "h".into(), claim: "ns/data".into(), shared }
    }

    fn name(node: &str) -> String {
        volume(false).attachment_name(node)
    }

    fn pod(node: &str) -> Option<Pod> {
        Some(Pod { uid: "u".into(), node: node.into(), claims: vec!["ns/data".into(), "ns/unbound".into()] })
    }

    fn node(in_use: &[&str], attached: &[&str]) -> Option<Node> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Some(Node { in_use: set(in_use), attached: set(attached), ..Node::default() })
    }

    fn attachment(node: &str, attached: bool) -> Option<Attachment> {
        Some(Attachment { uid: "v".into(), node: node.into(), volume: "pv".into(), attached, ..Attachment::default() })
    }

    /// Two nodes, and the volume.
    fn state(shared: bool) -> State {
        let mut state = State::default();
        state.volume("pv", Some(volume(shared)));
        state.node("n", node(&[], &[]));
        state.node("m", node(&[], &[]));
        state
    }

    fn of(state: &State, node: &str) -> Plan {
        plan(state, &BTreeMap::new(), node)
    }

    #[test]
    fn volume_of_a_scheduled_pod_is_attached_once() {
        let mut state = state(false);
        assert_eq!(of(&state, "n"), Plan::default());
        state.pod("ns/a", pod("n"));
        let create = Create { name: name("n"), volume: "pv".into(), driver: "d".into() };
        assert_eq!(of(&state, "n").create, [create]);
        let making = BTreeMap::from([(name("n"), attachment("n", false).unwrap())]);
        assert_eq!(plan(&state, &making, "n"), Plan::default());
        state.attachment(&name("n"), attachment("n", false));
        assert_eq!(of(&state, "n"), Plan::default(), "the driver attaches it");
        state.attachment(&name("n"), attachment("n", true));
        let report = Some(BTreeSet::from([UNIQUE.to_owned()]));
        assert_eq!(of(&state, "n"), Plan { report, ..Plan::default() });
        state.node("n", node(&[UNIQUE], &[UNIQUE]));
        assert_eq!(of(&state, "n"), Plan::default());
        state.driver("d", false);
        state.node("m", None);
        state.pod("ns/b", pod("m"));
        assert_eq!(of(&state, "m"), Plan::default(), "a driver without attachments, and no such node");
    }

    #[test]
    fn volume_in_use_is_not_detached() {
        let mut state = state(false);
        state.attachment(&name("n"), attachment("n", true));
        state.node("n", node(&[UNIQUE], &[UNIQUE]));
        assert_eq!(of(&state, "n"), Plan::default(), "the pod is gone, but the node still has it");
        state.node("n", node(&[], &[UNIQUE]));
        let delete = |forced| vec![Delete { name: name("n"), uid: "v".into(), unique_name: UNIQUE.into(), forced }];
        let expected = Plan { report: Some(BTreeSet::new()), delete: delete(false), ..Plan::default() };
        assert_eq!(of(&state, "n"), expected);
        let gone = node(&[UNIQUE], &[UNIQUE]).map(|node| Node { out_of_service: true, ..node });
        state.node("n", gone);
        assert_eq!(of(&state, "n").delete, delete(true), "an administrator says that it is off");
        state.pod("ns/a", pod("n"));
        assert_eq!(of(&state, "n"), Plan::default(), "but a pod is still bound to it");
        state.pod("ns/a", None);
        state.node("n", None);
        assert_eq!(of(&state, "n"), Plan { delete: delete(false), ..Plan::default() }, "the Node is read again before");
        state.attachment(&name("n"), attachment("n", true).map(|one| Attachment { deleting: true, ..one }));
        assert_eq!(of(&state, "n"), Plan::default());
    }

    #[test]
    fn exclusive_volume_waits_until_it_is_detached_elsewhere() {
        let mut state = state(false);
        state.attachment(&name("n"), attachment("n", true));
        state.pod("ns/b", pod("m"));
        let blocked = |state: &State| {
            let plan = of(state, "m");
            assert_eq!(plan.create, []);
            plan.blocked[0].message.clone()
        };
        let exclusive = "Volume is already exclusively attached to one node and can't be attached to another";
        assert_eq!(blocked(&state), format!("Multi-Attach error for volume \"pv\" {exclusive}"));
        state.pod("ns/a", pod("n"));
        assert_eq!(blocked(&state), "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) a");
        assert_eq!(of(&state, "m").blocked[0].pods, ["ns/b"]);
        state.attachment(&name("n"), None);
        assert_eq!(of(&state, "m").create.len(), 1);
        let making = BTreeMap::from([(name("n"), attachment("n", false).unwrap())]);
        assert_eq!(plan(&state, &making, "m").create, [], "two nodes at once");
    }

    #[test]
    fn shared_volume_is_attached_to_many_nodes() {
        let mut state = state(true);
        state.attachment(&name("n"), attachment("n", true));
        state.pod("ns/b", pod("m"));
        assert_eq!(of(&state, "m").create.len(), 1);
    }

    #[test]
    fn attachments_of_others_are_left_alone() {
        let mut state = state(false);
        state.attachment("mine", attachment("n", true));
        let unknown = Attachment { volume: "other".into(), ..attachment("n", true).unwrap() };
        state.attachment("csi-other", Some(unknown));
        assert_eq!(of(&state, "n"), Plan::default());
    }

    /// On a busy machine a step may be interrupted, so the fastest of some counts.
    #[test]
    fn decision_takes_no_longer_in_a_large_cluster() {
        const NODES: usize = 10_000;
        let mut state = State::default();
        for at in 0..NODES {
            let (node_name, claim) = (format!("n{at}"), format!("ns/data-{at}"));
            state.node(&node_name, node(&[], &[]));
            let one = Volume { handle: at.to_string(), claim: claim.clone(), ..volume(false) };
            let attachment = Attachment { volume: format!("pv{at}"), ..attachment(&node_name, true).unwrap() };
            state.attachment(&one.attachment_name(&node_name), Some(attachment));
            state.volume(&format!("pv{at}"), Some(one));
            for pod in 0..10 {
                let pod_claim = if pod == 0 { claim.clone() } else { format!("ns/other-{at}-{pod}") };
                let placed = Pod { uid: "u".into(), node: node_name.clone(), claims: vec![pod_claim] };
                state.pod(&format!("ns/p{at}-{pod}"), Some(placed));
            }
        }
        let fastest = |state: &mut State, work: &dyn Fn(&mut State, usize)| {
            let took = (0..5).map(|at| {
                let begun = std::time::Instant::now();
                work(state, at);
                begun.elapsed()
            });
            took.min().unwrap()
        };
        let limit = std::time::Duration::from_millis(5);
        let decides = fastest(&mut state, &|state, at| assert!(of(state, &format!("n{at}")).report.is_some()));
        let moves = fastest(&mut state, &|state, at| state.pod(&format!("ns/p{at}-0"), None));
        let detaches = fastest(&mut state, &|state, at| {
            let name = Volume { handle: at.to_string(), ..volume(false) }.attachment_name(&format!("n{at}"));
            state.attachment(&name, None);
        });
        assert!(decides < limit && moves < limit && detaches < limit, "{decides:?} {moves:?} {detaches:?}");
    }
}
