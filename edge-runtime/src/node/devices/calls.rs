//! Requests of rules at the helper, and the helper's requests at the bridge.

use sampan_devices_control::ToHelper;
use serde_json::{Value, json};

use super::Devices;
use super::untold::LINES;
use crate::node::context::Context;

impl Devices {
    /// Executes a request of a rule.
    pub(in crate::node) fn call(&mut self, cx: &Context, id: u64, call: Value) {
        if self.connection.is_some() && self.untold.lines.len() < LINES {
            return self.untold.lines.push_back(ToHelper::Call { id, call });
        }
        let why = "the helper for devices does not run, or has too much to do";
        Self::answer(cx, id, json!({"failed": {"failure": "unavailable", "why": why}}));
    }

    /// Passes the result of a request on to the helper.
    pub(in crate::node) fn responded(&mut self, id: u64, response: Value) {
        // The helper limits its running requests to the size of this queue.
        if self.connection.is_some() && self.untold.lines.len() < 2 * LINES {
            self.untold.lines.push_back(ToHelper::Response { id, response });
        }
    }

    pub(super) fn request(&mut self, cx: &Context, id: u64, request: Value) {
        if !cx.connection().is_some_and(|link| link.request(id, request)) {
            let why = "the node is not connected to a bridge that takes it, or too much waits";
            self.responded(id, json!({"failed": {"failure": "unavailable", "why": why}}));
        }
    }

    pub(super) fn answer(cx: &Context, id: u64, what: Value) {
        if !cx.connection().is_some_and(|link| link.answer(id, what)) {
            log::debug!("nobody takes the answer to call {id}");
        }
    }
}
