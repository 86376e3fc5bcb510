//! `edge-runtime reset`: says what it ends and deletes, asks on a terminal, and lets the daemon's program do it.

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::link::identity::Identity;
use edge_runtime::paths::Paths;

use crate::ask::{self, DRY_RUN, YES};
use crate::{find, worker};

pub(super) const VERB: Verb = Verb {
    name: "reset",
    about: "End all containers and remove their traces from this machine",
    operands: Operands::None,
    flags: &[Flag::switch("all", "also delete identity, volumes, images and logs"), YES, DRY_RUN],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    // Nothing is asked where nothing is.
    let is_any = paths.state().try_exists()? || paths.run().try_exists()?;
    if is_any && !ask::may_go_on(&given, &plan(&Node::read(&paths), &paths, given.has("all")))? {
        return Ok(());
    }
    Err(worker::become_it(worker::command(VERB.name, &["--yes"], &given, &["all"])))
}

/// What there is to lose. A damaged store must not keep a node from being reset.
struct Node {
    name: Option<String>,
    pods: usize,
    running: usize,
}

impl Node {
    fn read(paths: &Paths) -> Self {
        let pods = find::stored_pods(paths).unwrap_or_default();
        let containers = pods.iter().flat_map(|pod| pod.containers.values());
        Self {
            name: Identity::load(paths).ok().flatten().map(|identity| identity.node),
            running: containers.filter(|one| one.state.live_id().is_some()).count(),
            pods: pods.len(),
        }
    }
}

fn plan(node: &Node, paths: &Paths, all: bool) -> String {
    let name = node.name.as_deref().unwrap_or("without a cluster");
    let mut out = format!(
        "Node {name}: stops the service, ends {} containers of {} pods, and removes their mounts, networks and cgroups.\n",
        node.running, node.pods
    );
    out.push_str(&match all {
        true => format!(
            "Deletes the identity, all volumes, images and logs: {}, {}. Only a new token brings the node back.\n",
            paths.state().display(),
            paths.root().join("var/log/pods").display()
        ),
        false => "Keeps identity, pods, volumes, images and logs: edge-runtime run starts the pods again.\n".to_owned(),
    });
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn plan_names_what_is_lost() {
        let paths = Paths::new(Path::new("/"));
        let node = Node { name: Some("pi-1".into()), pods: 2, running: 3 };
        let (some, all) = (plan(&node, &paths, false), plan(&node, &paths, true));
        assert!(some.starts_with("Node pi-1: ") && some.contains("3 containers of 2 pods"), "{some}");
        assert!(some.contains("Keeps") && !some.contains("/var/lib"), "{some}");
        assert!(all.contains("/var/lib/edge-runtime, /var/log/pods") && !all.contains("Keeps"), "{all}");
    }
}
