//! Ports that containers of one pod have in common.

use std::collections::HashMap;

use serde_json::Value;

use super::common::{LISTS, TOLD_MAX};
use crate::codec::parse::shown_path;
use apimachinery::json::{integer, items, text};

/// Path, host port and host address.
type Told<'a> = (String, i64, &'a str);

pub(super) fn of(at: &str, spec: &Value, told: &mut Vec<String>) {
    let mut all: HashMap<(i64, &str), Vec<Told<'_>>> = HashMap::new();
    for (path, port) in ports(at, spec) {
        let (host, ip) = (integer(port, "hostPort").unwrap_or_default(), text(port, "hostIP"));
        let number = integer(port, "containerPort").unwrap_or_default();
        if !ip.is_empty() && host == 0 {
            told.push(format!(
                "{path}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{number} Protocol:{} HostIP:{}}}",
                shown_path(text(port, "name")),
                text(port, "protocol"),
                shown_path(ip)
            ));
        }
        let others = all.entry((number, text(port, "protocol"))).or_default();
        for (other, other_host, other_ip) in others.iter().take(TOLD_MAX) {
            let how = if (host, ip) == (*other_host, *other_ip) {
                "duplicate"
            } else if host == 0 || *other_host == 0 {
                "overlapping"
            } else if host == *other_host && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            told.push(format!("{path}: {how} port definition with {other}"));
        }
        others.push((path, host, ip));
    }
    let mut names: HashMap<&str, String> = HashMap::new();
    for (path, port) in ports(at, spec) {
        let name = text(port, "name");
        match names.get(name).filter(|_| !name.is_empty()) {
            Some(other) => told.push(format!(
                "{path}: duplicate port name {:?} with {other}, services and probes that select ports by name will use {other}",
                shown_path(name)
            )),
            None => drop(names.insert(name, path)),
        }
    }
}

/// The ports of all containers, with their paths.
fn ports<'a>(at: &'a str, spec: &'a Value) -> impl Iterator<Item = (String, &'a Value)> {
    LISTS.into_iter().flat_map(move |list| {
        items(spec, list).iter().enumerate().flat_map(move |(i, container)| {
            let ports = items(container, "ports").iter().enumerate();
            ports.map(move |(j, port)| (format!("{at}spec.{list}[{i}].ports[{j}]"), port))
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(first: Value, second: Value) -> Vec<String> {
        let mut told = Vec::new();
        of("", &json!({"containers": [{"ports": [first]}, {"ports": [second]}]}), &mut told);
        told
    }

    #[test]
    fn same_ports_are_told() {
        let port = |number: u16, name: &str| json!({"containerPort": number, "protocol": "TCP", "name": name});
        let place = "spec.containers[1].ports[0]";
        assert_eq!(
            told(port(80, ""), port(80, "")),
            [format!("{place}: duplicate port definition with spec.containers[0].ports[0]")]
        );
        let first = "spec.containers[0].ports[0]";
        let named = format!(
            "{place}: duplicate port name \"a\" with {first}, services and probes that select ports by name will use {first}"
        );
        assert_eq!(told(port(80, "a"), port(81, "a")), [named]);
        let bound = json!({"containerPort": 81, "protocol": "TCP", "hostIP": "1.2.3.4"});
        let lacks = "hostIP set without hostPort: {Name: HostPort:0 ContainerPort:81 Protocol:TCP HostIP:1.2.3.4}";
        assert_eq!(told(port(80, ""), bound), [format!("{place}: {lacks}")]);
    }
}
