//! Requests of connections to the informers.

use edge_protocol::message::ObjectKey;
use edge_protocol::version::Wants;

use crate::bridge::world::Group;

/// Objects that a node asks for in addition to its pods.
#[derive(Debug)]
pub(in super::super) struct Wanted {
    pub(in super::super) wants: Wants,
    /// Whether it takes orders of jobs.
    pub(in super::super) orders: bool,
    pub(in super::super) interests: Vec<String>,
}

/// A request to the informers.
#[derive(Debug)]
pub(in super::super) enum Command {
    /// Keep the pods of this node.
    Add(String),
    /// This node has connected, in this session; if it did not resume, all its objects must be read again. In addition
    /// to the Services of its pods' namespaces it needs those in `wants`.
    Connected { node: String, session: u64, resumed: bool, wants: Wanted },
    /// The node needs the Services of these namespaces, instead of earlier ones.
    Interested { node: String, session: u64, interests: Vec<String> },
    /// The LAN of this node has changed; without a name: the LANs of all nodes are known.
    Located(Option<String>),
    /// The node is deleted.
    Drop(String),
    /// Apply the tolerations of this node's object to its pods.
    ReconcileTolerations(String),
    /// Orders for these nodes, as of this reading of all jobs.
    Orders { reading: u64, changed: Vec<(String, Group)> },
    /// A node holds this object and no list names it: check whether it is deleted.
    LookUp { node: String, session: u64, key: ObjectKey, uid: String },
}
