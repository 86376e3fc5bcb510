//! CPUs that containers have for themselves: when assignments begin, are checked and end, and the containers that run
//! on the rest. Does nothing without `resources.cpu-manager: static`.

use super::Node;
use super::pods::Pods;
use crate::launch::cgroups::cgroup_of_container;
use crate::launch::cpus::Holder;
use crate::pod::admission;
use crate::pod::record::{PodRecord, SandboxState};
use crate::store::StoreError;

impl Node {
    /// Restores the assignments of an earlier start, for the pods of the store.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn restore_cpus(&mut self) -> Result<(), StoreError> {
        if !self.launch.containers.cpus.is_on() {
            return Ok(());
        }
        let told = self.launch.containers.cpus.restore(&holders(&self.cx.pods), !self.cx.recovery.is_under_way());
        self.tell_about_cpus(&told)
    }

    /// Periodic check: CPUs that went offline or came back, pods that are gone, and containers whose CPUs another program
    /// has changed.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn look_at_cpus(&mut self) -> Result<(), StoreError> {
        if !self.launch.containers.cpus.is_on() {
            return Ok(());
        }
        let told = self.launch.containers.cpus.look(&holders(&self.cx.pods), !self.cx.recovery.is_under_way());
        self.launch.containers.cpus.take_changed();
        self.write_cpus();
        self.tell_about_cpus(&told)
    }

    /// Moves running containers after a change of assignments: before a container starts that has CPUs for itself.
    pub(super) fn follow_cpus(&mut self) {
        if self.launch.containers.cpus.take_changed() {
            self.write_cpus();
        }
    }

    fn write_cpus(&self) {
        let (cgroups, cpus) = (&self.launch.base.cgroups, &self.launch.containers.cpus);
        for (uid, entry) in self.cx.pods.iter() {
            for (name, container) in &entry.record.containers {
                let Some((id, given)) = container.state.live_id().zip(cpus.of(uid, name)) else { continue };
                let path = cgroup_of_container(cgroups, &entry.pod, uid, id);
                let set = cgroups.set_cpus(&path, &given.cpus.to_string(), || given.cpus.to_bytes());
                if let Err(error) = set {
                    log::warn!("container {name} of pod {uid} stays on its CPUs: {error}");
                }
            }
        }
    }

    fn tell_about_cpus(&mut self, told: &[String]) -> Result<(), StoreError> {
        for message in told {
            log::warn!("{message}");
            self.cx.node_event(true, "ExclusiveCPUsReassigned", message)?;
        }
        Ok(())
    }
}

fn holders(pods: &Pods) -> Vec<Holder<'_>> {
    let all = pods.iter().filter(|(_, entry)| keeps(&entry.record));
    all.map(|(_, entry)| (admission::allocated(&entry.pod, &entry.record), wants(&entry.record))).collect()
}

/// Whether a pod still has its CPUs: until its containers are taken down.
fn keeps(record: &PodRecord) -> bool {
    match record.sandbox.state {
        SandboxState::Gone => false,
        SandboxState::None => record.admitted && record.terminal.is_none(),
        _ => true,
    }
}

