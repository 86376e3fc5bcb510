//! HorizontalPodAutoscalers: evaluates each of them periodically and scales its target by the usage of its pods (K8s
//! pkg/controller/podautoscaler). It is separate from the workload controllers because it asks for metrics, which takes
//! seconds if a node is offline. Between two evaluations it keeps only its recommendations. Pure functions decide; this
//! file reads, calls them and writes.

mod api;
mod conditions;
mod decide;
mod known;
mod limits;
mod memory;
mod metrics;
mod options;
mod pods;
mod replica_calculator;
mod seen;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use apimachinery::panics;
use apimachinery::selector::LabelSelector;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::events::{Recorder, event};
use crate::rate::Rate;
use crate::watch;
use apimachinery::pace::sleep_until;
use decide::{Decision, Now, Told};
use known::Known;
use memory::Memory;
pub use options::Options;
use seen::{Scale, Seen};

const COMPONENT: &str = "horizontal-pod-autoscaler";
/// Maximum number of autoscalers that are evaluated at a time.
const AT_ONCE: usize = 8;
/// A step of the evaluation of an autoscaler, which takes time.
enum Step {
    Looked(Seen),
    Scaled(Decision, Result<(), String>),
    Written(Decision),
}

type Done = (ObjectKey, Arc<HorizontalPodAutoscaler>, Step);

/// Runs until dropped.
pub async fn run(client: Client, options: Options) {
    let mut watched = pin!(watch::all::<HorizontalPodAutoscaler>(&client));
    let events = Recorder::new(client.clone());
    let (start, rate) = (Instant::now(), known::rate());
    let mut controller = Controller { client, options, start, known: BTreeMap::new(), rate, events };
    let mut steps: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
    loop {
        let due = controller.due().filter(|_| steps.len() < AT_ONCE);
        let due = due.and_then(|due| controller.start.checked_add(due));
        tokio::select! {
            Some(event) = watched.next() => match event {
                Ok(event) => controller.watched(event),
                Err(error) => log::warn!("{COMPONENT}: watching: {error}"),
            },
            () = sleep_until(due) => steps.extend(controller.next()),
            Some(done) = steps.next() => steps.extend(controller.step(done)),
            () = controller.events.write_next(), if !controller.events.is_empty() => {}
        }
    }
}

struct Controller {
    client: Client,
    options: Options,
    start: Instant,
    known: BTreeMap<ObjectKey, Known>,
    /// Recent evaluations for each namespace.
    rate: Rate,
    events: Recorder,
}

impl Controller {
    fn now(&self) -> Now {
        let clock = Timestamp::now();
        Now { passed: self.start.elapsed(), clock: Timestamp::from_second(clock.as_second()).unwrap_or(clock) }
    }

    fn watched(&mut self, event: Event<HorizontalPodAutoscaler>) {
        match event {
            Event::Init => self.known.values_mut().for_each(|known| known.listed = false),
            Event::InitApply(object) | Event::Apply(object) => self.learn(object),
            Event::InitDone => self.known.retain(|_, known| known.listed),
            Event::Delete(object) => drop(self.known.remove(&key_of(&object))),
        }
    }

    /// A new autoscaler is evaluated after one period, as in Kubernetes.
    fn learn(&mut self, object: HorizontalPodAutoscaler) {
        let due = Some(self.start.elapsed().saturating_add(self.options.sync_period));
        let (key, object) = (key_of(&object), Arc::new(object));
        match self.known.get_mut(&key).filter(|known| known.object.metadata.uid == object.metadata.uid) {
            Some(known) => (known.object, known.listed) = (object, true),
            None => drop(self.known.insert(key, Known { object, memory: Memory::default(), due, listed: true })),
        }
    }

    fn due(&self) -> Option<Duration> {
        known::next(&self.known, &self.rate, self.start.elapsed()).map(|(due, _)| due)
    }

