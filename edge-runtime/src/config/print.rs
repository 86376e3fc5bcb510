//! The configuration in force as a file that can be saved as the configuration: what was typed, with defaults filled in
//! and named as such. Opens nothing.

use serde::ser::Error as _;
use serde_yaml_ng::{Error, Mapping, Value};

use super::{Config, ConfigFile};

impl Config {
    /// Prints the configuration. `typed` is its source, and `text` the file. A missing key gets the comment `#
    /// default`; a key without a value is in a comment.
    ///
    /// # Errors
    /// A value cannot be written as YAML.
    pub fn to_yaml(&self, typed: &ConfigFile, text: &str) -> Result<String, Error> {
        let known: Option<Value> = serde_yaml_ng::from_str(text).ok();
        let Value::Mapping(all) = serde_yaml_ng::to_value(self.filled(typed.clone()))? else {
            return Err(Error::custom("a configuration is a mapping"));
        };
        let mut out = String::new();
        write_mapping(&mut out, &all, known.as_ref().and_then(Value::as_mapping), 0)?;
        Ok(out)
    }

    fn filled(&self, typed: ConfigFile) -> ConfigFile {
        ConfigFile {
            node_name: Some(self.node_name.clone()),
            max_pods: Some(self.max_pods),
            cgroup_parent: Some(self.cgroup_parent.clone()),
            network: self.network.filled(typed.network),
            eviction: self.eviction.filled(typed.eviction),
            images: typed.images.filled(),
            runtime: typed.runtime.filled(),
            ..typed
        }
    }
}

fn write_mapping(out: &mut String, all: &Mapping, typed: Option<&Mapping>, depth: usize) -> Result<(), Error> {
    let indent = "  ".repeat(depth);
    for (name, value) in all {
        let given = typed.and_then(|typed| typed.get(name));
        let key = scalar(name)?;
        let note = if given.is_some() { "" } else { "  # default" };
        match value {
            Value::Null => out.push_str(&format!("{indent}# {key}: not set\n")),
            Value::Mapping(inner) if !inner.is_empty() => {
                out.push_str(&format!("{indent}{key}:\n"));
                write_mapping(out, inner, given.and_then(Value::as_mapping), depth + 1)?;
            }
            Value::Sequence(items) if !items.is_empty() => {
                out.push_str(&format!("{indent}{key}:{note}\n"));
                for line in serde_yaml_ng::to_string(value)?.lines() {
                    out.push_str(&format!("{indent}  {line}\n"));
                }
            }
            _ => out.push_str(&format!("{indent}{key}: {}{note}\n", scalar(value)?)),
        }
    }
    Ok(())
}

/// Formats a value on one line: JSON strings are valid YAML.
fn scalar(value: &Value) -> Result<String, Error> {
    let text = serde_yaml_ng::to_string(value)?.trim_end().to_owned();
    match value {
        Value::String(string) if text.contains('\n') => serde_json::to_string(string).map_err(Error::custom),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Overrides;
    use super::*;

    /// Returns the output for `text`, and the two configurations in debug format.
    fn printed(text: &str) -> (String, String, String) {
        let file = Path::new("/etc/edge-runtime/config.yaml");
        let read = |text: &str| {
            let typed = ConfigFile::parse(text, file).unwrap();
            let overrides = Overrides { node_name: Some("edge-1".into()), joined: None };
            (Config::from_file(typed.clone(), file, Path::new("/"), &overrides).unwrap(), typed)
        };
        let (config, typed) = read(text);
        let yaml = config.to_yaml(&typed, text).unwrap();
        let (again, _) = read(&yaml);
        (yaml, format!("{config:#?}"), format!("{again:#?}"))
    }

    #[test]
    fn printed_configuration_is_the_same() {
        for text in [
            "",
            "max-pods: 7\nnetwork: {subnet: 10.9.0.0/24, cluster-dns: [10.96.0.10]}\nlogs: {bytes-per-second: 0}\n",
            "network: {pod-cidrs: [10.9.0.0/24, 'fd00::/112']}\nlabels: {a/b: 'yes', c: '', d: '1'}\nreserved: {cpu-millis: 1}\n",
            "taints: ['a=b:NoSchedule']\neviction: {hard: {memory.available: 7Mi, imagefs.available: '0', pid.available: 0.5%}}\n",
            "devices: {a.b/c: [/dev/tty0], a.b/d: {paths: ['/dev/i2c-*'], share: 3}}\nruntimes: {crun: {command: crun}}\n",
            "registry: [{host: docker.io, mirrors: ['http://cache:5000'], plain-http: true}]\nimages: {pinned: [a]}\n",
            "pull: {window: '02:00-05:00', images: [a, b], auth-file: /x}\nshutdown: {pods: fail}\nresources: {swap: limited}\n",
            "device-twin: {mqtt: {broker: 'tcp://127.0.0.1:1883', username: a}, report: {per-second: 3}}\n",
            "metrics: {listen: '[::1]:10255'}\n",
            "local-api: {listen: gateway, default: true, cache-bytes: 0}\n",
            "plugins: {root: /srv/kubelet, device-plugins: true, pod-resources: true, csi: true, csi-controllers: {d.x: /srv/kubelet/a}, cdi-folders: []}\n",
            "resources: {cpu-manager: static}\nreserved: {cpus: 0-1}\n",
            "reserved: {cpus: 0, cpu-millis: 100}\n",
            "proxy: {url: 'http://proxy.lan:3128/', user-file: /x, except: [.lan, 10.0.0.0/8], for: [pull]}\n",
            "cgroup-driver: systemd\ncgroup-parent: /a.slice\nsecurity: {pod-pids-limit: 9, seccomp-default: true}\n",
        ] {
            let (yaml, before, after) = printed(text);
            // Sets in the order of what was typed: the order of thresholds means nothing.
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&before), sorted(&after), "{text}\n{yaml}");
        }
    }

    #[test]
    fn a_default_is_named_as_one() {
        let (yaml, ..) = printed("max-pods: 7\neviction: {hard: {memory.available: 7Mi}}\n");
        let line = |key: &str| yaml.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_default().trim();
        assert_eq!(line("max-pods"), "max-pods: 7");
        assert_eq!(line("memory.available"), "memory.available: 7Mi");
        assert_eq!(line("nodefs.available"), "nodefs.available: 10%  # default");
        assert_eq!(line("command"), "command: runc  # default");
        assert_eq!(line("labels"), "labels: {}  # default");
        assert_eq!(line("# window"), "# window: not set");
    }

    /// A key that is forgotten in [`Config::filled`] would be here, too.
    #[test]
    fn only_keys_without_a_default_are_unset() {
        let (yaml, ..) = printed("");
        let unset: Vec<&str> =
            yaml.lines().filter_map(|line| line.trim().strip_prefix("# ")?.strip_suffix(": not set")).collect();
        let keys = "cpus listen pod-pids-limit device-twin bytes-per-second window auth-file url user-file";
        assert_eq!(unset.join(" "), keys);
    }
}
