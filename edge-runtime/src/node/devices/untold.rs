//! What the device helper is still to be told, and in which order.

use std::collections::VecDeque;

use edge_protocol::message::{DeviceRefusal, ObjectKey};
use sampan_devices_control::{Kind, ToHelper};

use crate::node::context::Context;

/// Maximum number of calls that wait for the helper, and of answers to it.
pub(super) const LINES: usize = 32;

/// Names of objects to send to the helper. An object is read when it is sent.
#[derive(Default)]
pub(super) struct Untold {
    pub(super) gone: Vec<(String, Kind, ObjectKey)>,
    pub(super) objects: Vec<(Kind, ObjectKey)>,
    pub(super) kept: Vec<(String, String)>,
    pub(super) told: bool,
    /// The last two at most.
    pub(super) links: Vec<bool>,
    pub(super) ack: Option<(u64, Vec<DeviceRefusal>)>,
    pub(super) stored: Option<u64>,
    /// Lines about rules, and about pods that the helper has asked for.
    pub(super) lines: VecDeque<ToHelper>,
}

impl Untold {
    pub(super) fn is_empty(&self) -> bool {
        let Self { gone, objects, kept, told, links, ack, stored, lines } = self;
        let nothing = gone.is_empty() && objects.is_empty() && kept.is_empty() && !told && links.is_empty();
        nothing && ack.is_none() && stored.is_none() && lines.is_empty()
    }

    /// Returns the next message; deletions first, because they release names. `None` for objects that do not exist any
    /// more.
    pub(super) fn next(&mut self, cx: &Context) -> Option<ToHelper> {
        if let Some((uid, kind, ObjectKey { namespace, name, .. })) = self.gone.pop() {
            return Some(ToHelper::Gone { kind, namespace, name, uid });
        }
        if let Some((kind, key)) = self.objects.pop() {
            let body = cx.object(&key.kind, &key.namespace, &key.name)?;
            let uid = body["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let ObjectKey { namespace, name, .. } = key;
            return Some(ToHelper::Object { kind, namespace, name, uid, body });
        }
        if let Some((uid, record)) = self.kept.pop() {
            return Some(ToHelper::Kept { uid, record });
        }
        if std::mem::take(&mut self.told) {
            return Some(ToHelper::Told {});
        }
        if !self.links.is_empty() {
            let up = self.links.remove(0);
            let clock_set = crate::sys::board::clock_synchronized() != Some(false);
            return Some(ToHelper::Link { up, clock_set });
        }
        if let Some(batch) = self.stored.take() {
            return Some(ToHelper::Stored { batch });
        }
        if let Some(line) = self.lines.pop_front() {
            return Some(line);
        }
        self.ack.take().map(|(batch, refused)| ToHelper::Ack { batch, refused })
    }
}
