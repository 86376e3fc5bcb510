//! `edge-runtime images`: the images on this node, and what an administrator does to them.

mod check;
mod export;
mod remove;
mod table;

use std::path::Path;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use edge_runtime::store::image_record::ImageRecord;
use jiff::Timestamp;

use self::table::{names, table};
use crate::ask::{DRY_RUN, YES};
use crate::find;
use crate::output::{Form, JSON, OUTPUT};
use crate::takes;

pub(super) const VERB: Verb = Verb {
    name: "images",
    about: "List, check, remove and export images of this node",
    operands: Operands::Words("[ls|check|rm IMAGE...|prune|export IMAGE FILE]"),
    flags: &[
        OUTPUT,
        JSON,
        Flag::switch("repair", "with check, remove damaged images, which are then pulled again"),
        Flag::switch("overwrite", "with export, replace FILE"),
        YES,
        DRY_RUN,
        Flag::switch("verify", "same as check --repair"),
        Flag::value("remove", "IMAGE", "same as rm IMAGE (repeatable)"),
    ],
    run,
};

/// Task that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    List,
    Check {
        repair: bool,
    },
    Remove(Vec<String>),
    /// Remove what nothing uses.
    Prune,
    Export {
        image: String,
        overwrite: bool,
    },
}

fn task(given: &Given) -> Result<Task, CliError> {
    let words: Vec<String> = given.operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let remove: Vec<String> = given.all("remove")?;
    if usize::from(!words.is_empty()) + usize::from(given.has("verify")) + usize::from(!remove.is_empty()) > 1 {
        return Err(CliError::Usage(
            "images takes one of ls, check, rm, prune, export, --verify and --remove".to_owned(),
        ));
    }
    let task = match words.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        None if given.has("verify") => Ok(Task::Check { repair: true }),
        None if !remove.is_empty() => Ok(Task::Remove(remove)),
        None | Some(("ls", [])) => Ok(Task::List),
        Some(("check", [])) => Ok(Task::Check { repair: given.has("repair") }),
        Some(("rm", [])) => Err(CliError::Usage("images rm: IMAGE is missing".to_owned())),
        Some(("rm", names)) => Ok(Task::Remove(names.to_vec())),
        Some(("prune", [])) => Ok(Task::Prune),
        Some(("export", [image, _])) => Ok(Task::Export { image: image.clone(), overwrite: given.has("overwrite") }),
        Some(("export", _)) => Err(CliError::Usage("images export: IMAGE and FILE are needed".to_owned())),
        Some((word, _)) => {
            Err(CliError::Usage(format!("images {word}: ls, check, rm IMAGE..., prune or export IMAGE FILE")))
        }
    }?;
    let (what, used): (_, &[&str]) = match task {
        Task::List => ("images ls", &["output", "json"]),
        Task::Check { .. } => ("images check", &["repair", "verify", "yes"]),
        Task::Remove(_) => ("images rm", &["remove", "yes"]),
        Task::Prune => ("images prune", &["yes", "dry-run"]),
        Task::Export { .. } => ("images export", &["overwrite"]),
    };
    takes::only(given, VERB.flags, what, used).map(|()| task)
}

fn run(given: Given) -> Result<(), CliError> {
    let (task, form) = (task(&given)?, Form::of(&given)?);
    edge_runtime::cli::start_log();
    let paths = given.paths()?;
    if task != Task::List {
        // Fails where no node has run: a check creates no state either.
        find::store(&paths)?;
    }
    match task {
        Task::List => {
            let images = list(&paths)?;
            let now = Timestamp::now().as_second();
            let all_names = || images.iter().flat_map(names).map(str::to_owned).collect::<Vec<String>>();
            form.print(&images, |wide| table(&images, now, wide), all_names)
        }
        Task::Check { repair: true } => match check::repair(&paths)?.as_slice() {
            [] => print("every layer is whole"),
            ids => print(&format!("removed, to be pulled again: {}", ids.join(" "))),
        },
        Task::Check { repair: false } => match check::damaged(&paths)?.as_slice() {
            [] => print("every layer is whole"),
            ids => Err(CliError::Failed(format!(
                "damaged: {}; edge-runtime images check --repair removes them, to be pulled again",
                ids.join(" ")
            ))),
        },
        Task::Remove(names) => Ok(remove::by_name(&paths, &names)?),
        Task::Prune => remove::unused(&given, &paths),
        Task::Export { image, overwrite } => {
            // As it was typed: names of files need not be text.
            let file = given.operands.last().map(Path::new).unwrap_or(Path::new(""));
            export::export(&paths, &image, file, overwrite)
        }
    }
}

fn list(paths: &Paths) -> Result<Vec<ImageRecord>, CliError> {
    // Listing creates no state on a machine without a node.
    match find::has_run(paths)? {
        true => Ok(Store::open_shared(&paths.store())?.images()?),
        false => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_older_flags_are_a_task() {
        let of = |words: &[&str]| task(&VERB.parse(lexopt::Parser::from_args(words)).unwrap());
        for (words, wanted) in [
            (&[] as &[&str], Task::List),
            (&["ls"], Task::List),
            (&["check"], Task::Check { repair: false }),
            (&["check", "--repair"], Task::Check { repair: true }),
            (&["--verify"], Task::Check { repair: true }),
            (&["rm", "a", "b"], Task::Remove(vec!["a".into(), "b".into()])),
            (&["--remove", "a"], Task::Remove(vec!["a".into()])),
            (&["prune", "--dry-run"], Task::Prune),
            (&["export", "a", "f"], Task::Export { image: "a".into(), overwrite: false }),
            (&["export", "a", "f", "--overwrite"], Task::Export { image: "a".into(), overwrite: true }),
        ] {
            assert_eq!(of(words).unwrap(), wanted, "{words:?}");
        }
        let two = [&["rm", "a", "--remove", "b"][..], &["--verify", "--remove", "b"]];
        let dry = [&["rm", "a", "--dry-run"][..], &["--remove", "a", "--dry-run"], &["check", "--repair", "--dry-run"]];
        for wrong in [&["rm"][..], &["prune", "a"], &["busybox"], &["export", "a"], &["export", "a", "f", "--dry-run"]]
            .into_iter()
            .chain(dry)
            .chain(two)
        {
            assert!(matches!(of(wrong), Err(CliError::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn check_creates_no_state_without_a_node() {
        let root = tempfile::tempdir().unwrap();
        for words in [&["check"][..], &["rm", "a"], &["prune"], &["export", "a", "f"]] {
            let words = words.iter().copied().chain(["--root", root.path().to_str().unwrap()]);
            let done = run(VERB.parse(lexopt::Parser::from_args(words)).unwrap());
            assert!(matches!(done, Err(CliError::Failed(why)) if why.contains("no node has run here")));
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
