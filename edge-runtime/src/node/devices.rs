//! The device helper: when it runs, its input, and the consequences of its output. Twins are the helper's task.

use std::collections::VecDeque;
use std::path::Path;

use async_executor::Task;
use edge_protocol::message::{DeviceRefusal, ObjectKey};
use edge_protocol::version::{DEVICES, RULES};
use sampan_devices_control::{FromHelper, Kind, ToHelper};
use serde_json::{Value, json};

use super::context::Context;
use super::device_messages::{Given, Messages};
use super::events::about_object;
use super::sources::News;
use crate::devices::client::{self, Heard, Helper, Teller};
use crate::store::StoreError;
use crate::sys::files::replace;

#[derive(Default)]
pub(super) struct Devices {
    running: Option<Running>,
    /// Connection that must be sent everything; `None` without a helper.
    connection: Option<u64>,
    untold: Untold,
    /// The bridge that is connected takes reports of devices.
    bridge_takes: bool,
    pub(super) messages: Messages,
}

struct Running {
    teller: Teller,
    _task: Task<()>,
}

/// Names of objects to send to the helper. An object is read when it is sent.
#[derive(Default)]
struct Untold {
    gone: Vec<(String, Kind, ObjectKey)>,
    objects: Vec<(Kind, ObjectKey)>,
    kept: Vec<(String, String)>,
    told: bool,
    /// The last two at most.
    links: Vec<bool>,
    ack: Option<(u64, Vec<DeviceRefusal>)>,
    stored: Option<u64>,
    /// Lines about rules, and about pods that the helper has asked for.
    lines: VecDeque<ToHelper>,
}

impl Devices {
    /// Starts the configured helper; ends a helper of an earlier daemon that is not configured any more.
    pub(super) fn start(&mut self, cx: &Context) {
        let socket = cx.paths.devices();
        let Some(settings) = cx.config.device_twin.clone() else { return client::end(&socket) };
        let helper = Helper { program: client::program(), socket, node: cx.config.node_name.clone(), settings };
        let news = cx.senders.news.clone();
        let (teller, work) = helper.keep(move |heard| {
            let news = news.clone();
            // The loop is gone only when the process ends.
            async move { drop(news.send(News::Devices(heard)).await) }
        });
        self.running = Some(Running { teller, _task: cx.tasks.spawn(work) });
    }

    /// Whether an object is of these kinds: then it is sent to the helper, if there is one.
    pub(super) fn take(&mut self, key: &ObjectKey) -> bool {
        let Some(kind) = kind_of(key) else { return false };
        if self.connection.is_some() && !self.untold.objects.iter().any(|(_, waiting)| waiting == key) {
            self.untold.objects.push((kind, key.clone()));
        }
        true
    }

    /// Handles a deleted object.
    pub(super) fn gone(&mut self, cx: &mut Context, key: &ObjectKey, uid: &str) -> Result<bool, StoreError> {
        let Some(kind) = kind_of(key) else { return Ok(false) };
        // Where the module is off, what is kept waits for it to be on again.
        if kind == Kind::Device && self.running.is_some() {
            cx.store.write(|writer| writer.forget_device(uid))?;
        }
        if kind == Kind::Rule {
            self.messages.gone(cx, uid)?;
        }
        if self.connection.is_some() {
            self.untold.gone.push((uid.to_owned(), kind, key.clone()));
        }
        Ok(true)
    }

    pub(super) fn connected(&mut self, cx: &mut Context, features: &[String]) -> Result<(), StoreError> {
        self.bridge_takes = features.iter().any(|feature| feature == DEVICES);
        if self.running.is_some() && !self.bridge_takes {
            log::warn!("the bridge is older than devices of nodes: what they report stays here");
        }
        self.link(self.bridge_takes);
        match features.iter().any(|feature| feature == RULES) {
            true => self.messages.connected(cx),
            false => Ok(()),
        }
    }

    pub(super) fn disconnected(&mut self) {
        self.bridge_takes = false;
        self.messages.disconnected();
        self.link(false);
    }

    fn link(&mut self, up: bool) {
        if self.connection.is_some() {
            // The helper must see that the link was down in between: the batch in progress is void.
            if up && self.untold.links.last().is_none_or(|last| *last) {
                self.untold.links.push(false);
            }
            self.untold.links.push(up);
            self.untold.links.drain(..self.untold.links.len().saturating_sub(2));
            self.untold.ack = None;
        }
    }

