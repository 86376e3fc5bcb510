//! Answers of the API to single questions.

use std::time::Duration;

use edge_protocol::message::{ObjectKey, ObjectRef};

use crate::bridge::slim::{BoundPod, SlimPod};
use crate::bridge::world::{Effect, Round};

/// Answer to one question, or to several.
pub(super) enum Answer {
    /// The pods of each requested node with the version of their list, and the round of the question.
    Seeds {
        all: Vec<(String, Vec<BoundPod>, Option<u64>)>,
        round: Round,
    },
    /// A pod that a list lacked exists, as it is now.
    Found(Box<SlimPod>),
    /// Another pod has its name now.
    Replaced {
        node: String,
        key: ObjectKey,
        uid: String,
        by: Box<SlimPod>,
    },
    /// A pod that a list lacked is deleted.
    Gone {
        node: String,
        key: ObjectKey,
        uid: String,
    },
    /// A node has an object that the bridge makes itself and that no list names.
    Unlisted {
        node: String,
        key: ObjectKey,
        uid: String,
    },
    /// No pod of this node in the API names the object, and the node may not read it any more.
    Useless {
        node: String,
        key: ObjectKey,
        uid: String,
    },
    Admission(Admission),
    /// What a node asked about, and the answer.
    LookedUp {
        node: String,
        object: ObjectRef,
        answer: Box<Answer>,
    },
    /// Patches of the tolerations of a node's pods, as JSON text.
    Tolerations(Vec<(ObjectKey, String)>),
    /// An effect that could not be carried out, because the API did not answer.
    Again(Effect),
    Nothing,
}

/// Whether a node may read an object that is watched for another.
pub(super) struct Admission {
    pub(super) node: String,
    pub(super) key: ObjectKey,
    pub(super) may_read: bool,
    /// Pause before the question.
    pub(super) pause: Duration,
}
