//! Discovery documents: the groups, versions and resources of this server, in the classic form (`/api`, `/apis`,
//! `/apis/GROUP/VERSION`) and in the aggregated form that current clients ask for first. Pure: turns the list of
//! resources into JSON; routing and caching headers belong to `http`.

use sampan_json::SetField;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::resource::Resource;

/// The Kubernetes version whose behaviour is served.
pub const VERSION: &str = edge_protocol::build::KUBERNETES;

/// The content type of an aggregated answer; also what a client's `Accept` names.
pub const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// True when the `Accept` header prefers or allows the aggregated form before the plain one.
pub fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let json = parts.next() == Some("application/json");
        let parts: Vec<_> = parts.collect();
        json && ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"].iter().all(|p| parts.contains(p))
    })
}

/// `/api`: the versions of the core group. `address` is `HOST:PORT` as clients reach this server.
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`: every named group with its versions.
pub fn groups(resources: &[Arc<Resource>]) -> Value {
    let groups: Vec<Value> = group_names(resources).iter().map(|name| group_entry(resources, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`; `None` when no resource belongs to it.
pub fn group(resources: &[Arc<Resource>], name: &str) -> Option<Value> {
    if name.is_empty() || !resources.iter().any(|r| r.group == name) {
        return None;
    }
    let mut entry = group_entry(resources, name);
    entry.set("kind", "APIGroup".into());
    entry.set("apiVersion", "v1".into());
    Some(entry)
}

