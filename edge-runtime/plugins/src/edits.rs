//! The answer of a plugin as changes of a container: checks every field, and adds CDI devices.

use sampan_plugins_control::{DeviceNode, Edits, MAX_EDITS, Mount, Pair};

use crate::messages::allocated::Allocated;
use crate::names::{is_path, is_permissions};

/// Most bytes of the texts of a container's changes. In JSON a character takes up to six, and the line for the daemon has
/// the names of the devices as well.
const MAX_TEXTS: usize = 256 << 10;

/// Changes of a container, and where they come from, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The plugin, or a file with a CDI specification.
    pub(crate) from: String,
    pub(crate) edits: Edits,
}

/// What a plugin wants, without its CDI devices.
pub(crate) fn of_plugin(resource: &str, allocated: Allocated) -> Source {
    let Allocated { env, mounts, devices, annotations, .. } = allocated;
    Source { from: format!("the plugin of {resource}"), edits: Edits { env, mounts, devices, annotations } }
}

/// Joins changes in order. A variable, a path in the container or an annotation that comes twice has its last value.
///
/// # Errors
/// A field is wrong, or there are too many; the text names the source and the field.
pub(crate) fn merge(sources: Vec<Source>) -> Result<Edits, String> {
    let mut all = Edits::default();
    for Source { from, edits } in sources {
        check(&edits).map_err(|why| format!("{from}: {why}"))?;
        for pair in edits.env {
            place(&mut all.env, pair, |a, b| a.name == b.name);
        }
        for mount in edits.mounts {
            place(&mut all.mounts, mount, |a, b| a.container == b.container);
        }
        for device in edits.devices {
            place(&mut all.devices, device, |a, b| a.container == b.container);
        }
        for pair in edits.annotations {
            place(&mut all.annotations, pair, |a, b| a.name == b.name);
        }
        for (count, what) in [
            (all.env.len(), "environment variables"),
            (all.mounts.len(), "mounts"),
            (all.devices.len(), "device nodes"),
            (all.annotations.len(), "annotations"),
        ] {
            if count > MAX_EDITS {
                return Err(format!("{from}: there are more than {MAX_EDITS} {what} for the container"));
            }
        }
        let bytes = texts(&all);
        if bytes > MAX_TEXTS {
            return Err(format!(
                "{from}: the changes of the container have {bytes} bytes of text, and {MAX_TEXTS} are allowed"
            ));
        }
    }
    Ok(all)
}

/// Bytes of all texts. An option of a mount counts twice: a list has a quotation mark and a comma for each.
fn texts(edits: &Edits) -> usize {
    let pairs = edits.env.iter().chain(&edits.annotations).map(|pair| pair.name.len() + pair.value.len());
    let mounts = edits.mounts.iter().map(|mount| {
        let options: usize = mount.options.iter().map(|option| 2 * option.len()).sum();
        mount.container.len() + mount.host.len() + options
    });
    let devices = edits.devices.iter().map(|device| device.container.len() + device.host.len());
    pairs.chain(mounts).chain(devices).sum()
}

/// Replaces the same one, or adds it at the end.
fn place<T>(all: &mut Vec<T>, new: T, is_same: impl Fn(&T, &T) -> bool) {
    match all.iter_mut().find(|old| is_same(old, &new)) {
        Some(old) => *old = new,
        None => all.push(new),
    }
}

fn check(edits: &Edits) -> Result<(), String> {
    edits.env.iter().try_for_each(variable)?;
    edits.mounts.iter().try_for_each(mount)?;
    edits.devices.iter().try_for_each(device)?;
    edits.annotations.iter().try_for_each(annotation)
}

fn variable(Pair { name, value }: &Pair) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("the environment variable {name:?} has no valid name"));
    }
    if value.contains('\0') {
        return Err(format!("the environment variable {name} has a NUL byte in its value"));
    }
    Ok(())
}

fn annotation(Pair { name, value }: &Pair) -> Result<(), String> {
    if name.is_empty() || name.chars().chain(value.chars()).any(|character| character == '\0') {
        return Err(format!("the annotation {name:?} has no valid name or value"));
    }
    Ok(())
}

fn mount(mount: &Mount) -> Result<(), String> {
    path("mount: container_path", &mount.container)?;
    path("mount: host_path", &mount.host)
}

fn device(device: &DeviceNode) -> Result<(), String> {
    path("device: container_path", &device.container)?;
    path("device: host_path", &device.host)?;
    if !is_permissions(&device.permissions) {
        return Err(format!(
            "device {}: permissions {:?} are not some of r, w and m",
            device.container, device.permissions
        ));
    }
    Ok(())
}

fn path(field: &str, path: &str) -> Result<(), String> {
    if is_path(path) { Ok(()) } else { Err(format!("{field} {path:?} is not an absolute path without \"..\"")) }
}

#[cfg(test)]
pub(crate) mod tests {
    use sampan_plugins_control::{FromHelper, MAX_DEVICES, MAX_ID, MAX_LINE, Number};

    use super::*;

    fn pair(name: &str, value: &str) -> Pair {
        Pair { name: name.to_owned(), value: value.to_owned() }
    }

