//! `edge-runtime release`: lets pods start whose first start an annotation holds, with or without a cloud. The daemon looks
//! for the marks that this leaves.

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
    for pod in &found {
        release(&paths, pod)?;
        print(&format!("pod {}/{} is released and {when}", pod.namespace, pod.name))?;
    }
    Ok(())
}

/// Leaves the mark, which a power cut does not undo.
fn release(paths: &Paths, pod: &PodRecord) -> Result<(), CliError> {
    private_dir(&paths.pod(&pod.uid))?;
    Ok(replace(&paths.released(&pod.uid), b"", true)?)
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

    #[test]
    fn held_pods_are_marked_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        private_dir(&paths.state()).unwrap();
        let mut store = Store::open(&paths.store()).unwrap().store;
        for (uid, namespace, start_hold) in [
            ("a", "shop", StartHold::Held),
            ("b", "shop", StartHold::Open),
            ("c", "shop", StartHold::Held),
            ("d", "other", StartHold::Held),
        ] {
            let (namespace, name) = (namespace.to_owned(), uid.to_owned());
            let pod = PodRecord { uid: uid.into(), namespace, name, start_hold, ..Default::default() };
            store.write_durable(|writer| writer.put_pod(&pod)).unwrap();
        }
        drop(store);
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
