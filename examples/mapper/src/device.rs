//! One device at work: desired values are written, properties read and reported, each when its time has come. A task of its own, so
//! that no device waits for another one's hardware.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use sampan_dmi::{
    DeviceStatus, Empty, ReportDeviceStatesRequest, ReportDeviceStatusRequest, Twin, TwinProperty, manager,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::Code;

use crate::drivers::{Driver, Fault};
use crate::edge::{Edge, why};
use crate::health::{Health, State};
use crate::once::Once;
use crate::plan::{Id, Plan, Property};
use crate::progress::{Progress, Reading, Retry, adapt};
use crate::value;
use crate::written::Written;

/// What all devices of a protocol share.
#[derive(Debug)]
pub struct Shared<D> {
    pub driver: D,
    pub edge: Edge,
    pub written: Written,
}

struct Device<D: Driver> {
    shared: Rc<Shared<D>>,
    plan: Plan<D::Point>,
    /// Of the plan's properties, in their order.
    progress: Vec<Progress>,
    /// The property that is read first: behind the last one that was silent.
    first: usize,
    health: Health,
    told: Option<State>,
    state_at: Instant,
    edge: Retry,
    once: Once,
}

/// Until nobody plans it any more.
pub async fn drive<D: Driver>(shared: Rc<Shared<D>>, mut plans: watch::Receiver<Plan<D::Point>>) {
    let plan = plans.borrow_and_update().clone();
    let now = Instant::now();
    let progress = plan.properties.iter().map(|_| Progress::new(now)).collect();
    let (health, once) = (Health::default(), Once::default());
    let edge = Retry::at(now);
    let mut device = Device { shared, plan, progress, first: 0, health, told: None, state_at: now, edge, once };
    loop {
        device.write().await;
        device.collect().await;
        device.report().await;
        device.report_state().await;
        let wake = device.wake();
        tokio::select! {
            changed = plans.changed() => match changed {
                Ok(()) => device.adopt(plans.borrow_and_update().clone()),
                Err(_) => return,
            },
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
    }
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX))
}

impl<D: Driver> Device<D> {
    fn adopt(&mut self, plan: Plan<D::Point>) {
        let now = Instant::now();
        self.progress = adapt(&self.plan, &self.progress, &plan, now);
        if plan.state != self.plan.state {
            self.state_at = now;
        }
        (self.plan, self.first) = (plan, 0);
    }

    fn is_pending(&self, property: &Property<D::Point>) -> bool {
        let last = self.shared.written.get(&self.plan.id, &property.name);
        property.desired.as_ref().is_some_and(|desired| last.as_deref() != Some(desired.text.as_str()))
    }

    fn wake(&self) -> Option<Instant> {
        let properties = self.plan.properties.iter().zip(&self.progress);
        let of_properties = properties.flat_map(|(property, progress)| {
            let collect = property.to_cloud.then_some(progress.collect_at);
            let told = property.to_cloud && progress.reading.is_some();
            let report = told.then(|| progress.report_at.max(self.edge.at));
            let write = self.is_pending(property).then_some(progress.write.at);
            [collect, report, write]
        });
        let state = self.state_due().map(|at| at.max(self.edge.at));
        of_properties.chain([state]).flatten().min()
    }

    /// Each desired value once. What hardware has from earlier, when nobody knows whether it was written, is looked at first.
    async fn write(&mut self) {
        let Self { shared, plan, progress, once, .. } = self;
        for (property, progress) in plan.properties.iter().zip(progress.iter_mut()) {
            let (id, name) = (&plan.id, &property.name);
            let Some(desired) = &property.desired else {
                progress.seen = true;
                shared.written.forget(id, name).await;
                continue;
            };
            let last = shared.written.get(id, name);
            if last.as_deref() == Some(desired.text.as_str()) || progress.write.at > Instant::now() {
                continue;
            }
            let trouble = format!("desired value of {name}");
            let unknown = D::KEEPS && last.is_none() && !progress.seen;
            let done = match if unknown { Some(shared.driver.read(&property.point).await) } else { None } {
                Some(Ok(held)) if D::is_same(&property.point, &held, &desired.value) => {
                    log::info!("{id}: {name} is {} already", desired.text);
                    Ok(())
                }
                Some(Err(Fault::Silent(why))) => Err(Fault::Silent(why)),
                _ => shared.driver.write(&property.point, &desired.value).await.inspect(|()| {
                    log::info!("{id}: {name} is {} now", desired.text);
                }),
            };
            match done {
                Ok(()) => {
                    progress.seen = true;
                    shared.written.put(id, name, &desired.text).await;
                    once.over(id, &trouble);
                    let now = Instant::now();
                    (progress.collect_at, progress.report_at) = (now, now);
                }
                Err(fault) => {
                    once.warn(id, &trouble, &fault.to_string());
                    progress.write.again(Instant::now());
                    // The others wait as long as it does: each would wait for the same silence.
                    if matches!(fault, Fault::Silent(_)) {
                        break;
                    }
                }
            }
        }
    }

