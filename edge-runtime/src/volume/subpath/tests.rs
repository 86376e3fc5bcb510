//! Any path through any tree of links ends inside the volume or nowhere, and nothing is made outside.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

const NAMES: &[&str] = &["a", "b", "c", "link", "up", "root", "deep"];

fn component() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(NAMES).prop_map(str::to_owned),
        1 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        1 => "[^/\0]{1,8}",
    ]
}

fn path() -> impl Strategy<Value = String> {
    (any::<bool>(), prop::collection::vec(component(), 1..6))
        .prop_map(|(absolute, parts)| if absolute { "/".to_owned() + &parts.join("/") } else { parts.join("/") })
}

/// A folder, a file, or a link to some path, somewhere in the volume.
#[derive(Clone, Debug)]
enum Entry {
    Folder(Vec<usize>),
    File(Vec<usize>),
    Link(Vec<usize>, String),
}

fn entry() -> impl Strategy<Value = Entry> {
    let place = prop::collection::vec(0..NAMES.len(), 1..4);
    let target = prop_oneof![
        path(),
        Just("/proc/self/root".to_owned()),
        Just("../outside".to_owned()),
        Just("../../etc".to_owned())
    ];
    prop_oneof![
        place.clone().prop_map(Entry::Folder),
        place.clone().prop_map(Entry::File),
        (place, target).prop_map(|(place, target)| Entry::Link(place, target)),
    ]
}

fn build(volume: &Path, entries: &[Entry]) {
    let at = |place: &[usize]| place.iter().fold(volume.to_path_buf(), |path, index| path.join(NAMES[*index]));
    for entry in entries {
        // Skips entries that another one blocks. Never creates through a link, which would leave the folder.
        let (Entry::Folder(place) | Entry::File(place) | Entry::Link(place, _)) = entry;
        let plain = (1..place.len()).all(|n| fs::symlink_metadata(at(&place[..n])).is_ok_and(|found| found.is_dir()));
        if plain {
            let _ = match entry {
                Entry::Folder(_) => fs::create_dir(at(place)),
                // Never through a link that stands there already.
                Entry::File(_) => File::create_new(at(place)).map(drop),
                Entry::Link(_, target) => symlink(target, at(place)),
            };
        }
    }
}

fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(tree(&entry.path()));
        }
        all.push(entry.path());
    }
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_path_leaves_the_volume(entries in prop::collection::vec(entry(), 0..12), wanted in path()) {
        let temp = tempfile::tempdir().unwrap();
        let volume = fs::canonicalize(temp.path()).unwrap().join("volume");
        let outside = temp.path().join("outside");
        fs::create_dir(&volume).unwrap();
        fs::create_dir(&outside).unwrap();
        build(&volume, &entries);
        // Also paths that `check` refuses: the kernel's rule must suffice alone.
        if let Ok(found) = open(&volume, &wanted) {
            let place = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
            prop_assert!(place.starts_with(&volume), "{wanted:?} led to {place:?}");
        }
        prop_assert_eq!(tree(&outside), Vec::<PathBuf>::new());
        prop_assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2);
    }

    #[test]
    fn absolute_and_climbing_subpaths_are_refused(wanted in path()) {
        if check(&wanted).is_ok() {
            let path = Path::new(&wanted);
            prop_assert!(!path.is_absolute() && !path.components().any(|part| part == Component::ParentDir));
        }
    }
}
