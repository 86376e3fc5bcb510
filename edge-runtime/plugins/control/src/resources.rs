//! What pods have, for clients of podresources.

use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Asked {
    /// Resources of all pods that have been admitted and are not over.
    List {},
    /// CPUs of the node that may be given to containers exclusively.
    Allocatable {},
    /// Resources of one pod.
    Get { namespace: String, name: String },
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resources {
    /// To `List`, and to `Get` with one pod.
    Pods(Vec<PodResources>),
    /// To `Allocatable`. The helper adds the healthy devices.
    Cpus(Vec<i64>),
    /// There is no such pod, or there are no such resources; the reason goes to the client.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodResources {
    pub namespace: String,
    pub name: String,
    pub containers: Vec<ContainerResources>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerResources {
    pub name: String,
    pub devices: Vec<Assigned>,
    /// CPUs that the container has for itself.
    pub cpus: Vec<i64>,
}

/// Devices of one resource. The helper adds their NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    pub resource: String,
    pub ids: Vec<String>,
}
