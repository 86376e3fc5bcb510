//! The helper for devices with the real program's logic, without its sockets, and the sensors that talk to it. It
//! outlives the daemon, and dies on its own at times.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use edge_runtime::store::StoreError;
use sampan_devices::twins::{Now, Output, Twins};
use sampan_devices_control::{FromHelper, Kind, Mqtt, Named, Settings};
use serde_json::{Value, json};

use super::Device;
use crate::trace::trace;

/// Maximum number of messages that the broker accepts at once.
const ROOM: usize = 1_000;

/// The process.
pub(super) struct Helper {
    twins: Twins,
    /// Whether a daemon has sent it all objects.
    told: bool,
}

/// The devices themselves: they survive every crash.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    /// The last value of each sensor, which only increases.
    temps: BTreeMap<String, u64>,
    /// The last desired value that each received.
    wishes: BTreeMap<String, String>,
}

fn id(name: &str) -> Named {
    Named { namespace: "ns".into(), name: name.into() }
}

fn kind_of(key: &ObjectKey) -> Option<Kind> {
    match key.kind.as_str() {
        "Device" => Some(Kind::Device),
        "DeviceModel" => Some(Kind::DeviceModel),
        _ => None,
    }
}

impl Device {
    fn helper_now(&self, now: Duration) -> Now {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or_default();
        let wall = (1_700_000_000 + self.wall_s).unsigned_abs() * 1_000 + ms(now);
        Now { mono: ms(now), wall }
    }

    /// Starts the helper, or sends it all objects, if needed. False if there is nothing to do.
    pub fn revive_helper(&mut self, now: Duration) -> Result<bool, StoreError> {
        if !self.devices || self.daemon.is_none() {
            return Ok(false);
        }
        let at = self.helper_now(now);
        if self.helper.is_none() {
            self.helpers += 1;
            let settings = Settings { mqtt: Some(Mqtt::default()), ..Settings::default() };
            let mut twins = Twins::new("node".to_owned(), &settings, self.helpers);
            twins.broker(at, true);
            self.helper = Some(Helper { twins, told: false });
            return Ok(true);
        }
        if self.helper.as_ref().is_some_and(|helper| helper.told) {
            return Ok(false);
        }
        let (Some(helper), Some(store), Some(daemon)) = (&mut self.helper, &self.store, &self.daemon) else {
            return Ok(false);
        };
        helper.told = true;
        trace(|| "helper: is told all".to_owned());
        helper.twins.daemon_came(at);
        for digest in store.held()? {
            let Some(kind) = kind_of(&digest.key) else { continue };
            let body = store.object(&digest.key.kind, &digest.key.namespace, &digest.key.name)?.unwrap_or_default();
            helper.twins.object(at, kind, id(&digest.key.name), digest.uid, &body);
        }
        for (uid, record) in store.kept_devices()? {
            helper.twins.kept(uid, record);
        }
        helper.twins.told(at);
        let up = daemon.session.as_ref().is_some_and(|session| session.is_welcome());
        helper.twins.link(at, up, true);
        self.hear(now)?;
        Ok(true)
    }

    pub fn crash_helper(&mut self) {
        self.helper = None;
    }

    /// The daemon is gone, and the helper continues.
    pub(super) fn orphan_helper(&mut self, now: Duration) {
        let at = self.helper_now(now);
        if let Some(helper) = &mut self.helper
            && std::mem::take(&mut helper.told)
        {
            helper.twins.daemon_went(at);
        }
    }

    pub(super) fn link_of_helper(&mut self, up: bool, now: Duration) {
        trace(|| format!("helper: link {up}"));
        let at = self.helper_now(now);
        if let Some(helper) = self.helper.as_mut().filter(|helper| helper.told) {
            if up {
                helper.twins.link(at, false, true);
            }
            helper.twins.link(at, up, true);
        }
    }

