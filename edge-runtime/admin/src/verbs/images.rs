//! `edge-runtime images`: the images on this node, and what an administrator does to them.

mod export;
mod remove;

use std::path::Path;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::image::ImageError;
use edge_runtime::image::digest::hex;
use edge_runtime::image::gc::{Sweep, select_broken};
use edge_runtime::image::helper::Helper;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use edge_runtime::store::image_record::ImageRecord;
use jiff::Timestamp;

use crate::ask::{DRY_RUN, YES};
use crate::columns::columns;
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
        Task::Check { repair: true } => match verify_all(&paths)?.as_slice() {
            [] => print("every layer is whole"),
            ids => print(&format!("removed, to be pulled again: {}", ids.join(" "))),
        },
        Task::Check { repair: false } => {
            let helper = Helper::open(&paths)?;
            match select_broken(&helper.images()?, |layer| helper.layers.verify(layer)).as_slice() {
                [] => print("every layer is whole"),
                ids => Err(CliError::Failed(format!(
                    "damaged: {}; edge-runtime images check --repair removes them, to be pulled again",
                    ids.join(" ")
                ))),
            }
        }
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

/// Walks every layer and forgets the images whose layers lost something.
fn verify_all(paths: &Paths) -> Result<Vec<String>, ImageError> {
    let mut helper = Helper::begin(paths)?;
    let images = helper.images()?;
    let broken = select_broken(&images, |layer| helper.layers.verify(layer));
    let lock = helper.layers.lock()?;
    for layer in images.iter().filter(|image| broken.contains(&image.id)).flat_map(|image| &image.layers) {
        if !helper.layers.verify(layer) {
            helper.layers.retire(layer)?;
        }
    }
    drop(lock);
    helper.forget(&broken)?;
    helper.sweep(Sweep::USUAL)?;
    Ok(broken)
}

/// Names of an image as pods give them; the one with a digest, or none, if it has no other.
fn names(image: &ImageRecord) -> Vec<&str> {
    let tagged: Vec<&str> = image.references.iter().map(String::as_str).filter(|name| !name.contains('@')).collect();
    match (tagged.is_empty(), image.references.first()) {
        (false, _) => tagged,
        (true, Some(first)) => vec![first],
        (true, None) => vec!["<none>"],
    }
}

/// Columns as `docker images` has them, one line per name. A wide one has whole ids and the number of layers.
fn table(images: &[ImageRecord], now: i64, wide: bool) -> String {
    let mut rows = vec![["REFERENCE", "IMAGE ID", "SIZE", "CREATED", "LAYERS"].map(str::to_owned)];
    for image in images {
        let id: String = hex(&image.id).chars().take(if wide { 64 } else { 12 }).collect();
        let row = |name: &str| {
            let layers = image.layers.len().to_string();
            [name.to_owned(), id.clone(), size(image.size), created(image, now), layers]
        };
        rows.extend(names(image).into_iter().map(row));
    }
    rows[1..].sort();
    if wide {
        return columns(&rows, "   ");
    }
    let narrow: Vec<[String; 4]> = rows.iter().map(|row| std::array::from_fn(|column| row[column].clone())).collect();
    columns(&narrow, "   ")
}

/// Decimal units, as image tools count.
fn size(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{:02}{name}", bytes / unit, bytes % unit * 100 / unit),
        None => format!("{bytes}B"),
    }
}

/// When the image was made; where it does not say, when this node took it in.
fn created(image: &ImageRecord, now: i64) -> String {
    let made = image.config.created.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    // Builders that want the same bytes each time write the epoch.
    match made.map(|made| made.as_second()).filter(|made| *made != 0) {
        Some(made) => age(made, now),
        None => format!("{} (taken in)", age(image.pulled_at, now)),
    }
}

fn age(then: i64, now: i64) -> String {
    let (number, unit) = match now.saturating_sub(then).max(0) {
        s if s < 120 => (s, "seconds"),
        s if s < 7200 => (s / 60, "minutes"),
        s if s < 172_800 => (s / 3600, "hours"),
        s => (s / 86_400, "days"),
    };
    format!("{number} {unit} ago")
}

#[cfg(test)]
mod tests {
    use edge_runtime::store::image_record::ImageConfig;

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

    #[test]
    fn the_table_has_a_line_per_name() {
        let record = |id: &str, created: Option<&str>, names: &[&str]| ImageRecord {
            id: format!("sha256:{}", id.repeat(32)),
            references: names.iter().map(|name| (*name).to_owned()).collect(),
            config: ImageConfig { created: created.map(str::to_owned), ..ImageConfig::default() },
            layers: Vec::new(),
            size: 2_140_160,
            pulled_at: 1_767_225_600,
            access: Default::default(),
        };
        let stored = ["docker.io/library/b:1", "docker.io/library/b@sha256:1", "a:2"];
        let images = [
            record("ab", Some("2026-01-01T00:00:00Z"), &stored),
            record("cd", Some("1970-01-01T00:00:00Z"), &["c:1"]),
            record("ef", None, &["d:1"]),
        ];
        let now = "2026-01-04T00:00:01Z".parse::<Timestamp>().unwrap().as_second();
        assert_eq!(
            table(&images, now, false),
            "REFERENCE               IMAGE ID       SIZE     CREATED\n\
             a:2                     abababababab   2.14MB   3 days ago\n\
             c:1                     cdcdcdcdcdcd   2.14MB   3 days ago (taken in)\n\
             d:1                     efefefefefef   2.14MB   3 days ago (taken in)\n\
             docker.io/library/b:1   abababababab   2.14MB   3 days ago\n"
        );
        let wide = table(&images, now, true);
        assert!(wide.contains(&"ab".repeat(32)) && wide.lines().all(|line| !line.ends_with(' ')), "{wide}");
        assert_eq!(names(&images[0]), ["docker.io/library/b:1", "a:2"]);
        assert_eq!((size(999), size(1500)), ("999B".into(), "1.50kB".into()));
    }
}
