//! Test bench for the core: feeds it events and returns its outputs.

mod allowed;
mod cloud;
mod history;
mod keep;
mod mappers;
mod mappers_random;
mod mqtt;
mod random;

use edge_protocol::message::DeviceReport;
use sampan_devices_control::{CheckValues, FromHelper, Kind, Mqtt, Named, Row, Settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

/// The clock begins here.
const START: Now = Now { mono: 1_000, wall: 1_700_000_000_000 };
const UID: &str = "uid-1";

struct World {
    twins: Twins,
    now: Now,
    said: Vec<Output>,
}

fn id(name: &str) -> Named {
    Named { namespace: "default".into(), name: name.into() }
}

fn settings() -> Settings {
    Settings { mqtt: Some(Mqtt::default()), ..Settings::default() }
}

fn model() -> Value {
    json!({"spec": {"properties": [
        {"name": "temp", "type": "FLOAT", "minimum": "-40", "maximum": "125", "accessMode": "ReadOnly"},
        {"name": "led", "type": "STRING", "accessMode": "ReadWrite"},
    ]}})
}

fn device(led: &str) -> Value {
    json!({"metadata": {"labels": {"description": "bench"}}, "spec": {"deviceModelRef": {"name": "lab"}, "properties": [
        {"name": "temp", "desired": {"value": ""}}, {"name": "led", "desired": {"value": led}},
    ]}})
}

impl World {
    /// A world with a daemon that has sent nothing yet, and a broker.
    fn new(settings: &Settings) -> Self {
        let mut world = Self { twins: Twins::new("edge-1".into(), settings, 1), now: START, said: Vec::new() };
        world.twins.daemon_came(world.now);
        world.twins.broker(world.now, true);
        world
    }

    /// The device `t1` of the model `lab` with a link to the bridge.
    fn lab(led: &str) -> Self {
        let mut world = Self::new(&settings());
        world.model();
        world.device("t1", UID, device(led));
        world.twins.told(world.now);
        world.link(true);
        world
    }

    fn model(&mut self) {
        self.twins.object(self.now, Kind::DeviceModel, id("lab"), "model".into(), &model());
    }

    fn device(&mut self, name: &str, uid: &str, body: Value) {
        self.twins.object(self.now, Kind::Device, id(name), uid.into(), &body);
    }

    fn link(&mut self, up: bool) {
        self.twins.link(self.now, up, true);
    }

    /// Advances the clock without events.
    fn wait(&mut self, millis: u64) {
        self.now.mono += millis;
        self.now.wall += millis;
    }

    fn tick(&mut self) -> &mut Self {
        self.twins.tick(self.now, 100);
        self.said.extend(self.twins.outputs());
        assert!(self.twins.wake().is_none_or(|at| at > self.now.mono), "it would never rest");
        self
    }

    fn say(&mut self, topic: &str, text: &str) -> &mut Self {
        self.twins.message(self.now, topic, Some(text.as_bytes()), false);
        self.tick()
    }

    /// `what` is the end of a topic of `t1`.
    fn t1(&mut self, what: &str, text: &str) -> &mut Self {
        self.say(&format!("$hw/events/device/default/t1/{what}"), text)
    }

    fn report(&mut self, property: &str, value: &str) -> &mut Self {
        let value = json!(value);
        self.t1(
            "twin/update",
            &format!(r#"{{"event_id":"7","twin":{{"{property}":{{"actual":{{"value":{value}}}}}}}}}"#),
        )
    }

    /// Messages so far, their topics without what is common.
    fn published(&mut self) -> Vec<(String, String)> {
        let mut published = Vec::new();
        self.said.retain(|said| {
            let Output::Publish(Message { topic, payload }) = said else { return true };
            let topic = topic.trim_start_matches("$hw/events/").trim_start_matches("device/default/");
            published.push((topic.to_owned(), String::from_utf8(payload.clone()).expect("JSON")));
            false
        });
        published
    }

    /// The one message of this topic.
    fn heard(&mut self, topic: &str) -> String {
        let mut heard: Vec<_> = self.published().into_iter().filter(|(heard, _)| heard == topic).collect();
        assert_eq!(heard.len(), 1, "{heard:?}");
        heard.remove(0).1
    }

    fn topics(&mut self) -> Vec<String> {
        self.published().into_iter().map(|(topic, _)| topic).collect()
    }

    /// Code of the one refusal.
    fn refused(&mut self, topic: &str) -> u64 {
        let heard: Value = serde_json::from_str(&self.heard(topic)).expect("JSON");
        heard["code"].as_u64().expect("a code")
    }

    /// Reports so far.
    fn reports(&mut self) -> Vec<(u64, Vec<DeviceReport>)> {
        let mut reports = Vec::new();
        self.said.retain(|said| {
            let Output::Tell(FromHelper::Report { batch, devices }) = said else { return true };
            let read = |device| DeviceReport::deserialize(device).expect("a report");
            reports.push((*batch, devices.iter().map(read).collect()));
            false
        });
        reports
    }

    /// The one report of the one batch, which is acknowledged.
    fn acked(&mut self) -> DeviceReport {
        let mut reports = self.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        let (batch, mut devices) = reports.remove(0);
        assert_eq!(devices.len(), 1, "{devices:?}");
        self.twins.acked(self.now, batch, &[]);
        devices.remove(0)
    }

    /// Rows that were given to be kept so far.
    fn kept(&mut self) -> Vec<Row> {
        let mut kept = Vec::new();
        self.said.retain(|said| {
            let Output::Tell(FromHelper::Keep { rows, .. }) = said else { return true };
            kept.extend(rows.iter().cloned());
            false
        });
        kept
    }

    /// `t1` as it is: property, then `expected` or `actual`.
    fn twin(&mut self, property: &str, which: &str) -> Option<String> {
        self.said.clear();
        self.t1("twin/get", "{}");
        let heard: Value = serde_json::from_str(&self.heard("t1/twin/get/result")).expect("JSON");
        heard["twin"][property][which]["value"].as_str().map(str::to_owned)
    }
}

/// The reported value of a property.
fn reported<'a>(report: &'a DeviceReport, property: &str) -> Option<&'a str> {
    let twin = report.twins.iter().find(|twin| twin.property == property)?;
    twin.reported.as_ref().map(|reported| reported.value.as_str())
}

fn observed<'a>(report: &'a DeviceReport, property: &str) -> Option<&'a str> {
    let twin = report.twins.iter().find(|twin| twin.property == property)?;
    twin.observed.as_ref().map(|observed| observed.value.as_str())
}
