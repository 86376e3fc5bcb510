//! What follows from an event.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use crate::bridge::told::Told;

/// An effect of an event; effects are executed in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The node should hold this object.
    Set { node: String, object: Arc<Told> },
    /// The object was deleted.
    Remove { node: String, key: ObjectKey, uid: String },
    /// The object still exists, but this node does not need it any more.
    Withdraw { node: String, key: ObjectKey, uid: String },
    /// Everything that this node should hold was sent, as of a time after the hello of this session.
    Listed { node: String, session: u64 },
    /// Start to watch a ConfigMap or Secret, in the name of this node; ends an earlier watch of the same key.
    Watch { key: ObjectKey, node: String },
    /// Read all jobs again. Answer with [`orders`](super::World::orders).
    ReadJobs,
    /// Ask the API whether this node may read the object, in the name of the node. Answer with
    /// [`admitted`](super::World::admitted) or [`not_admitted`](super::World::not_admitted).
    Admit { key: ObjectKey, node: String },
    /// There are two pods with one name, because a list and a watch have seen the API at different times. Ask for this
    /// one by name, and use the result; until then the other is not used.
    Ask { node: String, key: ObjectKey, uid: String },
    /// No node needs it any more.
    Unwatch { key: ObjectKey },
    /// The controller of silent nodes wrote that this pod is not ready. If the node is alive, undo it in this version of
    /// the pod: a later one may be not ready in truth. `failures`: attempts that the API did not answer.
    RestoreReady { node: String, key: ObjectKey, uid: String, version: Option<u64>, failures: u32 },
    /// A client deleted the API's copy of a static pod: nothing has to be stopped for it, so finish the deletion.
    /// `failures` as above.
    FinishMirror { node: String, key: ObjectKey, uid: String, failures: u32 },
}