/// `/api/v1` (empty group) and `/apis/GROUP/VERSION`; `None` if the version does not exist.
pub fn resource_list(resources: &[Arc<Resource>], group: &str, version: &str) -> Option<Value> {
    let mut rows = Vec::new();
    for resource in sorted(resources, group, version) {
        rows.push(resource_row(resource));
        for sub in &resource.subresources {
            let mut row = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if (&sub.group, &sub.version) != (&resource.group, &resource.version) && !sub.group.is_empty() {
                row.set("group", json!(sub.group));
                row.set("version", json!(sub.version));
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    rows.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": rows});
    if !group.is_empty() {
        list.set("apiVersion", "v1".into());
    }
    Some(list)
}

/// The aggregated form of `/api` (`core` true: the core group only) or `/apis` (the named groups).
pub fn aggregated(resources: &[Arc<Resource>], core: bool) -> Value {
    let names = if core { vec![String::new()] } else { group_names(resources) };
    let items: Vec<Value> = names
        .iter()
        .map(|name| {
            let versions: Vec<Value> = versions(resources, name)
                .iter()
                .map(|version| {
                    let rows: Vec<Value> =
                        sorted(resources, name, version).into_iter().map(aggregated_resource).collect();
                    json!({"version": version, "resources": rows, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// The name that Go has for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `/version`.
pub fn version() -> Value {
    let mut numbers = VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    // As Kubernetes without `--emulated-version`: it can run beside the version before it.
    let before = minor.parse::<u32>().unwrap_or_default().saturating_sub(1).to_string();
    json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": before, "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "",
        "platform": format!("linux/{}", architecture()),
    })
}

/// `/`: the paths served.
pub fn paths(resources: &[Arc<Resource>]) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/.well-known/openid-configuration",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openid/v1/jwks",
        "/openapi/v3",
        "/openapi/v3/",
        "/readyz",
        "/version",
    ]
    .iter()
    .map(|p| (*p).to_owned())
    .collect();
    for name in group_names(resources) {
        paths.extend(versions(resources, &name).iter().map(|v| format!("/apis/{name}/{v}")));
        paths.push(format!("/apis/{name}"));
    }
    paths.sort();
    json!({"paths": paths})
}

/// Named groups in the order of the table, so that built-in groups come before custom ones.
pub fn group_names(resources: &[Arc<Resource>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for resource in resources.iter().filter(|r| !r.group.is_empty()) {
        if !names.iter().any(|n| *n == resource.group) {
            names.push(resource.group.to_string());
        }
    }
    names
}

/// The versions of a group, the preferred one first (Kubernetes' version priority: v2 > v1 > v1beta2 > v1alpha1
/// > anything else by name).
pub fn versions(resources: &[Arc<Resource>], group: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for resource in resources.iter().filter(|r| r.group == group) {
        if !versions.iter().any(|v| *v == resource.version) {
            versions.push(resource.version.to_string());
        }
    }
    versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
    versions
}

/// Stability (general 3, beta 2, alpha 1, unknown 0), then major, then minor number.
fn version_rank(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest.get(..digits)?.parse().ok()?;
        let tail = rest.get(digits..)?;
        let (rank, minor) = if tail.is_empty() {
            (3, "0")
        } else if let Some(minor) = tail.strip_prefix("beta") {
            (2, minor)
        } else {
            (1, tail.strip_prefix("alpha")?)
        };
        Some((rank, major, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

fn sorted<'a>(resources: &'a [Arc<Resource>], group: &str, version: &str) -> Vec<&'a Resource> {
    let mut found: Vec<&Resource> =
        resources.iter().filter(|r| r.group == group && r.version == version).map(AsRef::as_ref).collect();
    found.sort_by(|a, b| a.plural.cmp(&b.plural));
    found
}

fn group_entry(resources: &[Arc<Resource>], name: &str) -> Value {
    let versions: Vec<Value> = versions(resources, name)
        .iter()
        .map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

fn names_of(resource: &Resource, into: &mut Map<String, Value>) {
    if !resource.short_names.is_empty() {
        into.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        into.insert("categories".into(), json!(resource.categories));
    }
}

fn resource_row(resource: &Resource) -> Value {
    let mut row = Map::new();
    row.insert("name".into(), json!(resource.plural));
    row.insert("singularName".into(), json!(resource.singular));
    row.insert("namespaced".into(), json!(resource.namespaced));
    row.insert("kind".into(), json!(resource.kind));
    row.insert("verbs".into(), json!(resource.verbs));
    names_of(resource, &mut row);
    Value::Object(row)
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut row = Map::new();
    row.insert("resource".into(), json!(resource.plural));
    row.insert("responseKind".into(), kind(&resource.group, &resource.version, &resource.kind));
    row.insert("scope".into(), json!(if resource.namespaced { "Namespaced" } else { "Cluster" }));
    row.insert("singularResource".into(), json!(resource.singular));
    row.insert("verbs".into(), json!(resource.verbs));
    names_of(resource, &mut row);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|s| json!({"subresource": s.name, "responseKind": kind(&s.group, &s.version, &s.kind), "verbs": s.verbs}))
        .collect();
    if !subresources.is_empty() {
        row.insert("subresources".into(), Value::Array(subresources));
    }
    Value::Object(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn versions_are_ordered_by_stability() {
        let mut all = vec!["v1alpha1", "v10", "v1beta2", "foo", "v2", "v1beta10"];
        all.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        assert_eq!(all, ["v10", "v2", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn lists_name_kinds_and_subresources() {
        let all = kinds::resources();
        let core = resource_list(&all, "", "v1").expect("the core group");
        let names: Vec<&str> =
            core["resources"].as_array().expect("rows").iter().filter_map(|r| r["name"].as_str()).collect();
        assert!(names.contains(&"pods/status") && names.contains(&"pods/binding"), "{names:?}");
        assert_eq!(core.get("apiVersion"), None);
        let eviction = core["resources"].as_array().and_then(|r| r.iter().find(|r| r["name"] == "pods/eviction"));
        assert_eq!(eviction.map(|e| e["group"].clone()), Some("policy".into()));
        assert!(resource_list(&all, "example.io", "v1").is_none());
        assert!(group(&all, "coordination.k8s.io").is_some());
        let aggregated = aggregated(&all, true);
        assert_eq!(aggregated["items"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn accept_header_chooses_the_form() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert!(wants_aggregated(kubectl));
        assert!(!wants_aggregated("application/json, */*"));
    }
}
