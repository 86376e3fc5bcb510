//! edge-runtime.yaml(5): the configuration file, made from the table of its keys and what an empty one has in force.

use std::fmt::Write;
use std::path::Path;

use edge_runtime::config::{Config, ConfigFile, Overrides};
use serde_yaml_ng::{Mapping, Value};

use super::keys::KEYS;
use super::{line, plain};

/// Effective values of an empty configuration, by path: a mapping with user-defined names stays one value.
///
/// # Errors
/// The defaults are not a valid configuration.
pub(super) fn defaults() -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
    let (file, typed) = (Path::new("/etc/edge-runtime/config.yaml"), ConfigFile::default());
    let overrides = Overrides { node_name: Some("node".to_owned()), joined: None };
    let config = Config::from_file(typed.clone(), file, Path::new("/"), &overrides)?;
    // Keys without a value stand in comments there.
    let text = config.to_yaml(&typed, "")?;
    let text = text.lines().map(|line| match line.split_once("# ") {
        Some((indent, rest)) if rest.ends_with(": not set") => {
            format!("{indent}{}:\n", rest.trim_end_matches(": not set"))
        }
        _ => format!("{line}\n"),
    });
    let all: Mapping = serde_yaml_ng::from_str(&text.collect::<String>())?;
    let mut out = Vec::new();
    flatten(&all, "", &mut out);
    Ok(out)
}

fn flatten(all: &Mapping, before: &str, out: &mut Vec<(String, String)>) {
    for (name, value) in all {
        let path = format!("{before}{}", name.as_str().unwrap_or_default());
        match value {
            Value::Mapping(inner) if !inner.is_empty() && path != "eviction.hard" => {
                flatten(inner, &format!("{path}."), out)
            }
            _ => out.push((path, flow(value))),
        }
    }
}

/// Formats a value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Sequence(all) => format!("[{}]", all.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Mapping(all) => {
            let pairs = all.iter().map(|(name, value)| format!("{}: {}", flow(name), flow(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => serde_yaml_ng::to_string(other).unwrap_or_default().trim_end().to_owned(),
    }
}

/// The manual page in the macros of man(7).
///
/// # Errors
/// Same as [`defaults`].
pub(super) fn page() -> Result<String, Box<dyn std::error::Error>> {
    let defaults = defaults()?;
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        ".TH EDGE-RUNTIME.YAML 5 \"\" \"Sampan {version}\" \"File Formats\"\n\
         .SH NAME\nedge-runtime.yaml \\- configuration of edge-runtime\n\
         .SH SYNOPSIS\n.I /etc/edge\\-runtime/config.yaml\n\
         .SH DESCRIPTION\n\
         A file in YAML. Every key is optional, and so is the file. The daemon leaves out a key that it does not know and\n\
         says so in its log; a value that is wrong keeps it from starting, with the name of the key.\n\
         .PP\n.B edge\\-runtime run \\-\\-print\\-config\nprints all of it with the values in force, as a file that can be saved in \
         its place;\n.B edge\\-runtime doctor\nsays what is wrong in it. A change is in force when the daemon is started again:\n\
         .BR \"systemctl restart edge\\-runtime\" .\nContainers go on.\n\
         .PP\nA dot in a name below stands for a mapping in the file:\n.B logs.max\\-files\nis\n.BR max\\-files\nwithin\n.BR logs .\n.SH KEYS\n"
    );
    for key in KEYS {
        let own = defaults.iter().find(|(name, _)| name == key.name).map(|(_, value)| value.as_str());
        let default = if key.default.is_empty() { own.unwrap_or_default() } else { key.default };
        let _ = writeln!(out, ".TP\n.BI \"{}: \" \"{}\"", plain(key.name), plain(key.kind));
        let _ = writeln!(out, "{}.", line(&sentence(key.about)));
        let _ = writeln!(out, "Default: {}.", plain(default));
    }
    out.push_str(
        ".SH EXAMPLE\n.EX\nlabels: {place: roof}\nmax\\-pods: 20\nlogs:\n  max\\-bytes: 1048576\npull:\n  window: 02:00\\-05:00\n.EE\n\
         .SH FILES\n.TP\n.I /etc/edge\\-runtime/config.yaml\nThe configuration of the node of this machine. With\n\
         .BI \\-\\-root\\~ DIR\nit lies below\n.IR DIR .\n\
         .SH \"SEE ALSO\"\n.BR edge\\-runtime (8)\n",
    );
    Ok(out)
}

pub(super) fn sentence(text: &str) -> String {
    let mut signs = text.chars();
    let first = signs.next().into_iter().flat_map(char::to_uppercase);
    first.chain(signs.as_str().chars()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names() -> BTreeSet<String> {
        KEYS.iter().map(|key| key.name.to_owned()).collect()
    }

    #[test]
    fn every_key_of_the_configuration_is_there_with_its_default() {
        let defaults = defaults().unwrap();
        let mut of_code: BTreeSet<String> = defaults.iter().map(|(name, _)| name.clone()).collect();
        // In the place of network.pod-cidrs.
        of_code.insert("network.subnet".to_owned());
        assert_eq!(names(), of_code);
        for key in KEYS {
            let own = defaults.iter().find(|(name, _)| name == key.name).map(|(_, value)| value.as_str());
            assert!(
                !key.default.is_empty() || own.is_some_and(|value| !value.is_empty()),
                "{} has no default",
                key.name
            );
        }
        let page = page().unwrap();
        assert!(
            page.contains(".BI \"max\\-pods: \" \"NUMBER\"\nMaximum number of pods on this node.\nDefault: 110.\n"),
            "{page}"
        );
        assert!(page.contains("Default: [10.85.0.0/24].\n"), "{page}");
    }

    /// docs/install.md has the same keys.
    #[test]
    fn the_document_has_the_same_keys() {
        let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/install.md")).unwrap();
        let table = document.split_once("\n## Configuration\n").unwrap().1.split_once("\n## ").unwrap().0;
        let mut told = BTreeSet::new();
        for row in table.lines().filter(|row| row.starts_with("| `")) {
            let cell = row.split(" | ").next().unwrap();
            told.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
        assert_eq!(told, names());
    }

    /// The page does not depend on the machine that makes it.
    #[test]
    fn no_default_is_the_makers_own() {
        for name in ["node-name", "runtime.parallel", "eviction.hard"] {
            let key = KEYS.iter().find(|key| key.name == name).unwrap();
            assert!(!key.default.is_empty(), "{name}");
        }
        assert!(!page().unwrap().contains("Default: node."));
    }
}
