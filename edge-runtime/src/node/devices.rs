//! The device helper: when it runs, its input, and the consequences of its output. Twins are the helper's task.

mod calls;
mod untold;

use std::path::Path;

use async_executor::Task;
use edge_protocol::message::{DeviceRefusal, ObjectKey};
use edge_protocol::version::{DEVICES, RULES};
use sampan_devices_control::{FromHelper, Kind, ToHelper, VERSION};
use serde_json::Value;

use self::untold::{LINES, Untold};
use super::context::Context;
use super::device_messages::{Given, Messages};
use super::events::about_object;
use super::sources::News;
use crate::devices::Heard;
use crate::helper::client::{Helper, Teller};
use crate::helper::programs::DEVICES as PROGRAM;
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

impl Devices {
    /// Starts the configured helper; ends a helper of an earlier daemon that is not configured any more.
    pub(super) fn start(&mut self, cx: &Context) {
        let Some(settings) = cx.config.device_twin.clone() else { return PROGRAM.end(&cx.paths) };
        let greeting = ToHelper::Daemon { version: VERSION, node: cx.config.node_name.clone(), settings };
        let helper = Helper::new(&PROGRAM, &cx.paths, &greeting);
        let (teller, work) = helper.keep(cx.senders.news.clone(), |event| Ok(News::Devices(event.read()?)));
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
            FromHelper::Called { id, answer: what } => Self::answer(cx, id, what),
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
                let told = running.teller.tell(connection, &line);
                debug_assert!(told, "there was room");
            }
        }
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

#[cfg(test)]
mod tests;
