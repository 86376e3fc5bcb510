//! What connections ask of the informers.

use edge_protocol::message::ObjectKey;
use edge_protocol::version::Wants;

use crate::bridge::world::Group;

/// What a node wants to be told of beside its pods.
#[derive(Debug)]
pub(in super::super) struct Wanted {
    pub(in super::super) wants: Wants,
    /// Whether it takes orders of jobs.
    pub(in super::super) orders: bool,
    pub(in super::super) interests: Vec<String>,
}

/// What others ask of the informers.
#[derive(Debug)]
pub(in super::super) enum Command {
    /// Keep the pods of this node from now on.
    Add(String),
    /// This node has connected, in this session; if it did not resume, all its objects must be read again. Beside the
    /// Services of its pods' namespaces it needs those of the namespaces in `wants`.
    Connected { node: String, session: u64, resumed: bool, wants: Wanted },
    /// The node is interested in the Services of these namespaces, and of no other.
    Interested { node: String, session: u64, interests: Vec<String> },
    /// This node is on another LAN than before; without a name: it is known by now of every node where it is.
    Located(Option<String>),
    /// The node is deleted.
    Drop(String),
    /// The pods of this node are to have the tolerations that its object speaks of.
    ReconcileTolerations(String),
    /// What these nodes should hold of jobs now, as of this reading of all jobs.
    Orders { reading: u64, changed: Vec<(String, Group)> },
    /// A node holds this and no list names it: is it gone?
    LookUp { node: String, session: u64, key: ObjectKey, uid: String },
}
