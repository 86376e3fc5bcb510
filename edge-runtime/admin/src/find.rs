//! The pods in the store, and which pod and container the command line names.

use std::io::{self, Write};

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::Given;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use sampan_pod::record::{ContainerKind, PodRecord};
use sampan_sys::files::named;

use crate::join::file;

/// Whether a node has run on this root.
///
/// # Errors
/// Only root can tell: the state's folders are closed to others.
pub(crate) fn has_run(paths: &Paths) -> Result<bool, CliError> {
    let path = paths.store();
    Ok(path.try_exists().map_err(named(&path))?)
}

/// The node's store, while its daemon runs or not.
///
/// # Errors
/// No node has run here, this user is not root, or the store is damaged.
pub(crate) fn store(paths: &Paths) -> Result<Store, CliError> {
    let path = paths.store();
    if !has_run(paths)? {
        let next = match file::find(paths.root()) {
            Some(file) => format!("{} is tried: journalctl -u edge-runtime-firstboot -e", file.display()),
            None => "edge-runtime join makes this machine a node".to_owned(),
        };
        return Err(CliError::Failed(format!("{} does not exist: no node has run here; {next}", path.display())));
    }
    Ok(Store::open_shared(&path)?)
}

/// The records of all pods, by namespace and name.
pub(crate) fn stored_pods(paths: &Paths) -> Result<Vec<PodRecord>, CliError> {
    let (pods, bad) = store(paths)?.pods()?;
    for (_, error) in bad {
        writeln!(io::stderr(), "{error}")?;
    }
    let mut records: Vec<PodRecord> = pods.into_iter().map(|pod| pod.record).collect();
    records.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(records)
}

/// The pod and the name of its container, from the store. A part that is left out must be unambiguous.
///
/// # Errors
/// No pod or container matches, or more than one.
pub(crate) fn container(given: &Given, paths: &Paths) -> Result<(PodRecord, String), CliError> {
    let pod = pod(given, paths)?;
    let name = name_of(&pod, given.one::<String>("container")?.as_deref())?;
    Ok((pod, name))
}

/// The pod of the operand, from the store: `POD`, `NAMESPACE/POD` or its uid.
///
/// # Errors
/// No pod matches, or more than one.
pub(crate) fn pod(given: &Given, paths: &Paths) -> Result<PodRecord, CliError> {
    let (operand, namespace) = (given.operand()?, given.one::<String>("namespace")?);
    let (namespace, wanted) = match operand.split_once('/') {
        Some((own, _)) if namespace.as_deref().is_some_and(|other| other != own) => {
            return Err(CliError::Usage(format!("{operand} is in namespace {own}, not in that of --namespace")));
        }
        Some((namespace, pod)) => (Some(namespace), pod),
        None => (namespace.as_deref(), operand.as_str()),
    };
    let is_named = |pod: &PodRecord| pod.name == wanted && namespace.is_none_or(|name| name == pod.namespace);
    let is_it = |pod: &PodRecord| is_named(pod) || pod.uid == operand;
    let mut found = stored_pods(paths)?.into_iter().filter(is_it);
    let pod = found.next().ok_or_else(|| CliError::Failed(format!("pod {wanted} is not on this node")))?;
    if let Some(other) = found.next() {
        let text = if pod.namespace == other.namespace {
            format!(
                "pod {wanted} is here twice, as one of them is ending: name it by its uid, {} or {}",
                pod.uid, other.uid
            )
        } else {
            format!("pod {wanted} is in namespaces {} and {}: -n NAMESPACE", pod.namespace, other.namespace)
        };
        return Err(CliError::Failed(text));
    }
    Ok(pod)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_without_a_node_says_how_to_become_one() {
        let root = tempfile::tempdir().unwrap();
        let told = || match store(&Paths::new(root.path())) {
            Err(CliError::Failed(why)) => why,
            _ => panic!("there is no store"),
        };
        assert!(told().ends_with("no node has run here; edge-runtime join makes this machine a node"), "{}", told());
        std::fs::create_dir(root.path().join("boot")).unwrap();
        std::fs::write(root.path().join("boot/edge-runtime.join"), "").unwrap();
        assert!(told().contains("boot/edge-runtime.join is tried: journalctl"), "{}", told());
    }
}
