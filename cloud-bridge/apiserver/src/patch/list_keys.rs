//! By which keys the items of a list are the same ones, for kinds that carry no schema of their own. Pure.

/// How the lists of built-in kinds merge, by the names of the fields that lead to them.
pub(crate) fn builtin(names: &[&str]) -> Option<Vec<String>> {
    let keys = |list: &[&str]| Some(list.iter().map(|k| (*k).to_owned()).collect());
    let parent = names.len().checked_sub(2).and_then(|i| names.get(i)).copied().unwrap_or_default();
    match *names.last()? {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims"
        | "secrets" => keys(&["name"]),
        "ports" if parent.ends_with("ontainers") => keys(&["containerPort", "protocol"]),
        "ports" if parent == "spec" => keys(&["port", "protocol"]),
        "volumeMounts" => keys(&["mountPath"]),
        "volumeDevices" => keys(&["devicePath"]),
        "conditions" => keys(&["type"]),
        "addresses" if parent == "status" => keys(&["type"]),
        "ownerReferences" => keys(&["uid"]),
        "hostAliases" | "podIPs" | "hostIPs" => keys(&["ip"]),
        "topologySpreadConstraints" => keys(&["topologyKey", "whenUnsatisfiable"]),
        "finalizers" => keys(&[]),
        _ => None,
    }
}
