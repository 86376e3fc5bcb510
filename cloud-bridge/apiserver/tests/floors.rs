//! The map of this crate in `ARCHITECTURE.md`, checked: a floor imports those below it only, and no circle of files is
//! large. Reads the sources as text; test code is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// From the bottom to the top.
const FLOORS: &[&str] = &[
    "storage",
    "codec",
    "patch",
    "resource",
    "auth",
    "kinds",
    "state",
    "admission",
    "registry",
    "controllers",
    "http",
];

/// Arrows that lead up, by folder. There is to be none; one that is gone leaves this list.
const UPWARD: &[(&str, &str)] = &[];

/// The most files that may import each other in a circle; three is the aim.
const CIRCLE: usize = 6;

type Module = Vec<String>;

/// The sources by the module that each is.
fn sources(folder: &Path, module: &Module, out: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let child: Module = module.iter().cloned().chain([name.clone()]).collect();
        if path.is_dir() {
            sources(&path, &child, out);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests" {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let product = text.split_once("#[cfg(test)]\nmod tests {").map_or(text.as_str(), |(before, _)| before);
            let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
            let text = lines.collect::<Vec<_>>().join("\n");
            out.insert(if matches!(name.as_str(), "mod" | "lib") { module.clone() } else { child }, text);
        }
    }
}

/// `a::{b, c::{d}}` as `a::b`, `a::c::d`.
fn expanded(tree: &str, before: &str, out: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        out.push(format!("{before}{path}"));
        return;
    };
    let before = format!("{before}{}", head.trim());
    let inner = &rest[..rest.rfind('}').expect("a whole import")];
    let (mut depth, mut start) = (0_usize, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    expanded(inner[start..at].trim(), &before, out);
                }
                start = (at + 1).min(inner.len());
            }
            _ => {}
        }
    }
}

/// Paths that a source names: its imports, and those it spells out elsewhere.
fn paths(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for statement in text.split(';') {
        let lines: Vec<&str> = statement.lines().collect();
        let import = lines.iter().rposition(|line| {
            let line = line.trim_start();
            line.starts_with("use ") || line.starts_with("pub") && line.contains(" use ")
        });
        if let Some(at) = import {
            let tree = lines[at..].join(" ");
            expanded(tree.split_once("use ").expect("an import").1, "", &mut out);
        }
        for root in ["crate::", "super::"] {
            for (at, _) in statement.match_indices(root) {
                let path: String =
                    statement[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
                out.push(path.trim_end_matches(':').to_owned());
            }
        }
    }
    out
}

/// Which module of this crate a path is in.
fn target(path: &str, of: &Module, known: &BTreeMap<Module, String>) -> Option<Module> {
    let mut place = of.clone();
    let mut segments = path.split("::").map(str::trim).peekable();
    match segments.peek() {
        Some(&"crate") => {
            place.clear();
            segments.next();
        }
        Some(&"super") => {
            while segments.next_if_eq(&"super").is_some() {
                place.pop();
            }
        }
        Some(&"self") => drop(segments.next()),
        Some(first) => {
            let child: Module = of.iter().cloned().chain([(*first).to_owned()]).collect();
            known.get(&child)?;
        }
        None => return None,
    }
    place.extend(segments.map(str::to_owned));
    while !place.is_empty() {
        if known.contains_key(&place) {
            return (place != *of).then_some(place);
        }
        place.pop();
    }
    None
}

fn arrows() -> BTreeMap<Module, BTreeSet<Module>> {
    let mut known = BTreeMap::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &Module::new(), &mut known);
    assert!(known.len() > 80, "the sources are read");
    let targets = |of: &Module, text: &String| paths(text).iter().filter_map(|path| target(path, of, &known)).collect();
    known.iter().map(|(module, text)| (module.clone(), targets(module, text))).collect()
}

#[test]
fn no_floor_imports_a_higher_one() {
    let floor = |module: &Module| FLOORS.iter().position(|name| *name == module[0]).expect("a floor of the list");
    let mut up = BTreeSet::new();
    for (module, targets) in arrows().iter().filter(|(module, _)| !module.is_empty()) {
        for target in targets.iter().filter(|target| floor(target) > floor(module)) {
            let arrow = (module[0].clone(), target[0].clone());
            let known = UPWARD.iter().any(|(from, to)| *from == arrow.0 && *to == arrow.1);
            assert!(known, "{} imports {}, which is above it", module.join("::"), target.join("::"));
            up.insert(arrow);
        }
    }
    assert_eq!(up.len(), UPWARD.len(), "an arrow of UPWARD is gone: {up:?}");
}

#[test]
fn no_circle_of_files_is_large() {
    let arrows = arrows();
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = next.pop() {
            next.extend(arrows[&module].iter().filter(|target| seen.insert((*target).clone())).cloned());
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> = arrows.keys().map(|module| (module, reached(module))).collect();
    for (module, seen) in &all {
        let circle: Vec<String> =
            seen.iter().filter(|other| all[other].contains(*module)).map(|m| m.join("::")).collect();
        assert!(circle.len() <= CIRCLE, "a circle of {}: {}", circle.len(), circle.join(" "));
    }
}

#[test]
fn the_map_names_these_floors() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let map = std::fs::read_to_string(map).expect("the map");
    let (_, list) = map.split_once("<!-- floors of apiserver, from the top -->\n```text\n").expect("the list");
    let (list, _) = list.split_once("```").expect("the end of the list");
    let mut named: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    named.reverse();
    assert_eq!(named, FLOORS);
}