    pub(super) fn acked(&mut self, batch: u64, refused: Vec<DeviceRefusal>) {
        if self.connection.is_some() {
            self.untold.ack = Some((batch, refused));
        }
    }

    /// Executes a request of a rule.
    pub(super) fn call(&mut self, cx: &Context, id: u64, call: Value) {
        if self.connection.is_some() && self.untold.lines.len() < LINES {
            return self.untold.lines.push_back(ToHelper::Call { id, call });
        }
        let why = "the helper for devices does not run, or has too much to do";
        answer(cx, id, json!({"failed": {"failure": "unavailable", "why": why}}));
    }

    /// Passes the result of a request on to the helper.
    pub(super) fn responded(&mut self, id: u64, response: Value) {
        // The helper limits its running requests to the size of this queue.
        if self.connection.is_some() && self.untold.lines.len() < 2 * LINES {
            self.untold.lines.push_back(ToHelper::Response { id, response });
        }
    }

    fn request(&mut self, cx: &Context, id: u64, request: Value) {
        if !cx.connection().is_some_and(|link| link.request(id, request)) {
            let why = "the node is not connected to a bridge that takes it, or too much waits";
            self.responded(id, json!({"failed": {"failure": "unavailable", "why": why}}));
        }
    }

    /// Processes an event of the helper.
    pub(super) fn heard(&mut self, cx: &mut Context, heard: Heard) -> Result<(), StoreError> {
        match heard {
            Heard::Up(connection) => {
                self.connection = Some(connection);
                let held = cx.store.held()?.into_iter();
                let objects = held.filter_map(|digest| Some((kind_of(&digest.key)?, digest.key))).collect();
                let up = self.bridge_takes && cx.connection().is_some();
                self.untold = Untold {
                    objects,
                    kept: cx.store.kept_devices()?,
                    told: true,
                    links: vec![up],
                    ..Untold::default()
                };
            }
            Heard::Down(_) => {
                self.connection = None;
                self.untold = Untold::default();
                self.messages.helper_went();
            }
            Heard::Room => {}
            Heard::Line(line) => self.said(cx, line)?,
        }
        Ok(())
    }

    fn said(&mut self, cx: &mut Context, line: FromHelper) -> Result<(), StoreError> {
        match line {
            FromHelper::Report { batch, devices } => self.report(cx, batch, devices),
            FromHelper::Keep { rows, durable } => {
                let written = cx.wall().as_millisecond();
                let put = |writer: &crate::store::Writer<'_>| {
                    rows.iter().try_for_each(|row| match row.record.is_empty() {
                        true => writer.forget_device(&row.uid),
                        false => writer.keep_device(&row.uid, &row.record, written),
                    })
                };
                if durable { cx.store.write_durable(put)? } else { cx.store.write(put)? }
            }
            FromHelper::Event { namespace, name, uid, warning, reason, message } => {
                let key = ObjectKey { kind: "Device".to_owned(), namespace, name };
                let event = about_object(
                    (API_VERSION, &key, &uid),
                    (warning, &reason, &message),
                    &cx.config.node_name,
                    &cx.clock.now(),
                );
                cx.queue_event(event)?;
            }
            FromHelper::Counters { counters } => counted(&cx.paths.device_counters(), &counters),
            FromHelper::Messages { batch, rows, most_bytes, ttl_s } => {
                let given = Given { batch: Some(batch), rows, most_bytes, ttl_s };
                self.untold.stored = self.messages.keep(cx, given)?.or(self.untold.stored);
            }
            // It asks for each once, and waits for few.
            FromHelper::Pod { uid } => {
                if self.untold.lines.len() < 3 * LINES {
                    let namespace = cx.pods.get(&uid).map(|entry| entry.record.namespace.clone());
                    self.untold.lines.push_back(ToHelper::Pod { uid, namespace });
                }
            }
            FromHelper::Called { id, answer: what } => answer(cx, id, what),
            FromHelper::Request { id, request } => self.request(cx, id, request),
            FromHelper::Hello { .. } | FromHelper::Answer { .. } | FromHelper::Pong {} => {}
        }
        Ok(())
    }

    fn report(&mut self, cx: &Context, batch: u64, devices: Vec<Value>) {
        // Without a link the helper knows that, and sends the newest values again later.
        let Some(link) = cx.connection().filter(|_| self.bridge_takes) else { return };
        let uid = |device: &Value| device["uid"].as_str().unwrap_or_default().to_owned();
        let uids: Vec<String> = devices.iter().map(uid).collect();
        if !link.devices(batch, devices) {
            let reason = "the report is too large for the link";
            let refused = uids.into_iter().map(|uid| DeviceRefusal { uid, reason: reason.to_owned() }).collect();
            self.acked(batch, refused);
        }
    }

    /// Stores what found no room before.
    pub(super) fn store_again(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        self.untold.stored = self.messages.again(cx)?.or(self.untold.stored);
        Ok(())
    }

    /// Tells the helper as much as it takes now.
    pub(super) fn step(&mut self, cx: &Context) {
        let (Some(running), Some(connection)) = (&self.running, self.connection) else { return };
        while !self.untold.is_empty() && running.teller.has_room() {
            if let Some(line) = self.untold.next(cx) {
                let told = running.teller.tell(connection, line);
                debug_assert!(told, "there was room");
            }
        }
    }
}