    /// An object was committed; without a body, one was removed.
    pub(super) fn object_for_helper(
        &mut self,
        key: &ObjectKey,
        gone: Option<&str>,
        now: Duration,
    ) -> Result<(), StoreError> {
        let at = self.helper_now(now);
        let (Some(kind), Some(store)) = (kind_of(key), &mut self.store) else { return Ok(()) };
        let helper = self.helper.as_mut().filter(|helper| helper.told);
        match gone {
            Some(uid) => {
                if kind == Kind::Device {
                    store.write(|writer| writer.forget_device(uid))?;
                }
                if let Some(helper) = helper {
                    helper.twins.gone(at, kind, &id(&key.name), uid);
                }
            }
            None => {
                let body = store.object(&key.kind, &key.namespace, &key.name)?;
                if let (Some(helper), Some(body)) = (helper, body) {
                    let uid = body["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                    helper.twins.object(at, kind, id(&key.name), uid, &body);
                }
            }
        }
        Ok(())
    }

    pub(super) fn helper_acked(&mut self, batch: u64, now: Duration) {
        let at = self.helper_now(now);
        if let Some(helper) = self.helper.as_mut().filter(|helper| helper.told) {
            helper.twins.acked(at, batch, &[]);
        }
    }

    /// A sensor measures; an actuator applies its desired value. Both also do so without a link.
    pub fn sense(&mut self, name: &str, obey: bool, now: Duration) {
        let temp = self.sensors.temps.entry(name.to_owned()).or_default();
        *temp += 1;
        let mut twin = json!({"temp": {"actual": {"value": temp.to_string()}}});
        if let Some(wish) = self.sensors.wishes.get(name).filter(|_| obey) {
            twin["led"] = json!({"actual": {"value": wish}});
        }
        let text = json!({"event_id": "", "timestamp": 0, "twin": twin}).to_string();
        let at = self.helper_now(now);
        if let Some(helper) = self.helper.as_mut().filter(|helper| helper.twins.is_ready()) {
            helper.twins.message(at, &format!("$hw/events/device/ns/{name}/twin/update"), Some(text.as_bytes()), false);
        }
    }

    /// Does what is due. False if nothing is.
    pub fn tick_helper(&mut self, now: Duration) -> Result<bool, StoreError> {
        let at = self.helper_now(now);
        if let Some(helper) = &mut self.helper {
            helper.twins.tick(at, ROOM);
        }
        self.hear(now)
    }

    fn hear(&mut self, _now: Duration) -> Result<bool, StoreError> {
        let Some(helper) = &mut self.helper else { return Ok(false) };
        let outputs = helper.twins.outputs();
        let any = !outputs.is_empty();
        for output in outputs {
            match output {
                Output::Publish(message) => {
                    trace(|| format!("helper: {} {}", message.topic, String::from_utf8_lossy(&message.payload)));
                    let text: Value = serde_json::from_slice(&message.payload).expect("JSON");
                    let name = message.topic.split('/').nth(4).unwrap_or_default().to_owned();
                    if message.topic.ends_with("/twin/update/delta")
                        && let Some(wish) = text["delta"]["led"].as_str()
                    {
                        self.sensors.wishes.insert(name, wish.to_owned());
                    }
                }
                Output::Tell(FromHelper::Report { batch, devices }) => {
                    trace(|| format!("helper: reports {batch}: {devices:?}"));
                    let session = self.daemon.as_mut().and_then(|daemon| daemon.session.as_mut());
                    if let Some(session) = session {
                        // Without a link the helper gets an error, and reports the newest value again later.
                        let _ = session.devices(batch, devices);
                    }
                }
                Output::Tell(FromHelper::Keep { rows, .. }) => {
                    let Some(store) = self.store.as_mut().filter(|_| self.daemon.is_some()) else { continue };
                    store.write(|writer| {
                        rows.iter().try_for_each(|row| match row.record.is_empty() {
                            true => writer.forget_device(&row.uid),
                            false => writer.keep_device(&row.uid, &row.record, 0),
                        })
                    })?;
                }
                Output::Tell(_) => {}
                other => unreachable!("no mapper has registered: {other:?}"),
            }
        }
        Ok(any)
    }

    /// The last value that the sensor of a device has measured.
    pub fn temp(&self, name: &str) -> Option<u64> {
        self.sensors.temps.get(name).copied()
    }
}
