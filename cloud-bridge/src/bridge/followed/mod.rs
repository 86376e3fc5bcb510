//! Two kinds of the API that belong together, followed for all nodes at once: what of them concerns which node is for an [`Index`] to
//! say. Knows none of the kinds.
//!
//! | module | owns |
//! |---|---|
//! | `known` | what is known, as of which reading, and who is told of it |
//! | `follow` | the watches that feed it |
//! | `listing` | events of a list or watch, made news |
//! | `present` | the running watch, while a task holds it |

pub(super) mod follow;
pub(super) mod known;
pub(super) mod listing;
pub(super) mod present;

use std::collections::BTreeSet;

use kube::api::DynamicObject;

pub(super) use listing::News;

use super::world::Group;

/// What is known of both kinds. Pure: the order of news does not matter.
pub(super) trait Index: Default + Send + 'static {
    type One: Send;
    type Other: Send;

    /// Group and version of both.
    const API: &str;
    /// Kind and plural of each.
    const ONE: (&str, &str);
    const OTHER: (&str, &str);
    /// How people call them.
    const NAME: &str;

    /// Parses an object of the API; `None` if it is malformed.
    fn one(object: &DynamicObject) -> Option<Self::One>;
    fn other(object: &DynamicObject) -> Option<Self::Other>;

    fn take_one(&mut self, news: News<Self::One>);
    fn take_other(&mut self, news: News<Self::Other>);

    fn is_changed(&self) -> bool;
    /// Nodes whose groups are others than when this was last asked.
    fn take_changed(&mut self) -> BTreeSet<Box<str>>;
    /// What a node should hold.
    fn group(&self, node: &str) -> Group;
}
