//! Labels that a node may give itself: their form, and the rule of the API server's NodeRestriction admission. The
//! embedded API applies the rule. The bridge applies it before any API, because a cluster may lack it. The node applies
//! it to its configuration, so that a mistake is reported on the device. Pure.

/// K8s `kubelet_labels.go`, kubeletLabels.
const OF_THE_KUBELET: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Whether a kubelet may set, change or take away this label of its own node.
pub fn may_set(label: &str) -> bool {
    let Some((prefix, _)) = label.split_once('/') else { return true };
    let within = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    OF_THE_KUBELET.contains(&label)
        || within("kubelet.kubernetes.io")
        || within("node.kubernetes.io")
        || !(within("kubernetes.io") || within("k8s.io"))
}

/// Why a node cannot give itself this label; `None` if it can ([`form_problem`] and [`may_set`]).
#[must_use]
pub fn problem(key: &str, value: &str) -> Option<String> {
    form_problem(key, value).or_else(|| {
        (!may_set(key)).then(|| format!("a node may not give itself the label {key}: set it with kubectl label node"))
    })
}

/// Why no label or taint has this key and value; `None` if one can (K8s apimachinery/pkg/util/validation
/// `IsQualifiedName`, `IsValidLabelValue`).
#[must_use]
pub fn form_problem(key: &str, value: &str) -> Option<String> {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    if !is_name(name) || domain.is_some_and(|domain| !is_domain(domain)) {
        return Some(format!(
            "{key:?} is no key of a label or taint: [DOMAIN/]NAME, NAME of up to 63 letters, digits, -_."
        ));
    }
    let is_wrong = !value.is_empty() && !is_name(value);
    is_wrong.then(|| format!("{value:?} of {key} is no value of a label or taint: up to 63 letters, digits, -_."))
}

/// Whether both ends are letters or digits, and what is between them is plain.
fn is_name(text: &str) -> bool {
    let alphanumeric = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && alphanumeric(text.bytes().next())
        && alphanumeric(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// RFC 1123 subdomain.
fn is_domain(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let plain = |part: &str| {
        part.bytes().next().is_some_and(lower)
            && part.bytes().next_back().is_some_and(lower)
            && part.bytes().all(|b| lower(b) || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_kubernetes_are_not_the_nodes_to_set_but_for_some() {
        for label in [
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
            "node-role.kubernetes.io/master",
            "a.k8s.io/x",
            "kubernetes.io/x",
        ] {
            assert!(!may_set(label), "{label}");
        }
        for label in OF_THE_KUBELET {
            assert!(may_set(label), "{label}");
        }
        for label in ["node.kubernetes.io/x", "a.kubelet.kubernetes.io/x", "site", "example.com/site", "notk8s.io/x"] {
            assert!(may_set(label), "{label}");
        }
    }
    #[test]
    fn label_problems_name_the_label_and_the_rule() {
        for (key, value) in [("sampan.dev/site", "hall-3"), ("a", ""), ("topology.kubernetes.io/zone", "b_1.c")] {
            assert_eq!(problem(key, value), None, "{key}={value}");
        }
        let long = "a".repeat(64);
        for (key, value) in [
            ("site", "Halle 7"),
            ("site", &long),
            (&long, ""),
            ("", "b"),
            ("-a", "b"),
            ("a", "-"),
            ("A_/b", "c"),
            ("a..b/c", "d"),
            ("/a", "b"),
            ("a/b/c", "d"),
            ("a", "it's"),
            ("a", "b\nc: d"),
            ("node-role.kubernetes.io/worker", ""),
        ] {
            assert!(problem(key, value).is_some_and(|said| said.contains(key.trim_matches('/'))), "{key}={value}");
        }
    }
}