    fn bind(container: &str, host: &str) -> Mount {
        Mount { container: container.to_owned(), host: host.to_owned(), read_only: false, options: Vec::new() }
    }

    pub(crate) fn node(container: &str, host: &str, permissions: &str) -> DeviceNode {
        DeviceNode {
            container: container.to_owned(),
            host: host.to_owned(),
            permissions: permissions.to_owned(),
            number: None,
            mode: None,
            uid: None,
            gid: None,
        }
    }

    fn source(from: &str, edits: Edits) -> Source {
        Source { from: from.to_owned(), edits }
    }

    #[test]
    fn last_value_counts() {
        let first = Edits {
            env: vec![pair("A", "1"), pair("B", "1")],
            mounts: vec![bind("/m", "/1")],
            devices: vec![node("/dev/a", "/dev/1", "r")],
            annotations: vec![pair("k", "1")],
        };
        let second = Edits {
            env: vec![pair("B", "2"), pair("C", "2")],
            mounts: vec![bind("/m", "/2"), bind("/n", "/2")],
            devices: vec![node("/dev/a", "/dev/2", "rw")],
            annotations: vec![pair("k", "2")],
        };
        let merged = merge(vec![source("a", first), source("b", second)]).expect("right");
        assert_eq!(merged.env, [pair("A", "1"), pair("B", "2"), pair("C", "2")]);
        assert_eq!(merged.mounts, [bind("/m", "/2"), bind("/n", "/2")]);
        assert_eq!(merged.devices, [node("/dev/a", "/dev/2", "rw")]);
        assert_eq!(merged.annotations, [pair("k", "2")]);
        assert_eq!(merge(Vec::new()), Ok(Edits::default()));
    }

    #[test]
    fn wrong_field_is_named() {
        let none = Edits::default;
        let cases = [
            (Edits { env: vec![pair("A=B", "")], ..none() }, "environment variable \"A=B\""),
            (Edits { env: vec![pair("", "x")], ..none() }, "environment variable \"\""),
            (Edits { env: vec![pair("A", "a\0")], ..none() }, "variable A has a NUL"),
            (Edits { mounts: vec![bind("m", "/h")], ..none() }, "mount: container_path \"m\""),
            (Edits { mounts: vec![bind("/m", "/h/../etc")], ..none() }, "mount: host_path \"/h/../etc\""),
            (Edits { devices: vec![node("/dev/a", "", "r")], ..none() }, "device: host_path \"\""),
            (Edits { devices: vec![node("/dev/a", "/dev/a", "")], ..none() }, "device /dev/a: permissions \"\""),
            (Edits { annotations: vec![pair("", "x")], ..none() }, "annotation \"\""),
        ];
        for (edits, expected) in cases {
            let why = merge(vec![source("the plugin of r", edits)]).expect_err("refused");
            assert!(why.starts_with("the plugin of r: ") && why.contains(expected), "{why}");
        }
    }

    #[test]
    fn limit_counts_all_sources() {
        let some = |from: usize, to: usize| Edits {
            env: (from..to).map(|number| pair(&number.to_string(), "")).collect(),
            ..Edits::default()
        };
        let both = |to| merge(vec![source("a", some(0, 100)), source("b", some(100, to))]);
        assert_eq!(both(MAX_EDITS).map(|edits| edits.env.len()), Ok(MAX_EDITS));
        let why = both(MAX_EDITS + 1).expect_err("too many");
        assert_eq!(why, "b: there are more than 128 environment variables for the container");
    }

    #[test]
    fn longest_changes_fit_into_a_line() {
        let path = |number: usize| format!("/{number:03}");
        let mut all = Edits {
            // Six bytes each in JSON.
            env: vec![pair("A", &"\u{1}".repeat(MAX_TEXTS - 128 * 28 - 1))],
            mounts: (0..MAX_EDITS).map(|number| bind(&path(number), &path(number))).collect(),
            devices: (0..MAX_EDITS)
                .map(|number| DeviceNode {
                    number: Some(Number { block: false, major: u32::MAX, minor: u32::MAX }),
                    mode: Some(u32::MAX),
                    uid: Some(u32::MAX),
                    gid: Some(u32::MAX),
                    ..node(&path(number), &path(number), "rwm")
                })
                .collect(),
            annotations: Vec::new(),
        };
        for mount in &mut all.mounts {
            mount.options = vec!["nosuid".to_owned()];
        }
        let edits = merge(vec![source("a", all.clone())]).expect("as long as they may be");
        let ids = vec!["\"".repeat(MAX_ID); MAX_DEVICES];
        let edits = serde_json::to_value(edits).expect("JSON");
        let line = FromHelper::Allocated { id: u64::MAX, ids, pre_start: false, edits };
        assert!(serde_json::to_vec(&line).expect("JSON").len() < MAX_LINE);
        let one_more = Edits { env: vec![pair("B", "")], ..Edits::default() };
        assert_eq!(
            merge(vec![source("a", all), source("b.json", one_more)]).expect_err("too long"),
            "b.json: the changes of the container have 262145 bytes of text, and 262144 are allowed"
        );
    }
}
