//! The floors of a crate: which folder may import which, as ARCHITECTURE.md lists them, held against the sources. Reads
//! them as text; test code is left out. Knows no crate.

mod imports;
pub mod pages;
pub mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use imports::Paths;
use imports::imports;

/// Which files each file imports, by module path (`node::turn`; the root is empty).
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The folder that holds ARCHITECTURE.md and Cargo.lock.
fn workspace(crate_folder: &Path) -> PathBuf {
    let found = crate_folder.ancestors().find(|folder| folder.join("ARCHITECTURE.md").exists());
    found.expect("a crate of this workspace").to_path_buf()
}

/// A list in ARCHITECTURE.md, from the top: the first word of each line of the block behind
/// `<!-- floors of NAME, from the top -->`. Names with commas between them share a floor.
///
/// # Panics
/// The list is missing.
fn floors(crate_folder: &Path, name: &str) -> Vec<Vec<String>> {
    let map = std::fs::read_to_string(workspace(crate_folder).join("ARCHITECTURE.md")).expect("the map");
    let (_, list) =
        map.split_once(&format!("<!-- floors of {name}, from the top -->\n```text\n")).expect("the list of floors");
    let (list, _) = list.split_once("```").expect("the end of the list");
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.map(|names| names.split(',').map(str::to_owned).collect()).collect()
}

/// Imports of what stands above, as `from -> to`; also files of a folder that is not on the list.
///
/// # Panics
/// The sources or the list of `name` cannot be read.
#[must_use]
pub fn upward(crate_folder: &Path, name: &str) -> Vec<String> {
    upward_in(crate_folder, "", name)
}

/// Same as [`upward`], for the modules of one folder of the sources.
///
/// # Panics
/// The sources or the list of `name` cannot be read.
#[must_use]
pub fn upward_in(crate_folder: &Path, folder: &str, name: &str) -> Vec<String> {
    let floors = floors(crate_folder, name);
    let depth = |module: &str| {
        let first = first_in(module, folder)?;
        floors.iter().position(|names| names.iter().any(|name| name == first))
    };
    let mut wrong = Vec::new();
    let arrows = arrows(crate_folder, Paths::Imports);
    for (module, targets) in arrows.iter().filter(|(module, _)| first_in(module, folder).is_some()) {
        let Some(own) = depth(module) else {
            wrong.push(format!("{module} is on no floor"));
            continue;
        };
        let up = targets.iter().filter(|target| depth(target).is_some_and(|target| target < own));
        wrong.extend(up.map(|target| format!("{module} -> {target}")));
    }
    wrong
}

/// The first part of a module's path within a folder; `None` outside.
fn first_in<'a>(module: &'a str, folder: &str) -> Option<&'a str> {
    let inside = if folder.is_empty() { module } else { module.strip_prefix(folder)?.strip_prefix("::")? };
    inside.split("::").next().filter(|first| !first.is_empty())
}

/// Circles of files that import each other by these paths: those of more than `most` files, and those that leave a folder.
///
/// # Panics
/// The sources cannot be read.
#[must_use]
pub fn circles(crate_folder: &Path, most: usize, paths: Paths) -> Vec<String> {
    let arrows = arrows(crate_folder, paths);
    let far: Arrows = arrows.keys().map(|one| (one.clone(), reached(&arrows, one))).collect();
    let mut wrong = Vec::new();
    for one in arrows.keys() {
        let circle: Vec<&str> = far[one].iter().filter(|other| far[*other].contains(one)).map(String::as_str).collect();
        if circle.first() == Some(&one.as_str()) && circle.len() > 1 && (circle.len() > most || leaves_folder(&circle))
        {
            wrong.push(format!("{}: {}", crate_folder.display(), circle.join(" ")));
        }
    }
    wrong
}

/// Whether a circle has other modules than one and its children.
fn leaves_folder(circle: &[&str]) -> bool {
    let is_inside = |folder: &str| circle.iter().all(|one| *one == folder || parent(one) == folder);
    !is_inside(circle[0]) && !is_inside(parent(circle[0]))
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// What of `forbidden` is among all that the package `own` depends on, by Cargo.lock.
///
/// # Panics
/// The package does not exist.
#[must_use]
pub fn behind_wall(crate_folder: &Path, own: &str, forbidden: &[&str]) -> Vec<String> {
    let lock = std::fs::read_to_string(workspace(crate_folder).join("Cargo.lock")).expect("the lock file");
    let quoted =
        |line: &str| line.split('"').nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned();
    let mut needs = Arrows::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = package.lines().find(|line| line.starts_with("name = ")).map(quoted).unwrap_or_default();
        let list = package.split("dependencies = [").nth(1).unwrap_or_default();
        needs.entry(name).or_default().extend(list.lines().filter(|line| line.starts_with(" \"")).map(quoted));
    }
    let all = reached(&needs, own);
    assert!(!all.is_empty(), "{own} is in the lock file");
    forbidden.iter().filter(|one| all.contains(**one)).map(|one| (*one).to_owned()).collect()
}

