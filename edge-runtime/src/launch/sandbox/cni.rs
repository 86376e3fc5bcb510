//! Whether CNI plugins connect a pod, and what they are asked for. Running them is [`crate::net::cni`]'s.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

use super::Sandboxes;
use crate::config::NetworkMode;
use crate::launch::error::SandboxError;
use crate::net::bandwidth;
use crate::net::cni::{Attachment, NetworkList, conf, stdin};
use crate::pod::ports::host_ports;
use crate::pod::spec::{name, namespace};

impl Sandboxes {
    /// The CNI network that new pods are attached to; `None` means the built-in bridge.
    ///
    /// # Errors
    /// Plugins are required but no configuration is usable: event reason and message of the kubelet.
    pub(super) fn cni_network(&self) -> Result<Option<NetworkList>, SandboxError> {
        self.configured_network().map_err(|why| SandboxError::NetworkNotReady(not_ready(&why)))
    }

    /// Why no pod with a network of its own can start, in the kubelet's words (K8s pkg/kubelet/runtime.go).
    pub fn network_error(&self) -> Option<String> {
        self.configured_network().err().map(|why| not_ready(&why))
    }

    fn configured_network(&self) -> Result<Option<NetworkList>, String> {
        let network = &self.base.config.network;
        let waits = network.has_routes() && network.subnets.is_empty();
        if waits {
            return Err(
                "spec.podCIDRs of the Node is not known yet, or cannot be used (network.routes: lan)".to_owned()
            );
        }
        if network.mode == NetworkMode::Builtin {
            return Ok(None);
        }
        let folder = network.cni_conf_dir.display();
        let (list, complaints) = conf::load(&network.cni_conf_dir).map_err(|error| format!("{folder}: {error}"))?;
        match (list, complaints.first()) {
            (Some(list), _) => Ok(Some(list)),
            (None, Some(complaint)) => Err(complaint.clone()),
            (None, None) if network.mode == NetworkMode::Auto => Ok(None),
            (None, None) => Err(format!("no .conf or .conflist in {folder}")),
        }
    }

    pub(super) fn attachment(
        &self,
        pod: &Pod,
        uid: &str,
        netns: &Path,
        network: &NetworkList,
    ) -> Result<Attachment, SandboxError> {
        let limits = bandwidth::of_pod(pod).map_err(SandboxError::Other)?;
        // Nodes that share a host share the plugins' state too.
        let container_id = format!("{}-{uid}", self.base.config.network.bridge);
        let (namespace, name) = (namespace(pod), name(pod));
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
             K8S_POD_INFRA_CONTAINER_ID={container_id};K8S_POD_UID={uid}"
        );
        let arguments = stdin::arguments(pod, limits, &self.base.config.network.subnets);
        Ok(Attachment { network: network.to_json(), container_id, netns: netns.into(), args, arguments, result: None })
    }

    /// What the pod asks for and no plugin of its network can do: reason and message of Warning events.
    pub fn incapable(&self, pod: &Pod, attachment: &Attachment) -> Vec<(&'static str, String)> {
        let Ok(network) = conf::parse(attachment.network.to_string().as_bytes()) else { return Vec::new() };
        let mut told = Vec::new();
        let mut lacks = |reason, capability: &str, what: &str| {
            if !network.wants(capability) {
                let name = &network.name;
                told.push((reason, format!("{what}: no plugin of CNI network {name} has capability {capability}")));
            }
        };
        if !host_ports(pod).is_empty() {
            lacks("HostPortUnreachable", "portMappings", "host ports are not forwarded");
        }
        if attachment.arguments.contains_key("bandwidth") {
            lacks("BandwidthNotLimited", "bandwidth", "bandwidth is not limited");
        }
        told
    }
}

fn not_ready(why: &str) -> String {
    format!(
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin \
         returns error: cni config uninitialized: {why}"
    )
}
