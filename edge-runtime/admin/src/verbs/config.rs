//! `edge-runtime config`: prints the configuration in force or a part of it, checks a file before a node runs with it, and changes
//! a key of the file.

mod set;

use std::path::PathBuf;

use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};
use edge_runtime::cli::{CliError, config_file, print};
use sampan_sys::files::named;
use serde_json::Value;

use super::print_config::in_force;
use crate::output::{Form, JSON, OUTPUT};
use crate::takes;

pub(super) const VERB: Verb = Verb {
    name: "config",
    about: "Print, check or change the configuration",
    operands: Operands::Words("get [KEY]|check [FILE]|set KEY VALUE"),
    flags: &[Flag::value("config", "FILE", "default etc/edge-runtime/config.yaml"), OUTPUT, JSON],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let form = Form::of(&given)?;
    let words: Vec<String> = given.operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let usual = config_file(&given)?;
    let (what, used): (_, &[&str]) = match words.as_slice() {
        ["check"] => ("config check", &["config"]),
        ["check", _] => ("config check FILE", &[]),
        ["set", ..] => ("config set", &["config"]),
        _ => ("config get", &["config", "output", "json"]),
    };
    takes::only(&given, VERB.flags, what, used)?;
    match words.as_slice() {
        ["get"] => {
            let yaml = in_force(&given, &usual)?;
            match form {
                // With its comments.
                Form::Table | Form::Wide | Form::Yaml => print(yaml.trim_end()),
                _ => show(form, &serde_yaml_ng::from_str(&yaml)?),
            }
        }
        ["get", key] => {
            let all: Value = serde_yaml_ng::from_str(&in_force(&given, &usual)?)?;
            let found = find(&all, key);
            show(form, found.ok_or_else(|| CliError::Failed(format!("the configuration has no key {key}")))?)
        }
        ["check"] => check(&given, usual),
        ["check", file] => check(&given, PathBuf::from(file)),
        ["set", key, value] => set::set(&given, &usual, key, value),
        _ => Err(CliError::Usage("config: get [KEY], check [FILE] or set KEY VALUE".to_owned())),
    }
}

/// Whether a node would run with all of it.
fn check(given: &Given, file: PathBuf) -> Result<(), CliError> {
    // A missing file is an empty configuration to the daemon, and a slip of the pen here.
    if !file.try_exists().map_err(named(&file))? {
        return Err(CliError::Failed(format!("{} does not exist", file.display())));
    }
    in_force(given, &file)?;
    print(&format!("{} is valid", file.display()))
}

/// The value behind `images.pinned`. Keys of labels have dots themselves: `labels.example.com/site`.
fn find<'a>(all: &'a Value, key: &str) -> Option<&'a Value> {
    let parts = || key.match_indices('.').find_map(|(dot, _)| find(all.get(&key[..dot])?, &key[dot + 1..]));
    all.get(key).or_else(parts)
}

/// A text or a number stands alone; all else is YAML, unless another form is asked for.
fn show(form: Form, value: &Value) -> Result<(), CliError> {
    match (form, value) {
        (Form::Table | Form::Wide, Value::String(text)) => print(text),
        (Form::Table | Form::Wide, _) => Form::Yaml.print(value, |_| String::new(), Vec::new),
        _ => form.print(value, |_| String::new(), || keys(value)),
    }
}

fn keys(value: &Value) -> Vec<String> {
    value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(words: &[&str]) -> Result<(), CliError> {
        run(VERB.parse(lexopt::Parser::from_args(words)).unwrap())
    }

    #[test]
    fn key_leads_to_its_value() {
        let all = json!({"images": {"pinned": ["a"]}, "max-pods": 7});
        assert_eq!(find(&all, "images.pinned"), Some(&json!(["a"])));
        assert_eq!(find(&all, "max-pods"), Some(&json!(7)));
        assert_eq!((find(&all, "images.pinned.a"), find(&all, "max-pods.x"), find(&all, "")), (None, None, None));
        assert_eq!(keys(&all), ["images", "max-pods"]);
        let labels = json!({"labels": {"example.com/site": "north", "a.b": "c"}});
        assert_eq!(find(&labels, "labels.example.com/site"), Some(&json!("north")));
        assert_eq!((find(&labels, "labels.a.b"), find(&labels, "labels.a")), (Some(&json!("c")), None));
    }

    #[test]
    fn wrong_file_is_refused_before_a_node_runs_with_it() {
        let root = tempfile::tempdir().unwrap();
        let (root, good, bad) = (root.path(), root.path().join("good.yaml"), root.path().join("bad.yaml"));
        std::fs::write(&good, "max-pods: 7\nnode-name: edge-1\n").unwrap();
        std::fs::write(&bad, "max-pots: 7\nnode-name: edge-1\n").unwrap();
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let (root, good, bad) = (text(root), text(&good), text(&bad));
        given(&["check", &good, "--root", &root]).unwrap();
        given(&["get", "max-pods", "--config", &good, "--root", &root]).unwrap();
        for wrong in
            [["check", &bad].as_slice(), &["check", "/nowhere/config.yaml"], &["get", "max-pots", "--config", &good]]
        {
            let words = [wrong, &["--root", &root]].concat();
            assert!(matches!(given(&words), Err(CliError::Failed(_))), "{words:?}");
        }
        assert!(matches!(given(&["set"]), Err(CliError::Usage(_))));
        let below = format!("{good}/x");
        let refused = given(&["check", &below, "--root", &root]);
        assert!(matches!(refused, Err(CliError::Failed(why)) if why.starts_with(&below)), "a file is no folder");
    }
}