fn reached(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(one) = open.pop() {
        let next = arrows.get(&one).into_iter().flatten().filter(|next| seen.insert((*next).clone()));
        open.extend(next.cloned().collect::<Vec<_>>());
    }
    seen
}

fn arrows(crate_folder: &Path, paths: Paths) -> Arrows {
    let all = imports(&crate_folder.join("src"), paths);
    assert!(!all.is_empty(), "the sources of {} are read", crate_folder.display());
    let targets = |module: &str, paths: &[String]| paths.iter().filter_map(|path| target(module, path, &all)).collect();
    all.iter().map(|(module, paths)| (module.clone(), targets(module, paths))).collect()
}

/// The module of this crate that a path of `module` leads to.
fn target(module: &str, path: &str, all: &BTreeMap<String, Vec<String>>) -> Option<String> {
    let mut place: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path;
    match path.split("::").next()? {
        "crate" => {
            place.clear();
            rest = rest.strip_prefix("crate").unwrap_or(rest);
        }
        "super" => {
            while let Some(less) = rest.strip_prefix("super") {
                place.pop();
                rest = less.trim_start_matches(':');
            }
        }
        "self" => rest = rest.strip_prefix("self").unwrap_or(rest),
        first if all.contains_key([module, first].join("::").trim_start_matches(':')) => {}
        _ => return None,
    }
    place.extend(rest.split("::").filter(|part| !part.is_empty()));
    while !all.contains_key(&place.join("::")) {
        place.pop()?;
    }
    Some(place.join("::")).filter(|found| found != module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(files: &[(&str, &str)], list: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let map = format!("<!-- floors of x, from the top -->\n```text\n{list}\n```\n");
        std::fs::write(folder.path().join("ARCHITECTURE.md"), map).unwrap();
        for (name, text) in files {
            let path = folder.path().join("src").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn what_leads_up_is_found_and_what_leads_down_is_not() {
        let house = made(
            &[
                ("lib.rs", "mod high;\nmod low;\nuse high::a;\n"),
                ("high/mod.rs", "mod inner;\nuse crate::low::{self, b::{c, d}};\n"),
                ("high/inner.rs", "use super::super::low;\n"),
                (
                    "low.rs",
                    "use std::fs;\nfn f() { crate::high::a(); }\n#[cfg(test)]\nmod tests {\nuse crate::high;\n}\n",
                ),
                ("other.rs", ""),
            ],
            "high  a\nlow   b",
        );
        assert_eq!(upward(house.path(), "x"), ["low -> high", "other is on no floor"]);
    }

    #[test]
    fn modules_of_a_folder_have_floors_and_may_share_one() {
        let files = [
            ("a/mod.rs", "mod b;\nmod c;\n"),
            ("a/b.rs", "use super::c::x;\n"),
            ("a/c.rs", "use crate::a::b;\n"),
            ("other.rs", "use crate::a::b;\n"),
        ];
        assert_eq!(upward_in(made(&files, "b  b\nc  c").path(), "a", "x"), ["a::c -> a::b"]);
        assert!(upward_in(made(&files, "b,c  both").path(), "a", "x").is_empty());
    }

    #[test]
    fn a_circle_is_counted_once() {
        let house = made(
            &[
                ("a.rs", "use crate::b::x;\n"),
                ("b.rs", "use crate::c::{x};\n"),
                ("c.rs", "use super::a;\n"),
                ("d.rs", "use super::a;\n"),
            ],
            "a",
        );
        let circles = |most| circles(house.path(), most, Paths::Imports);
        assert_eq!(circles(2).len(), 1);
        assert!(circles(2)[0].ends_with("a b c") && circles(3).is_empty());
    }

    #[test]
    fn a_circle_of_any_length_may_not_leave_a_folder() {
        let files = [
            ("a/mod.rs", "mod b;\nmod c;\n"),
            ("a/b.rs", "use super::c::x;\n"),
            ("a/c/mod.rs", "mod d;\nuse super::b::x;\n"),
            ("a/c/d.rs", "use crate::e::x;\n"),
            ("e.rs", "use crate::a::c::d::x;\n"),
        ];
        let circles = circles(made(&files, "a").path(), 9, Paths::Imports);
        assert!(circles.len() == 1 && circles[0].ends_with("a::c::d e"), "{circles:?}");
    }

    #[test]
    fn a_module_that_calls_its_child_may_not_be_imported_by_it() {
        let house = made(&[("a/mod.rs", "mod b;\nfn f() { b::g() }\n"), ("a/b.rs", "use super::f;\nfn g() {}\n")], "a");
        assert!(circles(house.path(), 1, Paths::Imports).is_empty());
        assert_eq!(circles(house.path(), 1, Paths::Calls).len(), 1);
    }
}
