//! The values that were read for one evaluation of an autoscaler.

use serde_json::Value;

use super::pods::Pod;
use apimachinery::json::{integer, text};

/// The scale of a target, with the way to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scale {
    pub(crate) url: String,
    pub(crate) object: Value,
}

impl Scale {
    /// How many replicas are wanted.
    pub(crate) fn replicas(&self) -> i32 {
        let wanted = integer(&self.object["spec"], "replicas").unwrap_or_default();
        i32::try_from(wanted).unwrap_or(i32::MAX)
    }

    pub(crate) fn selector(&self) -> &str {
        text(&self.object["status"], "selector")
    }
}

/// The values. An error is the reason why one could not be read.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) namespace: String,
    pub(crate) scale: Result<Scale, String>,
    /// Read only where metrics are to decide.
    pub(crate) pods: Result<Vec<Pod>, String>,
    pub(crate) metrics: Result<Vec<Value>, String>,
}

impl Seen {
    pub(crate) fn new(namespace: &str, scale: Result<Scale, String>) -> Self {
        Self { namespace: namespace.to_owned(), scale, pods: Ok(Vec::new()), metrics: Ok(Vec::new()) }
    }
}
