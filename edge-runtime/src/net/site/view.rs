//! What the bridge tells of the nodes of a site, this one among them. Shapes only.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

/// Kind of the object in which it comes; its name is that of the site.
pub const SITE_VIEW: &str = "SiteView";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SiteView {
    pub nodes: Vec<SiteNode>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SiteNode {
    pub name: String,
    /// Where its neighbours reach it.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs` of its Node: given by the cluster.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    /// Its label `topology.kubernetes.io/zone`, from any source.
    pub zone: Option<String>,
}

impl SiteView {
    /// Parses the object's body.
    ///
    /// # Errors
    /// A field has another type than here.
    pub fn read(body: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(body)
    }
}
