//! Which build a program is: version, commit and Kubernetes API level, as every program of Sampan prints them.

use std::ffi::OsString;

use crate::version::PROTOCOL;

/// Version of all programs, without a leading `v`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Kubernetes version whose API this build implements.
pub const KUBERNETES: &str = "v1.36.0";

/// The kubelet version of a node: the Kubernetes version, which API servers compare with their own (version skew policy), with
/// our own as its pre-release part.
pub const KUBELET: &str = concat!("v1.36.0-sampan-", env!("CARGO_PKG_VERSION"));

/// Commit of the source: 12 hexadecimal digits, with `-dirty` behind them if files differed from it. The scripts that make
/// packages set `SAMPAN_COMMIT`; a build without it knows no commit.
const COMMIT: Option<&str> = option_env!("SAMPAN_COMMIT");

/// One line for people: `edge-runtime 0.1.0 (commit 0123456789ab, Kubernetes v1.36.0, link protocol 1)`. The second word is the
/// version, which packages and upgrades read.
pub fn line(program: &str) -> String {
    line_of(program, COMMIT)
}

/// The same as JSON: `program`, `version`, `commit` (null if unknown), `kubernetes`, `linkProtocol`.
pub fn json(program: &str) -> String {
    json_of(program, COMMIT)
}

/// What `version` prints with these flags; `None` for flags that it does not take.
pub fn answer(program: &str, flags: &[OsString]) -> Option<String> {
    let flags: Vec<&str> = flags.iter().map(|flag| flag.to_str().unwrap_or_default()).collect();
    match flags.as_slice() {
        [] => Some(line(program)),
        ["-o" | "--output", "json"] | ["-ojson" | "-o=json" | "--output=json" | "--json"] => Some(json(program)),
        _ => None,
    }
}

fn line_of(program: &str, commit: Option<&str>) -> String {
    let commit = commit.unwrap_or("unknown");
    format!("{program} {VERSION} (commit {commit}, Kubernetes {KUBERNETES}, link protocol {PROTOCOL})")
}

/// JSON without a serializer: no part has a character that JSON escapes.
fn json_of(program: &str, commit: Option<&str>) -> String {
    let commit = commit.map_or_else(|| "null".to_owned(), |commit| format!("\"{commit}\""));
    format!(
        "{{\"program\":\"{program}\",\"version\":\"{VERSION}\",\"commit\":{commit},\"kubernetes\":\"{KUBERNETES}\",\
         \"linkProtocol\":{PROTOCOL}}}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn kubelet_version_is_made_of_both_versions() {
        assert_eq!(KUBELET, format!("{KUBERNETES}-sampan-{VERSION}"));
    }

    #[test]
    fn line_has_the_version_as_its_second_word() {
        let text = line_of("edge-runtime", Some("0123456789ab"));
        assert_eq!(text.split(' ').nth(1), Some(VERSION));
        assert!(text.contains("(commit 0123456789ab, Kubernetes v1.36.0, link protocol "), "{text}");
        assert!(line_of("edge-runtime", None).contains("(commit unknown, "));
    }

    #[test]
    fn json_says_the_same_and_null_without_a_commit() {
        let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let expected = json!({"program": "p", "version": VERSION, "commit": "0123456789ab-dirty", "kubernetes": "v1.36.0",
            "linkProtocol": PROTOCOL});
        assert_eq!(read(json_of("p", Some("0123456789ab-dirty"))), expected);
        assert_eq!(read(json_of("p", None))["commit"], Value::Null);
    }

    #[test]
    fn answer_takes_json_in_every_spelling_and_nothing_else() {
        let answer = |flags: &str| answer("p", &flags.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(answer(""), Some(line("p")));
        for flags in ["-o json", "-ojson", "-o=json", "--output json", "--output=json", "--json"] {
            assert_eq!(answer(flags), Some(json("p")), "{flags}");
        }
        for flags in ["-o yaml", "-o", "json", "-o json x"] {
            assert_eq!(answer(flags), None, "{flags}");
        }
    }
}
