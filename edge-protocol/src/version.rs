//! First messages of a connection: identity, protocol version, and the edge's last position.
//!
//! Owns the hello, the welcome and the skew rules. Knows nothing of objects, sockets or clocks.

use serde::{Deserialize, Serialize};

/// Newest protocol version this build speaks. A peer offers a range; the highest common one is used.
pub const PROTOCOL: u32 = 1;

/// Versions this build speaks.
pub const SUPPORTED: ProtocolRange = ProtocolRange { min: 1, max: PROTOCOL };

/// Optional abilities of this build, by name. Both sides use what both name.
pub const FEATURES: &[&str] = &["logs", TOKENS, RENEW, ORDERS];

/// The bridge answers `TokenRequest`.
pub const TOKENS: &str = "tokens";

/// The bridge answers `Renew`, and says in its welcome how old the node's certificate is.
pub const RENEW: &str = "renew";

/// Fleet jobs: objects of kind [`Order`](crate::message::Order), answered by reports.
pub const ORDERS: &str = "orders1";

/// Frames may be compressed ([`compress`](crate::compress)). Not in [`FEATURES`]: only a caller that can inflate
/// announces it, by [`EdgeFacts::compress`](crate::edge::EdgeFacts) and
/// [`BridgeSettings::compress`](crate::bridge::BridgeSettings).
pub const COMPRESS: &str = "deflate1";

/// Bytes of streams may come in frames of their own ([`wire`](crate::wire)), not as text. Goes with [`COMPRESS`].
pub const RAW_STREAMS: &str = "streams1";

/// The edge requests Services: objects of kind `ServiceView` and `EndpointView`. Not in [`FEATURES`]: a node whose
/// Services are off does not announce it.
pub const SERVICES: &str = "services1";

/// The edge has routes to the pods of nodes on its LAN, and requests these nodes: objects of kind `SiteView`, and
/// endpoints of their pods. Not in [`FEATURES`]: a node announces it when it is configured.
pub const ROUTES: &str = "routes1";

/// The edge requests NetworkPolicies: objects of kind `PolicyView` and `PolicyPeers`. Separate from [`SERVICES`]: a
/// node that knows only that would treat each of them as an object that pods name, and check all of its pods; and
/// Services can be off where policies are on. A bridge without it sends no policies, which the node reports.
pub const POLICIES: &str = "policies1";

/// The bridge understands [`Hello::interests`] and `Interests`. Announced together with [`SERVICES`].
pub const INTERESTS: &str = "interests1";

/// The edge has devices: it requests objects of kind `Device` and `DeviceModel`, and reports their values (`Devices`).
/// Not in [`FEATURES`]: a node announces it when it is configured.
pub const DEVICES: &str = "devices1";

/// The edge has a broker that rules (rules.kubeedge.io) reach: objects of kind `Rule`, `Message` and `Call`. Not in
/// [`FEATURES`]: a node announces it when it is configured.
pub const RULES: &str = "rules1";

/// Pods of the node send requests to the API through the link: [`ApiOpen`](crate::message::ToCloud::ApiOpen). Not in
/// [`FEATURES`]: a node announces it when it is configured.
pub const API: &str = "api1";

/// The node mounts volumes of CSI drivers: it requests objects of kind `CSIDriver`, claims with the `attachment` of
/// their volume, and the Secrets that volumes name, and reports its drivers
/// ([`Report::CsiNode`](crate::message::Report::CsiNode)). Not in [`FEATURES`]: a node announces it when it is
/// configured.
pub const CSI: &str = "csi1";

/// Most namespaces that a node may be interested in besides those of its pods.
pub const MAX_INTERESTS: usize = 64;

/// More names than this in a hello or welcome are cut off: no program has that many.
const MAX_FEATURES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolRange {
    pub min: u32,
    pub max: u32,
}

impl ProtocolRange {
    /// Highest version both speak, or none.
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// How an edge resumes: the stream it followed and the last sequence number it has durably applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Random text that names one bridge's memory of one node; another bridge or a restart has another.
    pub stream: String,
    pub seq: u64,
}

/// First frame of a connection, from the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub protocol: ProtocolRange,
    #[serde(default)]
    pub features: Vec<String>,
    /// Node name. The bridge compares it with the name in the client certificate.
    pub node: String,
    /// Cluster this node belongs to; absent before the first welcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The kernel's boot id: tells a reboot from a restart of the daemon.
    pub boot_id: String,
    /// Program and version, for people.
    #[serde(default)]
    pub agent: String,
    /// Where to resume; absent for a new or rebuilt store, which forces a full sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Namespaces whose Services the node requests beside those of its pods, at most [`MAX_INTERESTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interests: Vec<String>,
}

