//! Values of a container's cgroup, for comparison with its present spec.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::super::quantity;
use crate::clock::Mono;

/// Requests and limits as the spec spelled them, by resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

impl Resources {
    pub fn of(container: &Container) -> Self {
        let list = |list: Option<&BTreeMap<String, Quantity>>| {
            let mut all = BTreeMap::new();
            all.extend(list.into_iter().flatten().map(|(name, amount)| (name.clone(), amount.0.clone())));
            all
        };
        let resources = container.resources.as_ref();
        Self {
            requests: list(resources.and_then(|r| r.requests.as_ref())),
            limits: list(resources.and_then(|r| r.limits.as_ref())),
        }
    }

    /// The form in the status.
    pub fn to_api(&self) -> ResourceRequirements {
        let list = |list: &BTreeMap<String, String>| {
            let mut api = BTreeMap::new();
            api.extend(list.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))));
            (!api.is_empty()).then_some(api)
        };
        ResourceRequirements {
            requests: list(&self.requests),
            limits: list(&self.limits),
            ..ResourceRequirements::default()
        }
    }

    /// The amounts differ for `resource` (`cpu` or `memory`), however they are spelled.
    pub fn differs(&self, other: &Self, resource: &str) -> bool {
        let read = if resource == "cpu" { quantity::milli } else { quantity::value };
        let amount = |list: &BTreeMap<String, String>| list.get(resource).and_then(|text| read(text));
        amount(&self.requests) != amount(&other.requests) || amount(&self.limits) != amount(&other.limits)
    }
}

/// Where a resize of a running container stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum Resize {
    #[default]
    Idle,
    /// `Resize` was issued and has not answered. The previous message stays in the status: a status for each attempt
    /// would not help.
    UnderWay {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        #[serde(default)]
        failures: u32,
    },
    Failed {
        message: String,
        retry_at: Mono,
        #[serde(default)]
        failures: u32,
    },
}

impl Resize {
    pub fn is_idle(&self) -> bool {
        *self == Self::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_count_and_not_their_spelling() {
        let of = |cpu: &str| Resources { requests: [("cpu".into(), cpu.into())].into(), ..Resources::default() };
        assert!(!of("500m").differs(&of("0.5"), "cpu"));
        assert!(of("500m").differs(&of("501m"), "cpu"));
        assert!(!of("500m").differs(&of("501m"), "memory"));
        assert!(of("500m").differs(&Resources::default(), "cpu"));
    }
}
