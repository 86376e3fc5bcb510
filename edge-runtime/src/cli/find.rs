//! Which pod and container somebody means on the command line.

use super::CliError;
use super::ps::stored_pods;
use super::verb::Given;
use crate::paths::Paths;
use crate::pod::record::{ContainerKind, PodRecord};

/// The pod (`POD` or `NAMESPACE/POD`) and the name of its container, from the store: what was not said must be without
/// doubt.
///
/// # Errors
/// There is none, or more than one.
pub(super) fn container(given: &Given, paths: &Paths) -> Result<(PodRecord, String), CliError> {
    let (operand, namespace) = (given.operand()?, given.one::<String>("namespace")?);
    let (namespace, wanted) = match operand.split_once('/') {
        Some((namespace, pod)) => (Some(namespace), pod),
        None => (namespace.as_deref(), operand.as_str()),
    };
    let is_it = |pod: &PodRecord| pod.name == wanted && namespace.is_none_or(|name| name == pod.namespace);
    let mut found = stored_pods(paths)?.into_iter().filter(is_it);
    let pod = found.next().ok_or_else(|| CliError::Failed(format!("pod {wanted} is not on this node")))?;
    if let Some(other) = found.next() {
        let text = format!("pod {wanted} is in namespaces {} and {}: -n NAMESPACE", pod.namespace, other.namespace);
        return Err(CliError::Failed(text));
    }
    let name = name_of(&pod, given.one::<String>("container")?.as_deref())?;
    Ok((pod, name))
}

fn name_of(pod: &PodRecord, wanted: Option<&str>) -> Result<String, CliError> {
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