/// The bridge's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    pub protocol: u32,
    #[serde(default)]
    pub features: Vec<String>,
    pub cluster: String,
    /// Fencing number of this connection; a newer one makes older connections void.
    pub session: u64,
    /// Stream to store with every position from now on.
    pub stream: String,
    /// Whether only later changes follow (true) or a full list (false).
    pub resume: bool,
    /// How often the edge pings.
    pub heartbeat_ms: u64,
    /// Within this time after a full list the edge tells the status of every pod once more: the API may be that of a backup.
    /// The longer the more nodes there are. Absent from bridges that do not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_within_ms: Option<u64>,
    /// Absent from bridges that renew no certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityTerms>,
}

/// What the bridge knows of the certificate that this connection was made with, by its own clock: the node's may be
/// years off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityTerms {
    /// The bridge's wall clock, milliseconds since 1970.
    pub now_ms: u64,
    /// How long the certificate is still good; 0: it has to be renewed at once.
    pub left_ms: u64,
    /// Time from its issue to its end.
    pub life_ms: u64,
}

/// Why a bridge refuses a node. A reason this build does not know reads as `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefuseReason {
    /// No protocol version in common: one side must be upgraded.
    Protocol,
    /// The node belongs to another cluster.
    WrongCluster,
    /// The node named in the hello is not the one in the certificate.
    WrongNode,
    /// A newer connection of the same node has taken over.
    Superseded,
    /// The node is not, or no longer, allowed.
    Forbidden,
    #[serde(other)]
    Unknown,
}

/// Optional features that a side announces when they are configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The node wants Services.
    pub services: bool,
    /// The node wants the nodes of its LAN.
    pub routes: bool,
    /// The node wants NetworkPolicies.
    pub policies: bool,
    /// The node wants its devices.
    pub devices: bool,
    /// The node wants the rules that concern it.
    pub rules: bool,
    /// The node's pods send requests to the API through the link.
    pub api: bool,
    /// The node mounts volumes of CSI drivers.
    pub csi: bool,
}

impl Wants {
    /// Everything, as a bridge does.
    pub const ALL: Self =
        Self { services: true, routes: true, policies: true, devices: true, rules: true, api: true, csi: true };

    /// Returns the features that a hello requests.
    pub fn of(hello: &Hello) -> Self {
        let has = |name| hello.features.iter().take(MAX_FEATURES).any(|feature| feature == name);
        Self {
            services: has(SERVICES),
            routes: has(ROUTES),
            policies: has(POLICIES),
            devices: has(DEVICES),
            rules: has(RULES),
            api: has(API),
            csi: has(CSI),
        }
    }
}

/// Features of this side.
pub fn features(compress: bool, wants: Wants) -> impl Iterator<Item = &'static str> {
    let packed = compress.then_some([COMPRESS, RAW_STREAMS]).into_iter().flatten();
    let wanted = [
        (wants.services, SERVICES),
        (wants.services, INTERESTS),
        (wants.routes, ROUTES),
        (wants.policies, POLICIES),
        (wants.devices, DEVICES),
        (wants.rules, RULES),
        (wants.api, API),
        (wants.csi, CSI),
    ];
    let wanted = wanted.into_iter().filter_map(|(wanted, name)| wanted.then_some(name));
    FEATURES.iter().copied().chain(packed).chain(wanted)
}

/// Features both sides name, in our order; ours are a bridge's.
pub fn common_features(compress: bool, theirs: &[String]) -> Vec<String> {
    features(compress, Wants::ALL)
        .filter(|ours| theirs.iter().take(MAX_FEATURES).any(|theirs| theirs == ours))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_common_version_wins_and_disjoint_ranges_have_none() {
        let range = |min, max| ProtocolRange { min, max };
        assert_eq!(range(1, 3).common(range(2, 5)), Some(3));
        assert_eq!(range(1, 1).common(range(1, 9)), Some(1));
        assert_eq!(range(1, 1).common(range(2, 9)), None);
        assert_eq!(range(5, 2).common(range(1, 9)), None, "an inverted range speaks nothing");
    }

    #[test]
    fn feature_of_only_one_side_is_not_used() {
        let hello = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(common_features(false, &hello(&[POLICIES, "other1"])), [POLICIES]);
        assert_eq!(common_features(false, &hello(&[SERVICES])), [SERVICES], "an older node is told of no policy");
        assert_eq!(common_features(false, &hello(&[API])), [API]);
        assert!(!features(false, Wants { api: false, ..Wants::ALL }).any(|name| name == API));
        assert_eq!(common_features(false, &hello(&[CSI])), [CSI]);
        assert!(!features(false, Wants { csi: false, ..Wants::ALL }).any(|name| name == CSI));
    }

    #[test]
    fn unknown_refusals_are_understood_as_refusals() {
        let reason: RefuseReason = serde_json::from_str("\"phaseOfTheMoon\"").expect("reads");
        assert_eq!(reason, RefuseReason::Unknown);
    }
}
