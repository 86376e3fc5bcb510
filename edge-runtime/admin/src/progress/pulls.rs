//! The pulls and imports of this node that are in progress, the daemon's too: found by the arguments of their processes.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use edge_runtime::cli::verb::Shown;
use edge_runtime::cli::{SHOWN, parse};
use edge_runtime::image::Reference;
use edge_runtime::paths::Paths;
use sampan_pod::record::{ContainerRecord, ContainerState};
use sampan_sys::words::verb_first;
use serde_json::{Value, json};

use super::look::Looker;
use super::show::{self, Seen};

/// Each with what it fetches.
pub(crate) fn all(paths: &Paths) -> Vec<(String, Seen)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.filter_map(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<&str> = std::str::from_utf8(&words).ok()?.split_terminator('\0').collect();
        Some((fetched(&words, paths.root())?, Looker::of(pid, paths).look()?))
    });
    found.collect()
}

/// What a process with these arguments fetches for the node of this root.
fn fetched(words: &[&str], root: &Path) -> Option<String> {
    let (program, words) = words.split_first()?;
    let words = verb_first(words.iter().map(OsString::from).collect());
    let (name, words) = words.split_first()?;
    let is_node = program.ends_with("edge-runtime") || *program == "/proc/self/exe";
    let is_it = |verb: &Shown| is_node && matches!(verb.name, "pull" | "import") && name == verb.name;
    let given = parse(SHOWN.into_iter().find(is_it)?, words).ok()?;
    (given.paths().ok()?.root() == root).then(|| given.operand().ok())?
}

/// Whether this container waits for a pull of `what`, as the daemon names it.
pub(crate) fn is_for(container: &ContainerRecord, what: &str) -> bool {
    let image = match &container.state {
        ContainerState::Pulling { volume: Some(volume), .. } => &volume.reference,
        ContainerState::Pulling { volume: None, .. } => &container.image,
        _ => return false,
    };
    Reference::parse(image).is_ok_and(|name| name.to_string() == what)
}

/// Fields of `status -o json`.
pub(crate) fn values(pulls: &[(String, Seen)]) -> Value {
    let each = pulls.iter().map(|(what, seen)| {
        json!({"image": what, "layers": seen.layers.len(), "bytes": seen.bytes(), "totalBytes": seen.total()})
    });
    each.collect()
}

/// What is fetched, and how far it is.
pub(crate) fn line((what, seen): &(String, Seen)) -> String {
    show::line(what, seen, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_is_known_by_its_arguments() {
        let of = |line: &str, root: &str| fetched(&line.split(' ').collect::<Vec<_>>(), Path::new(root));
        for line in [
            "/proc/self/exe pull --root /srv/n --helper --check -- web:1",
            "/usr/bin/edge-runtime pull --root /srv/n/ web:1",
            "edge-runtime import --quiet web:1 --root=/srv/n",
            "edge-runtime --root /srv/n pull web:1 --auth /root/config.json",
        ] {
            assert_eq!(of(line, "/srv/n").as_deref(), Some("web:1"), "{line}");
            assert_eq!(of(line, "/"), None, "{line}");
        }
        assert_eq!(of("edge-runtime pull web:1 --quiet", "/").as_deref(), Some("web:1"));
        for other in
            ["edge-runtime run", "vi pull web:1", "edge-runtime", "edge-runtime pull", "edge-admin progress -- web:1"]
        {
            assert_eq!(of(other, "/"), None, "{other}");
        }
    }

    #[test]
    fn pull_has_a_line_and_fields() {
        let pulls = [("web:1".to_owned(), Seen { layers: vec![(10, true), (30, false)], partial: 10 })];
        assert_eq!(line(&pulls[0]), "web:1: layer 2 of 2, 50 %, 20 B of 40 B");
        assert_eq!(values(&pulls), json!([{"image": "web:1", "layers": 2, "bytes": 20, "totalBytes": 40}]));
    }
}
