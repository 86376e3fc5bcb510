//! The `local-api` section: whether pods reach the API at an address of this node, through the link.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::number::Number;
use crate::pod::local_api;

/// Range of `cache-bytes`, if there is a cache. The helper keeps answers up to 1 MiB.
const CACHE: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);

/// Where the helper for the API listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    /// There is no local API.
    #[default]
    None,
    /// At the addresses of this node that pods have as their gateway.
    Gateway,
}

/// The section, with its defaults.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LocalApiConfig {
    pub listen: Listen,
    /// Pods without the annotation use it, too, if they have a token.
    pub default: bool,
    /// Room for answers on the disk; 0: none are kept.
    pub cache_bytes: Number<u64, 8_388_608>,
}

impl LocalApiConfig {
    pub fn is_on(&self) -> bool {
        self.listen != Listen::None
    }

    pub fn is_used_by(&self, pod: &Pod) -> bool {
        self.is_on() && local_api::is_used(pod, self.default)
    }

    pub(super) fn checked(self) -> Result<Self, Wrong> {
        let cache = *self.cache_bytes;
        if cache != 0 && !CACHE.contains(&cache) {
            let why = format!("{cache} is neither 0 nor between {} and {}", CACHE.start(), CACHE.end());
            return Err(wrong("local-api.cache-bytes", why));
        }
        if self.default && !self.is_on() {
            return Err(wrong("local-api.default", "there is no local API: set local-api.listen: gateway, too"));
        }
        Ok(self)
    }
}
