//! The pulls and imports of this node that are in progress, the daemon's too: found by the arguments of their processes.

use std::fs;

use edge_runtime::paths::Paths;
use serde_json::{Value, json};

use super::look::Looker;
use super::show::{Seen, line};

/// Each with what it fetches.
pub(crate) fn all(paths: &Paths) -> Vec<(String, Seen)> {
    let root = paths.root().to_string_lossy();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.filter_map(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<&str> = std::str::from_utf8(&words).ok()?.split_terminator('\0').collect();
        let what = fetched(&words, &root)?;
        Some((what.to_owned(), Looker::of(pid, paths).look()?))
    });
    found.collect()
}

/// What a process with these arguments fetches for the node of this root.
fn fetched<'a>(words: &[&'a str], root: &str) -> Option<&'a str> {
    let (program, rest) = words.split_first()?;
    let is_node = program.ends_with("edge-runtime") || *program == "/proc/self/exe";
    let of_root = match rest.iter().position(|word| *word == "--root") {
        Some(at) => rest.get(at + 1).is_some_and(|given| given.trim_end_matches('/') == root.trim_end_matches('/')),
        None => root == "/",
    };
    (is_node && of_root && matches!(rest.first(), Some(&("pull" | "import")))).then(|| rest[rest.len() - 1])
}

/// Fields of `status -o json`.
pub(crate) fn values(pulls: &[(String, Seen)]) -> Value {
    let each = pulls.iter().map(|(what, seen)| {
        json!({"image": what, "layers": seen.layers.len(), "bytes": seen.bytes(), "totalBytes": seen.total()})
    });
    each.collect()
}

/// A line for each.
pub(crate) fn lines(pulls: &[(String, Seen)]) -> Vec<String> {
    pulls.iter().map(|(what, seen)| line(what, seen, None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_is_known_by_its_arguments() {
        let of = |line: &str, root: &str| fetched(&line.split(' ').collect::<Vec<_>>(), root).map(str::to_owned);
        for line in [
            "/proc/self/exe pull --root /srv/n --helper -- web:1",
            "/usr/bin/edge-runtime pull --root /srv/n/ web:1",
            "edge-runtime import --root /srv/n --quiet -- web:1",
        ] {
            assert_eq!(of(line, "/srv/n").as_deref(), Some("web:1"), "{line}");
            assert_eq!(of(line, "/"), None, "{line}");
        }
        assert_eq!(of("edge-runtime pull web:1", "/").as_deref(), Some("web:1"));
        for other in ["edge-runtime run", "vi pull web:1", "edge-runtime", "edge-admin progress -- web:1"] {
            assert_eq!(of(other, "/"), None, "{other}");
        }
    }

    #[test]
    fn pull_has_a_line_and_fields() {
        let pulls = [("web:1".to_owned(), Seen { layers: vec![(10, true), (30, false)], partial: 10 })];
        assert_eq!(lines(&pulls), ["web:1: layer 2 of 2, 50 %, 20 B of 40 B"]);
        assert_eq!(values(&pulls), json!([{"image": "web:1", "layers": 2, "bytes": 20, "totalBytes": 40}]));
    }
}
