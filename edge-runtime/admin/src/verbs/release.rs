//! `edge-runtime release`: lets pods start whose first start an annotation holds, with or without a cloud. The daemon looks
//! for the marks that this leaves.

use std::fs::File;

use edge_runtime::cli::verb::{Flag, Given, NAMESPACE, Operands, Verb};
use edge_runtime::cli::{CliError, is_free, print};
use edge_runtime::paths::Paths;
use sampan_pod::record::PodRecord;
use sampan_sys::files::{private_dir, replace};

use crate::{find, holds};

const ALL: Flag = Flag::switch("all", "release all held pods of this node, or of --namespace");

pub(super) const VERB: Verb = Verb {
    name: "release",
    about: "Start a pod whose first start an annotation holds",
    operands: Operands::Words("[POD]"),
    flags: &[NAMESPACE, ALL],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    if given.operands.len() != usize::from(!given.has(ALL.long)) {
        return Err(CliError::Usage("release takes one POD, or --all".to_owned()));
    }
    let namespace = given.one::<String>(NAMESPACE.long)?;
    let found = if given.has(ALL.long) {
        let mut held = find::stored_pods(&paths)?;
        held.retain(|pod| holds::waits_for_release(pod) && namespace.as_ref().is_none_or(|it| *it == pod.namespace));
        held
    } else {
        vec![find::pod(&given, &paths)?]
    };
    if let Some(pod) = found.iter().find(|pod| !holds::waits_for_release(pod)) {
        return Err(CliError::Failed(format!("pod {}/{} is not held", pod.namespace, pod.name)));
    }
    if found.is_empty() {
        return print("no pod is held");
    }
    let when = match is_free(&paths.run().join("daemon.lock")) {
        true => "starts when edge-runtime runs",
        false => "starts within 10 s",
    };
    release_all(&paths, &found, |pod| print(&format!("pod {}/{} is released and {when}", pod.namespace, pod.name)))
}

/// Releases all, and prints each, also if the output has no reader.
fn release_all(
    paths: &Paths,
    pods: &[PodRecord],
    tell: impl Fn(&PodRecord) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut told = Ok(());
    for pod in pods {
        release(paths, pod)?;
        told = told.and(tell(pod));
    }
    told
}

/// Leaves the mark, which a power cut does not undo.
fn release(paths: &Paths, pod: &PodRecord) -> Result<(), CliError> {
    private_dir(&paths.pod(&pod.uid))?;
    replace(&paths.released(&pod.uid), b"", true)?;
    // The pod's folder may be new.
    Ok(File::open(paths.pods())?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use edge_runtime::store::Store;
    use sampan_pod::record::StartHold;

    use super::*;

    fn done(root: &std::path::Path, words: &[&str]) -> Result<(), CliError> {
        let words = words.iter().copied().chain(["--root", root.to_str().unwrap()]);
        run(VERB.parse(lexopt::Parser::from_args(words)).unwrap())
    }

    /// Stores pods by uid, namespace, name and hold.
    fn stored(paths: &Paths, pods: &[(&str, &str, &str, StartHold)]) {
        private_dir(&paths.state()).unwrap();
        let mut store = Store::open(&paths.store()).unwrap().store;
        for (uid, namespace, name, start_hold) in pods {
            let [uid, namespace, name] = [uid, namespace, name].map(|text| (*text).to_owned());
            let pod = PodRecord { uid, namespace, name, start_hold: *start_hold, ..Default::default() };
            store.write_durable(|writer| writer.put_pod(&pod)).unwrap();
        }
    }

    #[test]
    fn pod_that_follows_one_of_its_name_is_named_by_its_uid() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        stored(&paths, &[("u1", "shop", "web", StartHold::Open), ("u2", "shop", "web", StartHold::Held)]);
        let Err(CliError::Failed(why)) = done(root.path(), &["shop/web"]) else { panic!("which one?") };
        assert!(why.ends_with(" uid, u1 or u2") || why.ends_with(" uid, u2 or u1"), "{why}");
        done(root.path(), &["u2"]).unwrap();
        assert!(paths.released("u2").exists() && !paths.released("u1").exists());
    }

    #[test]
    fn pods_are_released_though_nobody_reads() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        stored(&paths, &[("a", "shop", "a", StartHold::Held), ("b", "shop", "b", StartHold::Held)]);
        let done = release_all(&paths, &find::stored_pods(&paths).unwrap(), |_| Err(CliError::Exit(141)));
        assert!(matches!(done, Err(CliError::Exit(141))), "{done:?}");
        assert!(paths.released("a").exists() && paths.released("b").exists());
    }

    #[test]
    fn held_pods_are_marked_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        let pods = [
            ("a", "shop", "a", StartHold::Held),
            ("b", "shop", "b", StartHold::Open),
            ("c", "shop", "c", StartHold::Held),
            ("d", "other", "d", StartHold::Held),
        ];
        stored(&paths, &pods);
        let marked = || ["a", "b", "c", "d"].map(|uid| paths.released(uid).exists());
        done(root.path(), &["shop/a"]).unwrap();
        assert_eq!(marked(), [true, false, false, false]);
        let refused = done(root.path(), &["b"]);
        assert!(matches!(&refused, Err(CliError::Failed(why)) if why == "pod shop/b is not held"), "{refused:?}");
        done(root.path(), &["--all", "-n", "shop"]).unwrap();
        assert_eq!(marked(), [true, false, true, false]);
        done(root.path(), &["--all"]).unwrap();
        assert_eq!(marked(), [true, false, true, true]);
        for words in [&[] as &[&str], &["a", "b"], &["a", "--all"]] {
            assert!(matches!(done(root.path(), words), Err(CliError::Usage(_))), "{words:?}");
        }
    }
}