/// Calls that wait for the helper, and as many answers to it.
const LINES: usize = 32;

fn answer(cx: &Context, id: u64, what: Value) {
    if !cx.connection().is_some_and(|link| link.answer(id, what)) {
        log::debug!("nobody takes the answer to call {id}");
    }
}

/// API version of both kinds.
const API_VERSION: &str = "devices.kubeedge.io/v1beta1";

/// Writes the counters for `edge-runtime status`, on a file system in memory.
fn counted(file: &Path, counters: &Value) {
    if let Err(error) = replace(file, counters.to_string().as_bytes(), false) {
        log::warn!("{}: {error}", file.display());
    }
}

fn kind_of(key: &ObjectKey) -> Option<Kind> {
    match key.kind.as_str() {
        "Device" => Some(Kind::Device),
        "DeviceModel" => Some(Kind::DeviceModel),
        "Rule" => Some(Kind::Rule),
        _ => None,
    }
}

impl Untold {
    fn is_empty(&self) -> bool {
        let Self { gone, objects, kept, told, links, ack, stored, lines } = self;
        let nothing = gone.is_empty() && objects.is_empty() && kept.is_empty() && !told && links.is_empty();
        nothing && ack.is_none() && stored.is_none() && lines.is_empty()
    }

    /// Returns the next message; deletions first, because they release names. `None` for objects that do not exist any
    /// more.
    fn next(&mut self, cx: &Context) -> Option<ToHelper> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use edge_protocol::message::{Object, ObjectDigest};
    use sampan_devices_control::Row;
    use tempfile::TempDir;

    use super::*;

    /// A node, and a helper that is connected and knows nothing yet.
    fn bench() -> (TempDir, Context, Devices) {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut devices = Devices::default();
        devices.heard(&mut cx, Heard::Up(1)).unwrap();
        (folder, cx, devices)
    }

    fn key(kind: &str, name: &str) -> ObjectKey {
        ObjectKey { kind: kind.to_owned(), namespace: "ns".to_owned(), name: name.to_owned() }
    }

    fn put(cx: &mut Context, key: ObjectKey) {
        let digest = ObjectDigest { key, uid: "u".to_owned(), digest: "d".to_owned() };
        let object = Object { digest, body: json!({"metadata": {"uid": "u"}}) };
        cx.store.write(|writer| writer.put_object(&object)).unwrap();
    }

    #[test]
    fn helper_learns_of_each_break_of_the_link() {
        let (_folder, mut cx, mut devices) = bench();
        let features = [DEVICES.to_owned()];
        assert_eq!(devices.untold.links, [false]);
        devices.connected(&mut cx, &features).unwrap();
        assert_eq!(devices.untold.links, [false, true]);
        devices.untold.links.clear();
        devices.acked(7, Vec::new());
        devices.connected(&mut cx, &features).unwrap();
        assert_eq!(devices.untold.links, [false, true], "the batch under way is void");
        assert!(devices.untold.ack.is_none(), "so is its acknowledgement");
        devices.disconnected();
        assert_eq!(devices.untold.links, [true, false], "the last two");
        devices.untold.links.clear();
        devices.connected(&mut cx, &[]).unwrap();
        assert_eq!(devices.untold.links, [false], "an older bridge takes no reports");
    }

