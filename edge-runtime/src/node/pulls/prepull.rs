//! Images that the administrator wants on the node before a pod asks for them: fetched when nothing else is, tried
//! again now and then.

use std::time::Duration;

use super::Pulls;
use crate::node::context::Context;
use crate::pod::clock::Mono;

/// From a failed try to the next.
const AGAIN: Duration = Duration::from_secs(300);

impl Pulls {
    /// Begins to fetch the first that is missing, if nothing is under way; and what may begin beside a pull that takes long.
    pub(in crate::node) fn prepull(&mut self, cx: &Context, now: Mono) {
        self.begin(cx);
        if !cx.resumed || !self.queue.is_empty() || self.prepull_at.is_some_and(|at| now < at) {
            return;
        }
        let missing = cx.config.pull.images.iter().find(|name| cx.image_id(name).is_none()).cloned();
        // With all of them there, somebody may still remove one by hand.
        self.prepull_at = Some(now.after(AGAIN));
        if let Some(name) = missing {
            self.fetch(cx, &name);
        }
    }
}