    async fn collect(&mut self) {
        let start = Instant::now();
        let Self { shared, plan, progress, once, .. } = self;
        let count = plan.properties.len();
        let in_turn = (0..count).map(|at| (self.first + at) % count);
        let due = |at: &usize| {
            let is_due = |progress: &Progress| progress.collect_at <= start;
            plan.properties.get(*at).is_some_and(|property| property.to_cloud) && progress.get(*at).is_some_and(is_due)
        };
        let due: Vec<usize> = in_turn.filter(due).collect();
        if due.is_empty() {
            return;
        }
        let (mut answered, mut silent) = (false, None);
        for at in &due {
            let (Some(property), Some(progress)) = (plan.properties.get(*at), progress.get_mut(*at)) else { continue };
            match shared.driver.read(&property.point).await {
                Ok(value) => {
                    answered = true;
                    once.over(&plan.id, &property.name);
                    progress.reading = Some(Reading { text: value::format(value, property.kind), at: wall() });
                }
                Err(Fault::Refused(why)) => {
                    answered = true;
                    once.warn(&plan.id, &property.name, &why);
                    progress.reading = None;
                }
                Err(Fault::Silent(why)) => {
                    once.warn(&plan.id, &property.name, &why);
                    progress.reading = None;
                    silent = Some(*at);
                    break;
                }
            }
        }
        self.health.round(answered);
        if let Some(at) = silent {
            self.first = (at + 1) % count;
        }
        let now = Instant::now();
        for at in due {
            if let (Some(property), Some(progress)) = (plan.properties.get(at), progress.get_mut(at)) {
                progress.collected(property.collect, self.health.pause(), now);
            }
        }
    }

    /// All that is due, in one call.
    async fn report(&mut self) {
        let now = Instant::now();
        if self.edge.at > now {
            return;
        }
        let (mut twins, mut due) = (Vec::new(), Vec::new());
        for (at, (property, progress)) in self.plan.properties.iter().zip(&self.progress).enumerate() {
            if !property.to_cloud || progress.report_at > now {
                continue;
            }
            let Some(reading) = &progress.reading else { continue };
            let value = |value: &str, at: String| {
                let kind = ("type".to_owned(), property.kind.name().to_owned());
                Some(TwinProperty { value: value.to_owned(), metadata: [kind, ("timestamp".to_owned(), at)].into() })
            };
            // Said with nothing in it, too: KubeEdge's edge dies of one that is missing.
            let written = self.shared.written.get(&self.plan.id, &property.name).unwrap_or_default();
            twins.push(Twin {
                property_name: property.name.clone(),
                observed_desired: value(&written, String::new()),
                reported: value(&reading.text, reading.at.to_string()),
            });
            due.push(at);
        }
        if twins.is_empty() {
            return;
        }
        let Id { namespace, name } = self.plan.id.clone();
        let reported = DeviceStatus { twins, ..DeviceStatus::default() };
        let request = ReportDeviceStatusRequest {
            device_name: name,
            reported_device: Some(reported),
            device_namespace: namespace,
        };
        if self.tell(manager::REPORT_DEVICE_STATUS, request, "report").await {
            for at in due {
                if let (Some(property), Some(progress)) = (self.plan.properties.get(at), self.progress.get_mut(at)) {
                    progress.reported(property.report, now);
                }
            }
        }
    }

    /// When the state is reported next.
    fn state_due(&self) -> Option<Instant> {
        let cycle = self.plan.state?;
        let state = self.health.state()?;
        if self.told != Some(state) {
            return Some(self.edge.at);
        }
        (!cycle.is_zero()).then_some(self.state_at)
    }

    async fn report_state(&mut self) {
        let now = Instant::now();
        let (Some(cycle), Some(state), Some(due)) = (self.plan.state, self.health.state(), self.state_due()) else {
            return;
        };
        if due > now || self.edge.at > now {
            return;
        }
        let Id { namespace: device_namespace, name: device_name } = self.plan.id.clone();
        let request = ReportDeviceStatesRequest { device_name, device_namespace, state: state.name().to_owned() };
        if self.tell(manager::REPORT_DEVICE_STATES, request, "state").await {
            if self.told.replace(state) != Some(state) {
                log::info!("{} is {}", self.plan.id, state.name());
            }
            self.state_at = now + cycle;
        }
    }

    async fn tell<Q>(&mut self, path: &'static str, request: Q, what: &str) -> bool
    where
        Q: sampan_dmi::Message + Send + Sync + 'static,
    {
        match self.shared.edge.call::<Q, Empty>(path, request).await {
            Ok(Empty {}) => {
                self.edge = Retry::at(Instant::now());
                self.once.over(&self.plan.id, what);
                true
            }
            Err(status) => {
                self.edge.again(Instant::now());
                // That nobody is there is said once for all devices, by who registers.
                if status.code() != Code::Unavailable {
                    self.once.warn(&self.plan.id, what, &why(&status));
                }
                false
            }
        }
    }
}