/// Whether a pod gets the CPUs that it asks for.
pub(super) fn wants(record: &PodRecord) -> bool {
    record.admitted && record.terminal.is_none() && record.deletion.is_none() && keeps(record)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::launch::cpus::Cpus;
    use crate::node::bench::Bench;
    use crate::node::pods::Entry;
    use crate::pod::record::{Deletion, PodSource, Terminal};

    /// A node with CPUs 0 to 3, of which 0 is reserved.
    fn bench() -> (Bench, TempDir) {
        let (mut bench, board) = (Bench::new(), tempfile::tempdir().unwrap());
        std::fs::write(board.path().join("online"), "0-3\n").unwrap();
        bench.node.launch.containers.cpus = Cpus::for_tests(board.path());
        (bench, board)
    }

    /// A pod that has had no turn, and whose container asks for this cpu and as much memory as all others.
    fn add(bench: &mut Bench, uid: &str, cpu: &str) {
        let limits = json!({"cpu": cpu, "memory": "16Mi"});
        let container = json!({"name": "c", "image": "registry.example/app:1", "resources": {"limits": limits}});
        let spec = json!({"hostNetwork": true, "hostIPC": true, "containers": [container]});
        let metadata = json!({"name": uid, "namespace": "ns", "uid": uid});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let record = PodRecord::new(uid, "ns", uid, PodSource::Api, &bench.node.cx.clock.now());
        bench.node.cx.pods.insert(Entry::new(Rc::new(pod), record));
    }

    fn cpus(bench: &Bench, uid: &str) -> String {
        bench.node.launch.containers.cpus.of(uid, "c").unwrap().cpus.to_string()
    }

    #[test]
    fn admitted_pod_has_its_cpus_until_it_is_gone() {
        let (mut bench, board) = bench();
        bench.node.restore_cpus().unwrap();
        for (uid, cpu) in [("a", "2"), ("b", "1500m"), ("x", "2")] {
            add(&mut bench, uid, cpu);
        }
        bench.node.settle("a").unwrap();
        bench.node.settle("b").unwrap();
        assert_eq!((cpus(&bench, "a").as_str(), cpus(&bench, "b").as_str()), ("1-2", "0,3"));
        let file = std::fs::read_to_string(board.path().join("cpu_manager_state")).unwrap();
        assert!(file.contains(r#""entries":{"a":{"c":"1-2"}}"#), "{file}");
        // The allocatable of the node is another limit: without b there would be room by the sum.
        bench.record_mut("b").terminal =
            Some(Terminal { succeeded: true, reason: String::new(), message: String::new() });
        bench.node.settle("x").unwrap();
        let refused = bench.record("x").terminal.clone().unwrap();
        assert_eq!(refused.reason, "UnexpectedAdmissionError");
        assert!(refused.message.contains("requested=2, available=1"), "{}", refused.message);
        bench.node.look_at_cpus().unwrap();
        assert_eq!(cpus(&bench, "a"), "1-2");
        bench.node.forget("a");
        assert_eq!(cpus(&bench, "b"), "0-3");
    }

    #[test]
    fn pod_waits_for_cpus_of_ending_pods() {
        let (mut bench, _board) = bench();
        bench.node.restore_cpus().unwrap();
        add(&mut bench, "a", "2");
        bench.node.settle("a").unwrap();
        add(&mut bench, "x", "2");
        bench.record_mut("a").deletion =
            Some(Deletion { requested_at: Default::default(), grace_s: 30, object_gone: false, reported: false });
        bench.node.settle("x").unwrap();
        assert!(!bench.record("x").admitted && bench.record("x").terminal.is_none());
        assert_eq!(cpus(&bench, "x"), "0,3", "nothing for itself yet");
    }

    #[test]
    fn pod_waits_for_cpus_of_a_pod_that_the_store_has_lost() {
        let (mut bench, board) = bench();
        let state = r#"{"policyName":"static","defaultCpuSet":"0,3","entries":{"lost":{"c":"1-2"}}}"#;
        std::fs::write(board.path().join("cpu_manager_state"), state).unwrap();
        assert!(bench.node.launch.containers.cpus.restore(&[], false).is_empty());
        add(&mut bench, "x", "2");
        bench.node.settle("x").unwrap();
        assert!(!bench.record("x").admitted && bench.record("x").terminal.is_none(), "{:?}", bench.record("x"));
        bench.node.look_at_cpus().unwrap();
        bench.node.settle("x").unwrap();
        assert!(bench.record("x").admitted, "the store is complete, and has no such pod");
        assert_eq!(cpus(&bench, "x"), "1-2");
    }

    #[test]
    fn pods_keep_their_cpus_until_their_containers_are_down() {
        let mut record = PodRecord { admitted: true, ..PodRecord::default() };
        assert!(keeps(&record) && wants(&record));
        record.sandbox.state = SandboxState::TearingDown;
        record.terminal = Some(Terminal { succeeded: true, reason: String::new(), message: String::new() });
        assert!(keeps(&record) && !wants(&record));
        record.sandbox.state = SandboxState::Gone;
        assert!(!keeps(&record));
        record.sandbox.state = SandboxState::None;
        assert!(!keeps(&record), "refused");
        assert!(!keeps(&PodRecord::default()), "not admitted yet");
    }
}
