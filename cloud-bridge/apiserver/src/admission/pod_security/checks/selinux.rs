//! SELinux options (policy/check_seLinuxOptions.go).

use std::collections::BTreeSet;

use serde_json::Value;

use super::words::{Pod, Violation, containers, name, plural, quoted, setters};
use apimachinery::json::text;

const TYPES_V0: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const TYPES_V31: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

pub(super) fn v0(pod: Pod<'_>) -> Option<Violation> {
    options(pod, TYPES_V0)
}

pub(super) fn v31(pod: Pod<'_>) -> Option<Violation> {
    options(pod, TYPES_V31)
}

fn options(pod: Pod<'_>, types: &[&str]) -> Option<Violation> {
    let set = |object: &'_ Value, field: &str| !text(&object["securityContext"]["seLinuxOptions"], field).is_empty();
    let kind = |object: &Value| text(&object["securityContext"]["seLinuxOptions"], "type").to_owned();
    let wrong = |object: &Value| !types.contains(&kind(object).as_str()) || set(object, "user") || set(object, "role");
    let names: Vec<&str> = containers(pod).filter(|container| wrong(container)).map(name).collect();
    let setters = setters(wrong(&pod["spec"]), &names)?;
    let all = || containers(pod).chain([&pod["spec"]]);
    let kinds: BTreeSet<String> = all().map(kind).filter(|kind| !types.contains(&kind.as_str())).collect();
    let mut data = Vec::new();
    if !kinds.is_empty() {
        data.push(format!("{} {}", plural("type", kinds.len()), quoted(&kinds)));
    }
    for field in ["user", "role"] {
        if all().any(|object| set(object, field)) {
            data.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", data.join("; "));
    Violation::new("seLinuxOptions", detail)
}
