//! What rules (rules.kubeedge.io) carry over the link: messages of a node's broker, requests of programs on it, and calls at its
//! broker and at servers on it. Values only; a node passes them on as they are between its store or its helper and the link.

use super::base64_text;
use serde::{Deserialize, Serialize};

/// Bytes of a message's payload.
pub const MAX_PAYLOAD: usize = 64 << 10;

/// Bytes of the body of a request or of an answer.
pub const MAX_BODY: usize = 512 << 10;

/// A message of the broker, for one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleMessage {
    /// Uid of the rule.
    pub rule: String,
    /// Equal in each repetition of this message, and unique otherwise.
    pub key: String,
    /// Topic at the broker.
    pub topic: String,
    #[serde(with = "base64_text")]
    pub payload: Vec<u8>,
    /// When it came, by the node's clock: milliseconds since 1970.
    pub at_ms: u64,
}

/// A request of a program on a device, for one rule. Its result is a [`CallResult`], `Http` if the target has answered.
/// It is sent to the target at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleRequest {
    /// Uid of the rule.
    pub rule: String,
    /// Body from the program, at most [`MAX_BODY`].
    #[serde(with = "base64_text")]
    pub body: Vec<u8>,
}

/// A request of a rule to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Call {
    /// Publish at the broker, with QoS 1. Done when the broker has acknowledged it.
    Publish {
        /// Namespace of the rule; empty from a bridge that does not send it.
        #[serde(default)]
        namespace: String,
        topic: String,
        #[serde(with = "base64_text")]
        payload: Vec<u8>,
    },
    /// A request to a server on the device, at its loopback address.
    Http {
        /// Namespace of the rule; empty from a bridge that does not send it.
        #[serde(default)]
        namespace: String,
        port: u16,
        method: String,
        /// Path with the query.
        path: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        headers: Vec<(String, String)>,
        #[serde(with = "base64_text")]
        body: Vec<u8>,
    },
}

/// Result of a [`Call`] or a [`RuleRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CallResult {
    Published {},
    Http {
        status: u16,
        headers: Vec<(String, String)>,
        #[serde(with = "base64_text")]
        body: Vec<u8>,
    },
    Failed {
        failure: CallFailure,
        /// Text for users.
        why: String,
    },
}

/// Why a [`Call`] or a [`RuleRequest`] failed. A reason this build does not know reads as `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallFailure {
    /// Nothing was done: no link, no helper, no broker, too much is under way.
    Unavailable,
    /// Nothing was done: no program accepts connections at the port.
    Unreachable,
    /// Perhaps it was done.
    Broken,
    /// Perhaps it was done; there was no answer in time.
    Timeout,
    /// The target does not support this.
    Refused,
    /// Nothing was done: the node's configuration does not allow it.
    Forbidden,
    #[serde(other)]
    Unknown,
}
