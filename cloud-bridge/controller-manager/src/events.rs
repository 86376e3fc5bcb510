//! Writes the events of controllers into the API, each when there is nothing better to do. What repeats is counted up, not
//! written again (K8s client-go tools/record).

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// Events not yet written; beyond this the oldest are dropped, as they are only for people.
const WAITING_MAX: usize = 1024;
/// Events that may still be counted up. Beyond this, all of them are written anew.
const KNOWN_MAX: usize = 1024;

/// What is told of an object.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) about: ObjectReference,
    /// `Normal` or `Warning`.
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) component: &'static str,
}

/// What makes two events the same.
type Same = (String, &'static str, String);

#[derive(Debug, Clone)]
struct Known {
    name: String,
    count: i32,
}

pub(crate) struct Recorder {
    client: Client,
    waiting: VecDeque<(Event, Timestamp)>,
    known: BTreeMap<Same, Known>,
}

impl Recorder {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, waiting: VecDeque::new(), known: BTreeMap::new() }
    }

    pub(crate) fn record(&mut self, event: Event) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((event, Timestamp::now()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the oldest one. May be dropped half-way: the event stays until it is written.
    pub(crate) async fn write_next(&mut self) {
        let Some((event, time)) = self.waiting.front().cloned() else { return };
        let namespace = event.about.namespace.clone().filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        let api: Api<core::Event> = Api::namespaced(self.client.clone(), &namespace);
        let same = (event.about.uid.clone().unwrap_or_default(), event.reason, event.message.clone());
        let written = match self.known.get(&same) {
            Some(known) => {
                let patch = json!({"count": known.count + 1, "lastTimestamp": Time(time)});
                let written = api.patch(&known.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                match written {
                    // It has expired.
                    Err(kube::Error::Api(status)) if status.code == 404 => create(&api, &event, time).await,
                    other => other,
                }
            }
            None => create(&api, &event, time).await,
        };
        self.waiting.pop_front();
        match written {
            Ok(written) => {
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                let name = written.metadata.name.unwrap_or_default();
                self.known.insert(same, Known { name, count: written.count.unwrap_or(1) });
            }
            // This event, written by an attempt that was dropped.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => log::info!("{}: writing an event in {namespace}: {error}", event.component),
        }
    }
}

async fn create(api: &Api<core::Event>, event: &Event, time: Timestamp) -> kube::Result<core::Event> {
    let about = event.about.name.as_deref().unwrap_or_default();
    let object = core::Event {
        metadata: ObjectMeta { name: Some(format!("{about}.{:x}", time.as_nanosecond())), ..ObjectMeta::default() },
        involved_object: event.about.clone(),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message.clone()),
        type_: Some(event.kind.to_owned()),
        source: Some(EventSource { component: Some(event.component.to_owned()), host: None }),
        reporting_component: Some(event.component.to_owned()),
        first_timestamp: Some(Time(time)),
        last_timestamp: Some(Time(time)),
        count: Some(1),
        ..core::Event::default()
    };
    api.create(&PostParams::default(), &object).await
}
