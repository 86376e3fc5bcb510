//! Writes the events of controllers into the API, each when there is nothing better to do.

mod correlator;
pub(crate) mod event;
mod form;
mod writing;

use std::collections::VecDeque;

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use correlator::{Correlator, Observed};
use event::Event;
use writing::Writing;

/// Events not yet written; beyond this the oldest are dropped, as they are only for people.
const WAITING_MAX: usize = 1024;

pub(crate) struct Recorder {
    client: Client,
    start: Instant,
    correlator: Correlator,
    waiting: VecDeque<Observed>,
    writing: Writing,
}

impl Recorder {
    pub(crate) fn new(client: Client) -> Self {
        let (correlator, waiting) = (Correlator::default(), VecDeque::new());
        Self { client, start: Instant::now(), correlator, waiting, writing: Writing::default() }
    }

    pub(crate) fn record(&mut self, event: Event) {
        let observed = self.correlator.correlate(event, Timestamp::now(), self.start.elapsed());
        let Some(observed) = observed else { return };
        // One that is yet to be written is written once, as often as it was counted.
        let waiting = self.waiting.iter_mut().find(|waiting| observed.count > 1 && waiting.name == observed.name);
        if let Some(waiting) = waiting {
            *waiting = observed;
            return;
        }
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(observed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.writing.is_idle()
    }

    /// Writes the oldest one. May be dropped half-way: the next call continues.
    pub(crate) async fn write_next(&mut self) {
        let (client, waiting) = (&self.client, &mut self.waiting);
        self.writing.go_on(|| Some(write(client.clone(), waiting.pop_front()?).boxed())).await;
    }
}

async fn write(client: Client, observed: Observed) {
    let namespace = observed.event.about.namespace.clone().filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    let api: Api<core::Event> = Api::namespaced(client, &namespace);
    if let Err(error) = try_to_write(&api, &observed).await {
        log::info!("{}: writing an event in {namespace}: {error}", observed.event.component);
    }
}

async fn try_to_write(api: &Api<core::Event>, observed: &Observed) -> kube::Result<()> {
    if observed.count > 1 {
        let patch = Patch::Merge(form::repetition(observed));
        match api.patch(&observed.name, &PatchParams::default(), &patch).await {
            // It has expired, or was never written.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other.map(drop),
        }
    }
    api.create(&PostParams::default(), &form::object(observed)).await.map(drop)
}