    #[test]
    fn helper_that_went_is_told_nothing() {
        let (_folder, mut cx, mut devices) = bench();
        devices.heard(&mut cx, Heard::Down("killed".to_owned())).unwrap();
        assert!(devices.take(&key("Device", "a")), "no pod is concerned");
        assert!(devices.gone(&mut cx, &key("Rule", "a"), "u").unwrap());
        devices.connected(&mut cx, &[DEVICES.to_owned()]).unwrap();
        devices.acked(1, Vec::new());
        devices.call(&cx, 1, Value::Null);
        devices.responded(1, Value::Null);
        assert!(devices.untold.is_empty());
    }

    #[test]
    fn new_helper_gets_all_that_is_stored() {
        let (_folder, mut cx, mut devices) = bench();
        for (kind, name) in [("Device", "a"), ("DeviceModel", "m"), ("Rule", "r"), ("ConfigMap", "c")] {
            put(&mut cx, key(kind, name));
        }
        cx.store.write(|writer| writer.keep_device("u", "record", 0)).unwrap();
        devices.heard(&mut cx, Heard::Up(2)).unwrap();
        assert_eq!(devices.connection, Some(2));
        let kinds: BTreeSet<Kind> = devices.untold.objects.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, BTreeSet::from([Kind::Device, Kind::DeviceModel, Kind::Rule]));
        assert_eq!(devices.untold.objects.len(), 3);
        assert_eq!(devices.untold.kept, [("u".to_owned(), "record".to_owned())]);
        assert!(devices.untold.told);
    }

    #[test]
    fn deletions_are_told_first_and_acknowledgements_last() {
        let (_folder, mut cx, mut devices) = bench();
        put(&mut cx, key("Device", "there"));
        for name in ["there", "deleted since", "there"] {
            assert!(devices.take(&key("Device", name)));
        }
        assert!(!devices.take(&key("Secret", "s")));
        devices.gone(&mut cx, &key("Device", "other"), "v").unwrap();
        devices.acked(7, Vec::new());
        devices.untold.kept.push(("u".to_owned(), "record".to_owned()));
        devices.untold.stored = Some(3);
        devices.call(&cx, 1, Value::Null);
        let mut told = Vec::new();
        while !devices.untold.is_empty() {
            told.push(match devices.untold.next(&cx) {
                None => "nothing",
                Some(ToHelper::Gone { .. }) => "gone",
                Some(ToHelper::Object { uid, .. }) if uid == "u" => "object",
                Some(ToHelper::Kept { .. }) => "kept",
                Some(ToHelper::Told {}) => "told",
                Some(ToHelper::Link { up: false, .. }) => "link",
                Some(ToHelper::Stored { batch: 3 }) => "stored",
                Some(ToHelper::Call { id: 1, .. }) => "call",
                Some(ToHelper::Ack { batch: 7, .. }) => "ack",
                Some(other) => panic!("{other:?}"),
            });
        }
        assert_eq!(told, ["gone", "nothing", "object", "kept", "told", "link", "stored", "call", "ack"]);
    }

    #[test]
    fn calls_leave_room_for_answers() {
        let (_folder, mut cx, mut devices) = bench();
        let waiting = |devices: &Devices| devices.untold.lines.len();
        (0..=64).for_each(|id| devices.call(&cx, id, Value::Null));
        assert_eq!(waiting(&devices), LINES);
        (0..=64).for_each(|id| devices.responded(id, Value::Null));
        assert_eq!(waiting(&devices), 2 * LINES);
        for _ in 0..=64 {
            let asked = FromHelper::Pod { uid: "unknown".to_owned() };
            devices.heard(&mut cx, Heard::Line(asked)).unwrap();
        }
        assert_eq!(waiting(&devices), 3 * LINES);
        let last = devices.untold.lines.back();
        assert_eq!(last, Some(&ToHelper::Pod { uid: "unknown".to_owned(), namespace: None }));
    }

    #[test]
    fn helper_decides_what_is_kept_of_a_device() {
        let (_folder, mut cx, mut devices) = bench();
        let row = |uid: &str, record: &str| Row { uid: uid.to_owned(), record: record.to_owned() };
        for (rows, expected) in [(vec![row("u", "r"), row("v", "s")], 2), (vec![row("u", "")], 1)] {
            devices.heard(&mut cx, Heard::Line(FromHelper::Keep { rows, durable: true })).unwrap();
            assert_eq!(cx.store.kept_devices().unwrap().len(), expected);
        }
        assert!(cx.store.is_synced());
        devices.gone(&mut cx, &key("Device", "a"), "v").unwrap();
        assert_eq!(cx.store.kept_devices().unwrap().len(), 1, "the module is off, and may be on again");
    }
}
