//! Which mappers may register: those of pods in some namespaces, if any are named. A process outside this node's pods
//! is then refused, whatever its user. The daemon tells the namespace of a pod, once for each pod.

use std::collections::{BTreeMap, BTreeSet};

use super::request::Request;
use sampan_devices_control::Dmi;
use sampan_sys::gather::Gather;

#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// Empty for all, and for processes of the node as well.
    pub(super) namespaces: BTreeSet<String>,
    /// Namespaces of pods. A pod stays where it is.
    pub(super) known: BTreeMap<String, String>,
    pub(super) waiting: Vec<(u64, Request, String)>,
    /// Pods that were refused, for the log.
    pub(super) told: BTreeSet<String>,
}

/// Whether the mappers of a pod may speak.
pub(super) enum Verdict {
    Yes,
    No(String),
    /// The daemon must be asked.
    Unknown,
}

impl Allowed {
    pub(super) fn new(dmi: &Dmi) -> Self {
        Self { namespaces: dmi.allow_namespaces.iter().cloned().into_set(), ..Self::default() }
    }

    pub(super) fn are_all(&self) -> bool {
        self.namespaces.is_empty()
    }

    pub(super) fn judge(&self, pod: &str) -> Verdict {
        match self.known.get(pod) {
            _ if self.are_all() => Verdict::Yes,
            _ if pod.is_empty() => Verdict::No("a process that is of no pod of this node".to_owned()),
            None => Verdict::Unknown,
            Some(namespace) if self.namespaces.contains(namespace) => Verdict::Yes,
            Some(namespace) => Verdict::No(format!("a pod of namespace {namespace}")),
        }
    }
}
