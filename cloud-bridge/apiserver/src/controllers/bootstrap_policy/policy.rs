//! The objects in `policy.txt`.

use sampan_json::SetField;
use serde_json::{Value, json};

use crate::auth::rbac::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP, ROLE_BINDINGS, ROLES};
use apimachinery::meta;

const TEXT: &str = include_str!("policy.txt");
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

/// Each default role and binding with its storage, roles first.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let mut objects: Vec<(&'static str, Value, Vec<Value>)> = Vec::new();
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        if let Some(rule) = line.strip_prefix("  ") {
            objects.last_mut().into_iter().for_each(|(_, _, rules)| rules.push(self::rule(rule)));
        } else if let Some((storage, object)) = object(line) {
            objects.push((storage, object, Vec::new()));
        }
    }
    let whole = |(storage, mut object, rules): (&'static str, Value, Vec<Value>)| {
        if !rules.is_empty() {
            object.set("rules", rules.into());
        }
        (storage, object)
    };
    objects.into_iter().map(whole).collect()
}

fn rule(line: &str) -> Value {
    let mut columns = line.split(' ').map(|column| column.split(',').collect::<Vec<_>>());
    let mut next = || columns.next().unwrap_or_default();
    let (verbs, groups, resources, names) = (next(), next(), next(), next());
    let verbs: Vec<&str> = verbs
        .iter()
        .flat_map(|verb| match *verb {
            "read" => READ,
            "write" => WRITE,
            _ => std::slice::from_ref(verb),
        })
        .copied()
        .collect();
    if groups == ["urls"] {
        return json!({ "verbs": verbs, "nonResourceURLs": resources });
    }
    let groups: Vec<&str> = groups.into_iter().map(|group| if group == "core" { "" } else { group }).collect();
    let mut rule = json!({ "verbs": verbs, "apiGroups": groups, "resources": resources });
    if !names.is_empty() {
        rule.set("resourceNames", json!(names));
    }
    rule
}

fn object(line: &str) -> Option<(&'static str, Value)> {
    let mut words = line.split(' ');
    let (kind, full) = (words.next()?, words.next()?);
    let (storage, role) = match kind {
        "ClusterRole" => (CLUSTER_ROLES, None),
        "Role" => (ROLES, None),
        "ClusterRoleBinding" => (CLUSTER_ROLE_BINDINGS, Some("ClusterRole")),
        "RoleBinding" => (ROLE_BINDINGS, Some("Role")),
        _ => return None,
    };
    let (namespace, name) = full.split_once('/').unwrap_or(("", full));
    let mut object = json!({ "metadata": {
        "name": name,
        "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
        "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "true" },
    } });
    if !namespace.is_empty() {
        meta::set(&mut object, "namespace", namespace.into());
    }
    if let Some(role) = role {
        object.set("roleRef", json!({ "apiGroup": GROUP, "kind": role, "name": name }));
    }
    for word in words {
        let label = |name: &str| format!("rbac.authorization.k8s.io/{name}");
        if let Some(own) = word.strip_prefix("is=") {
            object.set_at(&["metadata", "labels", &label(own)], "true".into());
        } else if let Some(gathered) = word.strip_prefix("of=") {
            let selector = json!({ "matchLabels": { label(gathered): "true" } });
            object.set("aggregationRule", json!({ "clusterRoleSelectors": [selector] }));
        } else if let Some(role) = word.strip_prefix("to=") {
            object.set_at(&["roleRef", "name"], role.into());
        } else {
            append(&mut object, subject(word)?);
        }
    }
    Some((storage, object))
}

fn append(binding: &mut Value, subject: Value) {
    match binding.get_mut("subjects").and_then(Value::as_array_mut) {
        Some(subjects) => subjects.push(subject),
        None => binding.set("subjects", json!([subject])),
    }
}

fn subject(word: &str) -> Option<Value> {
    let (kind, name) = word.split_once('/')?;
    if kind == "ServiceAccount" {
        let (namespace, name) = name.split_once('/')?;
        return Some(json!({ "kind": kind, "namespace": namespace, "name": name }));
    }
    Some(json!({ "kind": kind, "apiGroup": GROUP, "name": name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::object_meta;

    fn found(kind: &str, name: &str) -> Value {
        let mut all = objects().into_iter().filter(|(storage, _)| storage.starts_with(&format!("{kind}.")));
        all.find(|(_, object)| meta::text(object, "name") == name).expect(name).1
    }

    #[test]
    fn every_line_is_an_object_that_the_api_would_take() {
        let lines = TEXT.lines().filter(|line| !line.starts_with(['#', ' '])).count();
        let objects = objects();
        assert_eq!(objects.len(), lines);
        assert!(lines > 40, "{lines}");
        for (storage, object) in objects {
            let resource = crate::kinds::resources().into_iter().find(|resource| resource.storage == storage).unwrap();
            let mut errors = object_meta::validate_object_meta(&object, &resource);
            errors.extend(resource.strategy().validate_create(&object));
            assert_eq!(errors, [], "{object}");
            let mut defaulted = object.clone();
            resource.strategy().default(&mut defaulted);
            assert_eq!(defaulted, object, "the next start would write it again");
            let checked = resource.decode.unwrap()(&object).unwrap();
            assert_eq!(checked.unknown, [""; 0]);
            let mut kept = checked.value;
            kept.as_object_mut().unwrap().retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
            assert_eq!(kept, object);
        }
    }

    #[test]
    fn words_stand_for_what_kubernetes_has() {
        assert_eq!(
            found("clusterroles", "cluster-admin")["rules"],
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}])
        );
        let view = found("clusterroles", "view");
        assert_eq!(view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
        let of = &view["aggregationRule"]["clusterRoleSelectors"];
        assert_eq!(*of, json!([{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}]));
        let edit = found("clusterroles", "system:aggregate-to-edit");
        let leases = json!({"verbs": ["get", "list", "watch", "create", "delete", "deletecollection", "patch", "update"],
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]});
        assert!(edit["rules"].as_array().unwrap().contains(&leases), "{edit}");
        assert_eq!(found("clusterrolebindings", "system:node").get("subjects"), None);
        let dns = &found("clusterrolebindings", "system:kube-dns")["subjects"];
        assert_eq!(*dns, json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": "kube-dns"}]));
        let reader = found("rolebindings", "system::extension-apiserver-authentication-reader");
        assert_eq!(reader["metadata"]["namespace"], "kube-system");
        assert_eq!(reader["roleRef"]["name"], "extension-apiserver-authentication-reader");
    }
}
