//! Verbs of `kubectl`, `crictl`, `podman`, `keadm` and the bridge that a node does not have, and what to type instead. Pure.

/// The daemon starts what the API wants, so a container that a command stops or removes would come back.
const PODS: &str = "pods follow the API and /etc/edge-runtime/manifests: end them with kubectl scale or kubectl \
    delete; edge-runtime restart POD restarts containers";

const ADVICE: &[(&[&str], &str)] = &[
    (&["stop", "kill", "rm", "delete", "stopp", "rmp", "drain"], PODS),
    (&["start", "create", "apply"], "kubectl apply, or a file in /etc/edge-runtime/manifests, starts a pod"),
    (&["get"], "edge-runtime ps lists pods"),
    (&["stats"], "edge-runtime top shows CPU and memory"),
    (&["info"], "edge-runtime status shows the node"),
    (&["rmi"], "edge-runtime images rm IMAGE removes an image"),
    (&["load"], "edge-runtime import FILE imports an image"),
    (&["save"], "edge-runtime images export IMAGE FILE writes an image"),
    (&["attach", "cp", "port-forward"], "use kubectl; on the node, edge-runtime exec POD -- COMMAND"),
    (
        &["enrol", "enroll", "register", "init"],
        "edge-runtime join makes this machine a node, with a token of the bridge",
    ),
    (&["leave", "uninstall"], "edge-runtime reset --all removes the node from this machine"),
    (&["unhold", "unhold-upgrade"], "edge-runtime release POD starts a held pod"),
    (&["hold"], "the annotation sampan.dev/hold holds the first start of a pod"),
    (&["cordon", "uncordon", "approve"], "kubectl has it: cordon NODE, uncordon NODE, certificate approve REQUEST"),
    (&["rollback"], "edge-runtime upgrade --back returns to the version before"),
    (&["edit"], "edge-runtime config set KEY VALUE, or edge-runtime devices set DEVICE PROPERTY=VALUE"),
    (&["check", "diagnose", "debug"], "edge-runtime doctor finds problems"),
    (
        &["token", "nodes", "kubeconfig", "authority", "backup", "restore", "serve", "standalone"],
        "cloud-bridge has it, on the machine of the bridge",
    ),
];

/// What to type instead of a verb of another tool.
pub(crate) fn advice(word: &str) -> Option<&'static str> {
    ADVICE.iter().find(|(words, _)| words.contains(&word)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs;

    #[test]
    fn advice_is_for_words_that_are_no_verbs() {
        for word in ADVICE.iter().flat_map(|(words, _)| words.iter()) {
            assert!(verbs::find(word).is_none(), "{word} is a verb");
        }
        assert_eq!(advice("dance"), None);
    }

    #[test]
    fn advice_names_verbs_that_exist() {
        for (_, text) in ADVICE {
            for behind in text.split("edge-runtime ").skip(1) {
                let verb = behind.split(' ').next().unwrap_or_default();
                assert!(verbs::find(verb).is_some(), "{verb:?} in {text}");
            }
        }
    }
}
