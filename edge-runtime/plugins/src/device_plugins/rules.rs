//! Rules for registrations, with the texts of Kubernetes' `pkg/kubelet/cm/devicemanager`: `plugin/v1beta1/server.go` for a
//! plugin that registers itself, `plugin/v1beta1/handler.go` for one that is found by its socket.

use crate::messages::registration::{Register, VERSION};
use crate::names::{is_extended_resource, is_file_name};
use crate::serve::SOCKET;

/// Checks a `RegisterRequest`. `taken`: resources that the node has without a plugin, sorted.
///
/// # Errors
/// It is refused; the text goes to the plugin.
pub(crate) fn check(register: &Register, taken: &[String]) -> Result<(), String> {
    let Register { version, endpoint, resource, .. } = register;
    if version != VERSION {
        return Err(format!(
            "requested API version {version:?} is not supported by kubelet. Supported version is {:?}",
            [VERSION]
        ));
    }
    named(resource)?;
    free(resource, taken)?;
    if !is_file_name(endpoint) || endpoint == SOCKET {
        return Err(format!("the endpoint {endpoint:?} is not the name of a socket beside {SOCKET}"));
    }
    Ok(())
}

/// Checks a device plugin of `plugins_registry`: its name is the resource.
///
/// # Errors
/// It is refused; the text goes to the plugin.
pub(crate) fn check_found(resource: &str, versions: &[String], taken: &[String]) -> Result<(), String> {
    if !versions.iter().any(|version| version == VERSION) {
        return Err(format!(
            "manager version, {VERSION}, is not among plugin supported versions [{}]",
            versions.join(" ")
        ));
    }
    named(resource).map_err(|why| format!("invalid name of device plugin socket: {why}"))?;
    free(resource, taken)
}

fn named(resource: &str) -> Result<(), String> {
    match is_extended_resource(resource) {
        true => Ok(()),
        false => Err(format!("the ResourceName {resource:?} is invalid")),
    }
}

fn free(resource: &str, taken: &[String]) -> Result<(), String> {
    match taken.iter().any(|name| name == resource) {
        true => Err(format!("the resource {resource} is in devices of config.yaml already; use another name")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::registration::Options;

    fn refusal(version: &str, endpoint: &str, resource: &str) -> Option<String> {
        let [version, endpoint, resource] = [version, endpoint, resource].map(str::to_owned);
        let register = Register { version, endpoint, resource, options: Options::default() };
        check(&register, &["example.com/serial".to_owned()]).err()
    }

    #[test]
    fn wrong_registration_is_refused_with_the_kubelets_text() {
        assert_eq!(refusal("v1beta1", "gpu.sock", "example.com/gpu"), None);
        for (version, endpoint, resource, why) in [
            (
                "v1alpha",
                "gpu.sock",
                "example.com/gpu",
                "requested API version \"v1alpha\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
            ),
            ("v1beta1", "gpu.sock", "cpu", "the ResourceName \"cpu\" is invalid"),
            ("v1beta1", "gpu.sock", "", "the ResourceName \"\" is invalid"),
            (
                "v1beta1",
                "gpu.sock",
                "example.com/serial",
                "the resource example.com/serial is in devices of config.yaml already; use another name",
            ),
            ("v1beta1", "", "a.b/c", "the endpoint \"\" is not the name of a socket beside kubelet.sock"),
            ("v1beta1", "../x", "a.b/c", "the endpoint \"../x\" is not the name of a socket beside kubelet.sock"),
            (
                "v1beta1",
                "/run/x.sock",
                "a.b/c",
                "the endpoint \"/run/x.sock\" is not the name of a socket beside kubelet.sock",
            ),
            (
                "v1beta1",
                SOCKET,
                "a.b/c",
                "the endpoint \"kubelet.sock\" is not the name of a socket beside kubelet.sock",
            ),
        ] {
            assert_eq!(refusal(version, endpoint, resource).as_deref(), Some(why));
        }
    }

    #[test]
    fn plugin_that_is_found_has_a_version_and_a_name() {
        let check = |resource: &str, versions: &[&str]| {
            let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
            check_found(resource, &versions, &["a.b/taken".to_owned()]).err()
        };
        assert_eq!(check("a.b/c", &["v1alpha", "v1beta1"]), None);
        assert_eq!(
            check("a.b/c", &["v1", "v2"]).as_deref(),
            Some("manager version, v1beta1, is not among plugin supported versions [v1 v2]")
        );
        assert_eq!(
            check("c", &["v1beta1"]).as_deref(),
            Some("invalid name of device plugin socket: the ResourceName \"c\" is invalid")
        );
        assert!(check("a.b/taken", &["v1beta1"]).is_some_and(|why| why.contains("config.yaml")));
    }
}
