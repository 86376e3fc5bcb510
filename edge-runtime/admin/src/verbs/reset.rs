//! `edge-runtime reset`: says what it ends and deletes, asks on a terminal, and lets the daemon's program do it.

use std::path::Path;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::link::identity::Identity;
use edge_runtime::paths::Paths;
use sampan_pod::record::PodRecord;

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
    // Fails if this user may not see what there is to lose.
    find::has_run(&paths)?;
    // Nothing is asked where nothing is. A dry run never goes on.
    let is_any = given.has(DRY_RUN.long) || paths.state().try_exists()? || paths.run().try_exists()?;
    if is_any && !ask::may_go_on(&given, &plan(&Node::read(&paths), &paths, given.has("all")))? {
        return Ok(());
    }
    Err(worker::become_it(worker::command(VERB.name, &["--yes"], &given, &["all"])))
}

/// What there is to lose. A damaged store must not keep a node from being reset.
struct Node {
    name: Option<String>,
    /// Containers that run, and pods; none if the store cannot be read.
    running: Option<(usize, usize)>,
}

impl Node {
    fn read(paths: &Paths) -> Self {
        let pods = match find::has_run(paths) {
            Ok(false) => Some(Vec::new()),
            _ => find::stored_pods(paths).ok(),
        };
        let running = |pods: &[PodRecord]| {
            pods.iter().flat_map(|pod| pod.containers.values()).filter(|one| one.state.live_id().is_some()).count()
        };
        Self {
            name: Identity::load(paths).ok().flatten().map(|identity| identity.node),
            running: pods.map(|pods| (running(&pods), pods.len())),
        }
    }
}

fn plan(node: &Node, paths: &Paths, all: bool) -> String {
    let name = node.name.as_deref().unwrap_or("without a cluster");
    let ended = match node.running {
        Some((containers, pods)) => format!("{containers} containers of {pods} pods"),
        None => "all containers (the store cannot be read, so their number is not known)".to_owned(),
    };
    // The daemon of another root is not a service. While it runs, a reset does not work.
    let service = if paths.root() == Path::new("/") { "stops the service, " } else { "" };
    let mut out = format!("Node {name}: {service}ends {ended}, and removes their mounts, networks and cgroups.\n");
    out.push_str(&match all {
        true => format!(
            "Deletes the identity, all volumes, images and logs: {}, and in {} the folders of its pods. Only a new token brings the node back.\n",
            paths.state().display(),
            paths.root().join("var/log/pods").display()
        ),
        false => "Keeps identity, pods, volumes, images and logs: edge-runtime run starts the pods again.\n".to_owned(),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_names_what_is_lost() {
        let paths = Paths::new(Path::new("/"));
        let node = Node { name: Some("pi-1".into()), running: Some((3, 2)) };
        let (some, all) = (plan(&node, &paths, false), plan(&node, &paths, true));
        assert!(
            some.starts_with("Node pi-1: stops the service, ends ") && some.contains("3 containers of 2 pods"),
            "{some}"
        );
        assert!(some.contains("Keeps") && !some.contains("/var/lib"), "{some}");
        assert!(all.contains("/var/lib/edge-runtime, and in /var/log/pods") && !all.contains("Keeps"), "{all}");
    }

    #[test]
    fn dry_run_does_not_start_a_reset_of_an_empty_root() {
        let root = tempfile::tempdir().unwrap();
        let words = ["--all", "--dry-run", "--root", root.path().to_str().unwrap()];
        run(VERB.parse(lexopt::Parser::from_args(words)).unwrap()).unwrap();
    }

    #[test]
    fn damaged_store_is_not_shown_as_a_node_without_pods() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        assert_eq!(Node::read(&paths).running, Some((0, 0)));
        std::fs::create_dir_all(paths.state()).unwrap();
        std::fs::write(paths.store(), "no database".repeat(1000)).unwrap();
        let shown = plan(&Node::read(&paths), &paths, false);
        assert!(shown.contains(": ends all containers (the store cannot be read"), "another root, no service: {shown}");
    }
}
