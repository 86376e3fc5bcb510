//! The floors of the house, held against the sources: which folder stands on which, which files import each other in a
//! circle, and what the crates beside this one may depend on. ARCHITECTURE.md shows the same list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From the ground up: each folder imports from those before it alone. Below all of them are the crates `sampan-pod`,
/// `sampan-sys` and `sampan-monitor`.
const FLOORS: [&str; 17] = [
    "paths",
    "clock",
    "logs",
    "node_status",
    "monitor",
    "net",
    "probe",
    "link",
    "store",
    "image",
    "volume",
    "eviction",
    "intake",
    "config",
    "launch",
    "node",
    "cli",
];

/// Most files that import each other in a circle.
const CIRCLE: usize = 3;

/// Crates of ours and what may not be found among all that they depend on.
const WALLS: [(&str, &[&str]); 3] = [
    // Decisions: no I/O.
    ("sampan-pod", &["smol", "nix", "rusqlite", "rustls", "tokio", "async-io"]),
    // The process that must never grow: no store, no link, no TLS, no API types.
    (
        "sampan-monitor",
        &["rusqlite", "rustls", "async-tungstenite", "ureq", "edge-protocol", "k8s-openapi", "sampan-pod"],
    ),
    // Knows nothing of pods.
    ("sampan-sys", &["edge-protocol", "k8s-openapi", "sampan-pod", "rusqlite", "rustls"]),
];

/// What the product code of each file of a crate imports, by module path (`node::turn`; the root is empty).
fn imports(crate_folder: &str) -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_folder).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    let mut all = BTreeMap::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<&str> = relative.iter().filter_map(|part| part.to_str()).collect();
        let module =
            parts.into_iter().filter(|part| !matches!(*part, "mod" | "lib" | "main")).collect::<Vec<_>>().join("::");
        all.insert(module, used(&std::fs::read_to_string(&file).unwrap()));
    }
    all
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test = name.contains("test") || name == "random.rs";
        if path.is_dir() && name != "tests" {
            walk(&path, files);
        } else if name.ends_with(".rs") && !is_test {
            files.push(path);
        }
    }
}

/// Paths of the `use` items; what is only handed on (`pub use`) is not used by the file itself.
fn used(text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String =
        product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut all = Vec::new();
    for item in code.split(';') {
        let Some(at) =
            item.rfind("\nuse ").or_else(|| item.rfind("\n    use ")).or(item.starts_with("use ").then_some(0))
        else {
            continue;
        };
        let tree: String =
            item[at..].trim_start().trim_start_matches("use ").split_whitespace().collect::<Vec<_>>().join(" ");
        branches("", &tree, &mut all);
    }
    // Paths that are written out.
    for rest in code.split("crate::").skip(1) {
        let path: String = rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect();
        all.push(format!("crate::{}", path.trim_end_matches(':')));
    }
    all
}

fn branches(before: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    match tree.split_once('{') {
        Some((stem, rest)) if !stem.contains(',') => {
            let inside = rest.strip_suffix('}').unwrap_or(rest);
            let (mut depth, mut from) = (0, 0);
            for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        if !inside[from..at].trim().is_empty() {
                            branches(&format!("{before}{stem}"), &inside[from..at], out);
                        }
                        from = at + 1;
                    }
                    _ => {}
                }
            }
        }
        _ => out.push(format!("{before}{}", tree.split(" as ").next().unwrap_or_default().trim_end_matches("::self"))),
    }
}

/// Which files each file imports.
fn arrows(crate_folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let all = imports(crate_folder);
    let target = |module: &str, path: &str| {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut place: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
        match parts[0] {
            "crate" => place.clear(),
            "self" => {}
            "super" => {
                while parts.first() == Some(&"super") {
                    place.pop();
                    parts.remove(0);
                }
                parts.insert(0, "");
            }
            first if all.contains_key([module, first].join("::").trim_start_matches(':')) => parts.insert(0, ""),
            _ => return None,
        }
        place.extend(&parts[1..]);
        while !all.contains_key(&place.join("::")) {
            place.pop()?;
        }
        Some(place.join("::")).filter(|found| found != module)
    };
    let of = |(module, paths): (&String, &Vec<String>)| {
        (module.clone(), paths.iter().filter_map(|path| target(module, path)).collect())
    };
    all.iter().map(of).collect()
}

fn reached(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(one) = open.pop() {
        let next =
            arrows.get(&one).into_iter().flatten().filter(|next| !seen.contains(*next)).cloned().collect::<Vec<_>>();
        seen.extend(next.iter().cloned());
        open.extend(next);
    }
    seen
}

#[test]
fn no_folder_imports_upward() {
    let height = |room: &str| FLOORS.iter().position(|floor| *floor == room);
    let mut wrong = Vec::new();
    for (module, targets) in arrows(".") {
        let room = module.split("::").next().unwrap_or_default();
        if room.is_empty() {
            continue;
        }
        let Some(own) = height(room) else { panic!("{room} has no floor") };
        for target in targets {
            let other = target.split("::").next().unwrap_or_default();
            if !other.is_empty() && height(other).is_none_or(|other| other > own) {
                wrong.push(format!("{module} -> {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports of what stands above:\n{}", wrong.join("\n"));
}

#[test]
fn circles_of_files_are_small() {
    let mut wrong = Vec::new();
    for folder in [".", "pod", "sys", "monitor"] {
        let arrows = arrows(folder);
        let far: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|one| (one, reached(&arrows, one))).collect();
        for one in arrows.keys() {
            let circle: Vec<&String> = far[one].iter().filter(|other| far[other].contains(one)).collect();
            if circle.len() > CIRCLE && circle[0] == one {
                wrong.push(format!("{folder}: {circle:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "circles of more than {CIRCLE} files:\n{}", wrong.join("\n"));
}

#[test]
fn the_map_shows_the_same_floors() {
    let map = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md")).unwrap();
    let drawn = map.split("<!-- floors of edge-runtime, from the top -->").nth(1).unwrap_or_default();
    let drawn = drawn.split("```").nth(1).unwrap_or_default().lines().filter_map(|line| line.split_whitespace().next());
    let drawn: Vec<&str> = drawn.filter(|room| *room != "text").collect();
    let floors: Vec<&str> = FLOORS.into_iter().rev().collect();
    assert_eq!(drawn, floors, "the list in ARCHITECTURE.md");
}

#[test]
fn the_walls_of_the_crates_hold() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let quoted =
            |line: &str| line.split('"').nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned();
        let name = package.lines().find(|line| line.starts_with("name = ")).map(quoted).unwrap_or_default();
        let list = package.split("dependencies = [").nth(1).unwrap_or_default();
        needs.entry(name).or_default().extend(list.lines().filter(|line| line.starts_with(" \"")).map(quoted));
    }
    for (own, forbidden) in WALLS {
        let all = reached(&needs, own);
        assert!(all.contains("serde"), "{own} is in the lock file");
        let found: Vec<&&str> = forbidden.iter().filter(|one| all.contains(**one)).collect();
        assert!(found.is_empty(), "{own} depends on {found:?}");
    }
}
