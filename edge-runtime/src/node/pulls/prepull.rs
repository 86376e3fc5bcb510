//! Images that the administrator wants on the node before a pod asks for them: fetched when nothing else is, tried
//! again now and then.

use std::time::Duration;

use crate::node::Node;
use crate::pod::clock::Mono;

/// From a failed try to the next.
const AGAIN: Duration = Duration::from_secs(300);

impl Node {
    /// Begins to fetch the first that is missing, if nothing is under way; and what may begin beside a pull that takes long.
    pub(in crate::node) fn prepull(&mut self, now: Mono) {
        self.begin_pulls();
        if !self.resumed || self.pulls.is_busy() || self.pulls.prepull_at.is_some_and(|at| now < at) {
            return;
        }
        let missing = self.config.pull.images.iter().find(|name| self.image_id(name).is_none()).cloned();
        // With all of them there, somebody may still remove one by hand.
        self.pulls.prepull_at = Some(now.after(AGAIN));
        if let Some(name) = missing {
            self.fetch(&name);
        }
    }
}
