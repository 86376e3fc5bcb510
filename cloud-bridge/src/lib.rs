//! Speaks for many small nodes to a Kubernetes API: start here.
//!
//! | module | owns |
//! |---|---|
//! | [`accept`] | connections of strangers: how many, how long, how many from one address |
//! | [`bridge`] | watches of the API, sessions of the nodes, and what goes between |
//! | [`listen`] | the port that nodes know: joining, connecting |
//! | [`kubelet`] | the kubelet API of each node, for the API server's `kubectl logs`, `exec` and the like |
//! | [`csi`] | calls of controllers of CSI drivers on nodes, over HTTPS |
//! | `csi_proxy` | such a controller at a Unix socket, for sidecars in the cluster |
//! | [`rules`] | requests over HTTPS that rules lead to nodes |
//! | [`page`] | the page that shows people their nodes |
//! | [`page_link`] | login links for it |
//! | `https_port` | ports over HTTPS with certificates that are renewed: those of [`csi`], [`rules`] and [`page`], and that of other bridges |
//! | `https_client` | the client for such ports of `csi_proxy` and [`rules`] |
//! | [`pki`] | the certificate authority, certificates, join tokens |
//! | [`info`] | what the bridge tells about itself through the API |
//! | `standalone`, [`serve`] | wiring of the two ways to run |
//! | `api_endpoints` | where the Service of that API leads |
//! | `api_port` | the port of the embedded API (the crate `apiserver`), for use without a cluster |
//! | `certificates` | what was asked for in CertificateSigningRequests and approved |
//! | `invitation` | how a token reaches a device |
//! | `tokens` | the verbs of join tokens |
//! | `authority` | the verbs that replace the certificate authority |
//! | `doctor` | what is wrong with a bridge |
//! | `backup`, `state_folder` | backups of a standalone bridge, and the folder that they restore |
//! | `kubeconfig` | kubeconfigs of the embedded API |
//! | [`nodes`], `operator` | the nodes of running bridges, and the client that asks for them |
//! | `output` | tables, JSON and YAML of commands |
//! | `reach` | how a command finds the API of its bridge |
//! | [`limits`], [`memory`] | what the process asks of the kernel for itself, and gives back |
//! | [`notify`] | what its supervisor is told |
//! | [`steps`] | lengths of the steps of its thread, in builds that measure them |
//! | [`cli`] | verbs, flags, what is printed |

pub mod accept;
#[cfg(feature = "standalone")]
pub mod api_endpoints;
#[cfg(feature = "standalone")]
pub mod api_port;
mod authority;
#[cfg(feature = "standalone")]
mod backup;
pub mod bridge;
#[cfg(feature = "standalone")]
pub mod certificates;
pub mod cli;
pub mod csi;
mod csi_proxy;
mod doctor;
pub mod flags;
mod https_client;
mod https_port;
pub mod info;
mod invitation;
#[cfg(feature = "standalone")]
pub mod kubeconfig;
pub mod kubelet;
pub mod limits;
pub mod listen;
pub mod memory;
pub mod nodes;
pub mod notify;
mod operator;
mod output;
pub mod page;
pub mod page_link;
pub mod pki;
mod reach;
pub mod rules;
pub mod serve;
pub mod signal;
#[cfg(feature = "standalone")]
pub mod standalone;
#[cfg(feature = "standalone")]
mod state_folder;
pub mod steps;
mod tokens;
