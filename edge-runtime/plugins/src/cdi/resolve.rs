//! Names of devices to changes of a container.

use std::path::Path;

use super::files::Files;
use super::spec::{ContainerEdits, Device, Spec};
use crate::edits::Source;
use crate::names::cdi_device;

/// Most reasons in one message.
const MAX_REASONS: usize = 3;

/// Changes of a specification come before those of its devices, and once.
pub(super) fn resolve(files: &Files, names: &[&str]) -> Result<Vec<Source>, String> {
    let (mut sources, mut used) = (Vec::new(), Vec::new());
    for name in names {
        let (kind, device) =
            cdi_device(name).ok_or_else(|| format!("the CDI device {name:?} is not VENDOR/CLASS=NAME"))?;
        let Found { path, spec, device } =
            find(files, kind, device).map_err(|why| format!("the CDI device {name}: {why}"))?;
        if !used.contains(&path) {
            used.push(path);
            sources.push(source(path, &spec.container_edits)?);
        }
        sources.push(source(path, &device.container_edits)?);
    }
    Ok(sources)
}

fn source(path: &Path, edits: &ContainerEdits) -> Result<Source, String> {
    let from = path.display().to_string();
    let edits = edits.edits().map_err(|why| format!("{from}: {why}"))?;
    Ok(Source { from, edits })
}

#[derive(Debug)]
struct Found<'a> {
    path: &'a Path,
    spec: &'a Spec,
    device: &'a Device,
}

/// The device in the last folder that has it.
fn find<'a>(files: &'a Files, kind: &str, name: &str) -> Result<Found<'a>, String> {
    let (mut found, mut conflict): (Option<(usize, Found<'a>)>, _) = (None, None);
    for (at, path, spec) in files.specs.iter().filter(|(_, _, spec)| spec.kind == kind) {
        for device in spec.devices.iter().filter(|device| device.name == name) {
            conflict = found
                .as_ref()
                .filter(|(before, _)| before == at)
                .map(|(_, other)| format!("both {} and {} define it", other.path.display(), path.display()));
            found = Some((*at, Found { path, spec, device }));
        }
    }
    if let Some(why) = conflict {
        return Err(why);
    }
    if let Some((_, found)) = found {
        return Ok(found);
    }
    let mut why = "no specification defines it".to_owned();
    for line in files.unusable.iter().take(MAX_REASONS) {
        why.push_str("; ");
        why.push_str(line);
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::edits::merge;

    fn files(all: &[(usize, &str, &str)]) -> Files {
        let spec = |(at, path, text): &(usize, &str, &str)| {
            (*at, PathBuf::from(path), Spec::read(text.as_bytes()).expect("a specification"))
        };
        Files { specs: all.iter().map(spec).collect(), unusable: vec!["/etc/cdi/x.yaml: YAML is not supported".into()] }
    }

    fn env(files: &Files, names: &[&str]) -> Result<String, String> {
        let edits = merge(resolve(files, names)?)?;
        Ok(edits.env.iter().map(|pair| format!("{}={}", pair.name, pair.value)).collect::<Vec<_>>().join(" "))
    }

    const FIRST: &str = r#"{"cdiVersion": "0.6.0", "kind": "v.com/c", "containerEdits": {"env": ["ALL=1", "LAST=spec"]},
        "devices": [{"name": "0", "containerEdits": {"env": ["D0=1", "LAST=0"]}},
                    {"name": "1", "containerEdits": {"env": ["D1=1", "LAST=1"]}}]}"#;
    const SECOND: &str = r#"{"cdiVersion": "0.6.0", "kind": "v.com/c",
        "devices": [{"name": "1", "containerEdits": {"env": ["D1=second"]}}]}"#;
    const HOOKS: &str = r#"{"cdiVersion": "0.6.0", "kind": "h.com/c", "containerEdits": {"hooks": [{"path": "/x"}]},
        "devices": [{"name": "0"}]}"#;

    #[test]
    fn edits_of_the_specification_come_first() {
        let files = files(&[(0, "/etc/cdi/a.json", FIRST)]);
        assert_eq!(env(&files, &["v.com/c=0"]).as_deref(), Ok("ALL=1 LAST=0 D0=1"));
        assert_eq!(env(&files, &["v.com/c=1", "v.com/c=0"]).as_deref(), Ok("ALL=1 LAST=0 D1=1 D0=1"));
    }

    #[test]
    fn later_folder_counts_and_a_conflict_is_an_error() {
        let both = files(&[(0, "/etc/cdi/a.json", FIRST), (1, "/var/run/cdi/b.json", SECOND)]);
        assert_eq!(env(&both, &["v.com/c=1"]).as_deref(), Ok("D1=second"));
        assert_eq!(env(&both, &["v.com/c=0"]).as_deref(), Ok("ALL=1 LAST=0 D0=1"));
        let conflict = files(&[(0, "/etc/cdi/a.json", FIRST), (0, "/etc/cdi/b.json", SECOND)]);
        let why = env(&conflict, &["v.com/c=1"]).expect_err("refused");
        assert_eq!(why, "the CDI device v.com/c=1: both /etc/cdi/a.json and /etc/cdi/b.json define it");
        assert!(env(&conflict, &["v.com/c=0"]).is_ok());
        let above = files(&[(0, "/a.json", FIRST), (0, "/b.json", SECOND), (1, "/c.json", SECOND)]);
        assert_eq!(env(&above, &["v.com/c=1"]).as_deref(), Ok("D1=second"));
    }

    #[test]
    fn device_that_cannot_be_used_is_named_with_the_file() {
        let files = files(&[(0, "/etc/cdi/a.json", FIRST), (0, "/etc/cdi/h.json", HOOKS)]);
        for (name, why) in [
            (
                "v.com/c=2",
                "the CDI device v.com/c=2: no specification defines it; /etc/cdi/x.yaml: YAML is not supported",
            ),
            ("x", "the CDI device \"x\" is not VENDOR/CLASS=NAME"),
            ("h.com/c=0", "/etc/cdi/h.json: containerEdits.hooks are not supported"),
        ] {
            assert_eq!(env(&files, &[name]), Err(why.to_owned()));
        }
    }
}
