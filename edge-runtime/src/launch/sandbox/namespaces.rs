//! A pod's namespaces, and the name that it has in them.

use k8s_openapi::api::core::v1::Pod;

use super::Sandboxes;
use crate::launch::error::SandboxError;
use crate::launch::user_ns;
use crate::net::hostname;
use crate::net::namespaces::{self, NamespaceRequest, PodNamespaces};
use crate::pod::spec::{host_network, uid};
use crate::pod::sysctls;

impl Sandboxes {
    pub(super) fn pod_namespaces(&self, pod: &Pod, uid: &str) -> Result<PodNamespaces, SandboxError> {
        let name = hostname::pod_hostname(pod, &self.base.config.network.cluster_domain)?;
        let sysctls = sysctls::of_sandbox(pod);
        let first_id = if own_users(pod) {
            let ids = self.user_ids.clone().map_err(SandboxError::Other)?;
            Some(user_ns::first_id(&self.base.paths, uid, ids)?)
        } else {
            None
        };
        let request = NamespaceRequest { sysctls: &sysctls, first_id, ..self.namespace_request(pod, &name) };
        Ok(self.namespaces.create(&self.base.paths.namespaces(uid), &request)?)
    }

    /// Those of a pod that has been prepared, if they are still there.
    ///
    /// # Errors
    /// The pod can have no name in them.
    fn found_namespaces(&self, pod: &Pod) -> Result<Option<PodNamespaces>, SandboxError> {
        let name = hostname::pod_hostname(pod, &self.base.config.network.cluster_domain)?;
        Ok(namespaces::existing(&self.base.paths.namespaces(uid(pod)), &self.namespace_request(pod, &name)))
    }

    pub(super) fn existing_namespaces(&self, pod: &Pod) -> Result<PodNamespaces, SandboxError> {
        self.found_namespaces(pod)?.ok_or_else(|| SandboxError::Other("the pod's namespaces are gone".to_owned()))
    }

    /// Host name in the pod: its own name, or the node's on the node's network.
    pub(super) fn host_name(&self, pod: &Pod) -> Result<String, SandboxError> {
        if host_network(pod) {
            return Ok(self.host.hostname.clone());
        }
        Ok(hostname::pod_hostname(pod, &self.base.config.network.cluster_domain)?)
    }

    /// Whether the namespaces of a pod prepared before this start of the daemon are still there.
    pub fn exists(&self, pod: &Pod) -> bool {
        matches!(self.found_namespaces(pod), Ok(Some(_)))
    }

    /// Request for a pod that has been prepared.
    fn namespace_request<'a>(&self, pod: &Pod, name: &'a str) -> NamespaceRequest<'a> {
        let own_network = !host_network(pod);
        let host_ipc = pod.spec.as_ref().and_then(|spec| spec.host_ipc).unwrap_or(false);
        let hostname = own_network.then_some(name);
        let first_id = if own_users(pod) { user_ns::kept(&self.base.paths.pod(uid(pod))) } else { None };
        NamespaceRequest { net: own_network, ipc: !host_ipc, hostname, sysctls: &[], first_id }
    }
}

fn own_users(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_users) == Some(false)
}