    /// Starts to evaluate the next autoscaler, if one is due.
    fn next(&mut self) -> Option<BoxFuture<'static, Done>> {
        let now = self.start.elapsed();
        let (_, key) = known::next(&self.known, &self.rate, now).filter(|(due, _)| *due <= now)?;
        let key = key.clone();
        let known = self.known.get_mut(&key)?;
        known.due = None;
        self.rate.spend(&key.namespace, 1, now);
        let (object, client) = (Arc::clone(&known.object), self.client.clone());
        let look = async move {
            let seen = api::look(&client, &object).await;
            (key, object, Step::Looked(seen))
        };
        Some(look.boxed())
    }

    /// Continues after a step. Drops the evaluation if the object was deleted or replaced.
    fn step(&mut self, (key, object, step): Done) -> Option<BoxFuture<'static, Done>> {
        let now = self.now();
        self.known.get(&key).filter(|known| known.object.metadata.uid == object.metadata.uid)?;
        match step {
            Step::Looked(seen) => {
                let Some(decision) = self.decide(&key, &object, &seen, now) else { return self.end(&key) };
                match (&decision.rescale, seen.scale) {
                    (Some(to), Ok(scale)) => {
                        let to = to.to;
                        Some(scaling(self.client.clone(), key, object, decision, scale, to))
                    }
                    _ => Some(writing(self.client.clone(), key, object, decision, now)),
                }
            }
            Step::Scaled(mut decision, done) => {
                let has_behavior = object.spec.behavior.is_some();
                if let Some(known) = self.known.get_mut(&key) {
                    decision.rescaled(done, has_behavior, &mut known.memory, now);
                }
                Some(writing(self.client.clone(), key, object, decision, now))
            }
            Step::Written(decision) => {
                decision.told.into_iter().for_each(|told| self.events.record(event(&object, told)));
                self.end(&key)
            }
        }
    }

    fn end(&mut self, key: &ObjectKey) -> Option<BoxFuture<'static, Done>> {
        let due = self.start.elapsed().saturating_add(self.options.sync_period);
        self.known.get_mut(key)?.due = Some(due);
        None
    }

    fn decide(&mut self, key: &ObjectKey, object: &HorizontalPodAutoscaler, seen: &Seen, now: Now) -> Option<Decision> {
        let first = ObjectKey { namespace: key.namespace.clone(), name: String::new() };
        let of_namespace = self.known.range(first..).take_while(|(other, _)| other.namespace == key.namespace);
        let others: Vec<(String, LabelSelector)> = of_namespace
            .filter(|(other, _)| *other != key)
            .filter_map(|(other, known)| Some((other.name.clone(), known.memory.selector.clone()?)))
            .collect();
        let (known, options) = (self.known.get_mut(key)?, self.options);
        let name = decide::reference(object);
        panics::shield(name, || decide::decide(object, seen, &others, &mut known.memory, &options, now))
    }
}

/// The `scale` of an object, whatever its kind.
pub(crate) async fn scale(
    client: &Client,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Result<serde_json::Value, String> {
    let target = CrossVersionObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    api::scale_of(client, namespace, &target).await.map(|scale| scale.object)
}

fn key_of(object: &HorizontalPodAutoscaler) -> ObjectKey {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    ObjectKey { namespace: text(&object.metadata.namespace), name: text(&object.metadata.name) }
}

fn scaling(
    client: Client,
    key: ObjectKey,
    object: Arc<HorizontalPodAutoscaler>,
    decision: Decision,
    scale: Scale,
    to: i32,
) -> BoxFuture<'static, Done> {
    async move {
        let done = api::rescale(&client, scale, to).await;
        (key, object, Step::Scaled(decision, done))
    }
    .boxed()
}

fn writing(
    client: Client,
    key: ObjectKey,
    object: Arc<HorizontalPodAutoscaler>,
    decision: Decision,
    now: Now,
) -> BoxFuture<'static, Done> {
    async move {
        if let Some(status) = decision.status(&object, now) {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(client, &key.namespace);
            let new = HorizontalPodAutoscaler { status: Some(status), ..(*object).clone() };
            let params = PostParams::default();
            let write = api.replace_status(&key.name, &params, &new);
            match tokio::time::timeout(api::PATIENCE, write).await {
                Ok(Ok(_)) => {}
                // Another client wrote first; the next evaluation writes again.
                Ok(Err(error)) => log::info!("{COMPONENT}: status of {}/{}: {error}", key.namespace, key.name),
                Err(_) => log::info!("{COMPONENT}: status of {}/{}: no answer", key.namespace, key.name),
            }
        }
        (key, object, Step::Written(decision))
    }
    .boxed()
}

fn event(object: &HorizontalPodAutoscaler, told: Told) -> event::Event {
    let meta = &object.metadata;
    let about = ObjectReference {
        api_version: Some("autoscaling/v2".to_owned()),
        kind: Some("HorizontalPodAutoscaler".to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    };
    let kind = if told.warning { "Warning" } else { "Normal" };
    event::Event { about, kind, reason: told.reason, message: told.message, component: COMPONENT, action: None }
}
