//! Which pod and container somebody means on the command line.

use std::path::PathBuf;

use super::CliError;
use super::ps::stored_pods;
use crate::pod::record::{ContainerKind, PodRecord};

/// What was said: the rest must be without doubt.
pub(super) struct Wanted<'a> {
    pub(super) namespace: Option<&'a str>,
    /// `POD` or `NAMESPACE/POD`.
    pub(super) pod: &'a str,
    pub(super) container: Option<&'a str>,
}

impl Wanted<'_> {
    /// The pod and the name of its container, from the store.
    pub(super) fn find(&self, root: Option<PathBuf>) -> Result<(PodRecord, String), CliError> {
        let (namespace, wanted) = match self.pod.split_once('/') {
            Some((namespace, pod)) => (Some(namespace), pod),
            None => (self.namespace, self.pod),
        };
        let is_it = |pod: &PodRecord| pod.name == wanted && namespace.is_none_or(|name| name == pod.namespace);
        let mut found = stored_pods(root)?.into_iter().filter(is_it);
        let pod = found.next().ok_or_else(|| CliError::Failed(format!("pod {wanted} is not on this node")))?;
        if let Some(other) = found.next() {
            let text = format!("pod {wanted} is in namespaces {} and {}: -n NAMESPACE", pod.namespace, other.namespace);
            return Err(CliError::Failed(text));
        }
        let name = container(&pod, self.container)?;
        Ok((pod, name))
    }
}

fn container(pod: &PodRecord, wanted: Option<&str>) -> Result<String, CliError> {
    match wanted {
        Some(name) if pod.containers.contains_key(name) => Ok(name.to_owned()),
        Some(name) => Err(CliError::Failed(format!("container {name} not found in pod {}", pod.name))),
        None => {
            let apps = pod.containers.iter().filter(|(_, c)| c.kind == ContainerKind::App);
            let names: Vec<&str> = apps.map(|(name, _)| name.as_str()).collect();
            match names.as_slice() {
                [only] => Ok((*only).to_owned()),
                _ => Err(CliError::Failed(format!("which container? -c one of: {}", names.join(", ")))),
            }
        }
    }
}
