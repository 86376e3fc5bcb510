//! Labels and annotations of Nodes that several parts of the bridge read or write.

use std::collections::BTreeMap;

/// Label of the nodes that are connected through a bridge.
pub const BRIDGED_LABEL: &str = "sampan.dev/bridged";

/// Fencing number of the node's newest connection. It tells bridges of the same API that a node has moved.
pub(super) const SESSION_ANNOTATION: &str = "sampan.dev/session";

/// Address (`IP:PORT`) at which the node's bridge accepts requests for rules; other bridges forward requests for the
/// node there. A bridge that accepts none leaves the value of an earlier bridge, which then answers that the node is
/// not connected.
pub(super) const RULES_ANNOTATION: &str = "sampan.dev/rules-address";

/// Address (`IP:PORT`) at which the node's bridge accepts kubelet requests of other bridges for the node. A bridge without
/// such a port leaves the value of an earlier bridge, as with [`RULES_ANNOTATION`].
pub(super) const REPLICA_ANNOTATION: &str = "sampan.dev/replica-address";

/// The node's addresses for neighbours, set by the bridge. Only on a node that asks for routes.
pub(super) const LAN_ADDRESSES: &str = "sampan.dev/lan-addresses";

/// Address from which the node connected, set by the bridge. Nodes behind the same address share a LAN, unless a label
/// says otherwise.
pub(super) const PEER_ADDRESS: &str = "sampan.dev/peer-address";

/// SHA-256 of the serial number of the board that enrolled under this name.
pub(super) const HARDWARE: &str = "sampan.dev/hardware";

/// Set while statuses of the node's devices are marked as stale.
pub(super) const STALE_DEVICES: &str = "sampan.dev/devices-stale";

/// Authorities that the node trusts, as its certificate showed during the last rotation (`pki::rotation`), set by the bridge.
pub const TRUST_ANNOTATION: &str = "sampan.dev/authority";

/// On a Node: no job begins there. On a job: no further node begins.
pub(super) const HOLD: &str = "sampan.dev/hold";

/// Whether [`HOLD`] is set to any value except `false`.
pub(crate) fn is_held(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(HOLD).is_some_and(|value| value != "false")
}
