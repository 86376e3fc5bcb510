//! Overlapping paths within one volume: the result depends on their order (K8s pkg/api/pod/warnings.go
//! `warningsForOverlappingVirtualPaths`).

use serde_json::Value;

use super::common::TOLD_MAX;
use crate::codec::parse::shown_path;
use apimachinery::json::{items, present, text};

/// A path, and where it comes from if the volume has several sources.
struct Place {
    path: String,
    source: String,
}

impl Place {
    fn shown(&self) -> String {
        let path = shown_path(&self.path);
        if self.source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({})", self.source) }
    }
}

pub(super) fn of(spec: &Value, told: &mut Vec<String>) {
    for volume in items(spec, "volumes") {
        let name = shown_path(text(volume, "name"));
        let mut tell = |what: &str, places: &[Place]| {
            told.extend(overlaps(places).into_iter().map(|(later, earlier)| {
                let (later, earlier) = (places[later].shown(), places[earlier].shown());
                format!("volume {name:?} ({what}): overlapping paths: {later} with {earlier}")
            }));
        };
        for (kind, title, named) in
            [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "DownwardAPI", "")]
        {
            if let Some(source) = present(volume, kind) {
                tell(&titled(title, text(source, named)), &keys(source, ""));
            }
        }
        let Some(projected) = present(volume, "projected") else { continue };
        let places: Vec<Place> = items(projected, "sources").iter().flat_map(projection).collect();
        tell("Projected", &places);
        let empty = |source: &&Value| source.as_object().is_none_or(serde_json::Map::is_empty);
        let without = items(projected, "sources").iter().filter(empty).take(TOLD_MAX);
        told.extend(without.map(|_| format!("volume {name:?} (Projected) has no sources provided")));
    }
}

fn titled(title: &str, name: &str) -> String {
    if title == "DownwardAPI" { title.to_owned() } else { format!("{title} {:?}", shown_path(name)) }
}

fn place(path: &str, source: &str) -> Place {
    Place { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
}

fn keys(source: &Value, title: &str) -> Vec<Place> {
    items(source, "items").iter().map(|item| place(text(item, "path"), title)).collect()
}

/// The paths of one source of a projected volume.
fn projection(source: &Value) -> Vec<Place> {
    let with = |kind: &str| present(source, kind);
    if let Some(map) = with("configMap").filter(|map| !items(map, "items").is_empty()) {
        return keys(map, &titled("ConfigMap", text(map, "name")));
    }
    if let Some(secret) = with("secret").filter(|secret| !items(secret, "items").is_empty()) {
        return keys(secret, &titled("Secret", text(secret, "name")));
    }
    if let Some(pod) = with("downwardAPI").filter(|pod| !items(pod, "items").is_empty()) {
        return keys(pod, "DownwardAPI");
    }
    if let Some(token) = with("serviceAccountToken") {
        return vec![place(text(token, "path"), "ServiceAccountToken")];
    }
    if let Some(bundle) = with("clusterTrustBundle") {
        let name = present(bundle, "name").map_or_else(|| text(bundle, "signerName"), |_| text(bundle, "name"));
        return vec![place(text(bundle, "path"), &titled("ClusterTrustBundle", name))];
    }
    let certificate = with("podCertificate").unwrap_or(&Value::Null);
    [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ]
    .iter()
    .map(|(field, title)| place(text(certificate, field), title))
    .filter(|place| !place.path.is_empty())
    .collect()
}

/// Pairs of overlapping places, the later one first. In sorted order a path is directly before all paths below it, so
/// that many paths cost only their sorting.
fn overlaps(places: &[Place]) -> Vec<(usize, usize)> {
    let mut sorted: Vec<(String, usize)> = (places.iter().enumerate())
        .filter(|(_, place)| !place.path.is_empty())
        .map(|(index, place)| (format!("{}/", place.path), index))
        .collect();
    sorted.sort_unstable();
    let mut above: Vec<&(String, usize)> = Vec::new();
    let mut found: Vec<(usize, usize)> = Vec::new();
    for current in &sorted {
        while above.pop_if(|(path, _)| !current.0.starts_with(path.as_str())).is_some() {}
        let room = TOLD_MAX.saturating_sub(found.len());
        found.extend(above.iter().take(room).map(|(_, other)| (current.1.max(*other), current.1.min(*other))));
        above.push(current);
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(volume: Value) -> Vec<String> {
        let mut told = Vec::new();
        of(&json!({ "volumes": [volume] }), &mut told);
        told
    }

    #[test]
    fn overlapping_keys_are_told() {
        let items = json!([{"key": "a", "path": "x/y"}, {"key": "b", "path": "x"}, {"key": "c", "path": "xy"}]);
        let map = json!({"name": "v", "configMap": {"name": "m", "items": items}});
        assert_eq!(told(map), [r#"volume "v" (ConfigMap "m"): overlapping paths: "x" with "x/y""#]);
        let secret = json!({"name": "v", "secret": {"secretName": "s", "items": [{"path": "x"}, {"path": "x/"}]}});
        assert_eq!(told(secret), [r#"volume "v" (Secret "s"): overlapping paths: "x" with "x""#]);
    }

    #[test]
    fn sources_of_a_projected_volume_overlap() {
        let sources = json!([{"serviceAccountToken": {"path": "token"}}, {}, {"configMap": {"name": "m"}},
            {"downwardAPI": {"items": [{"path": "token"}]}}]);
        assert_eq!(
            told(json!({"name": "v", "projected": {"sources": sources}})),
            [
                r#"volume "v" (Projected): overlapping paths: "token" (DownwardAPI) with "token" (ServiceAccountToken)"#,
                r#"volume "v" (Projected) has no sources provided"#
            ]
        );
    }

    #[test]
    fn many_paths_are_told_in_part() {
        let items: Vec<Value> = (0..4000).map(|n| json!({"path": format!("{}a", "a/".repeat(n % 100))})).collect();
        let volume = json!({"name": "v", "configMap": {"items": items}});
        assert_eq!(told(volume).len(), TOLD_MAX);
    }
}
