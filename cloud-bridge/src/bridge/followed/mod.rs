//! Two related kinds of the API, followed for all nodes at once. An [`Index`] decides which objects concern which node.
//! Knows none of the kinds.
//!
//! | module | owns |
//! |---|---|
//! | `known` | known objects, the round of their reading, and the subscribers |
//! | `follow` | the watches that feed it |
//! | `listing` | turns events of a list or watch into changes |
//! | `present` | the running watch, while a task holds it |

pub(super) mod follow;
pub(super) mod known;
pub(super) mod listing;
pub(super) mod present;

use std::collections::BTreeSet;

use kube::api::DynamicObject;

pub(super) use listing::News;

use super::world::Group;

/// Known objects of both kinds. Pure: the order of changes does not matter.
pub(super) trait Index: Default + Send + 'static {
    type One: Send;
    type Other: Send;

    /// Group and version of both.
    const API: &str;
    /// Kind and plural of each.
    const ONE: (&str, &str);
    const OTHER: (&str, &str);
    /// Their name in messages.
    const NAME: &str;

    /// Parses an object of the API; `None` if it is malformed.
    fn one(object: &DynamicObject) -> Option<Self::One>;
    fn other(object: &DynamicObject) -> Option<Self::Other>;

    fn take_one(&mut self, news: News<Self::One>);
    fn take_other(&mut self, news: News<Self::Other>);

    fn is_changed(&self) -> bool;
    /// Nodes whose groups changed since the last call.
    fn take_changed(&mut self) -> BTreeSet<Box<str>>;
    /// The group that a node should hold.
    fn group(&self, node: &str) -> Group;
}
