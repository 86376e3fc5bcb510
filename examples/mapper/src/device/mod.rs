//! The task of one device: writes desired values, and reads and reports properties in their intervals. Separate tasks,
//! so that no device waits for another one's hardware.
//!
//! | file | owns |
//! |---|---|
//! | `write` | desired values on their way to hardware |
//! | `report` | values and states on their way to the node |

mod report;
mod write;

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::drivers::{Driver, Fault};
use crate::edge::Edge;
use crate::health::{Health, State};
use crate::once::Once;
use crate::plan::{Plan, Property};
use crate::progress::{Progress, Reading, Retry, adapt};
use crate::value;
use crate::written::Written;

/// State that all devices of a protocol share.
#[derive(Debug)]
pub struct Shared<D> {
    pub driver: D,
    pub edge: Edge,
    pub written: Written,
    /// Changes with each registration.
    pub registered: watch::Sender<u64>,
}

struct Device<D: Driver> {
    shared: Rc<Shared<D>>,
    plan: Plan<D::Point>,
    /// Progress of the plan's properties, in their order.
    progress: Vec<Progress>,
    /// The property to read first: the one after the last silent one.
    first: usize,
    health: Health,
    told: Option<State>,
    state_at: Instant,
    edge: Retry,
    once: Once,
}

/// Runs until the plan's sender is gone.
pub async fn drive<D: Driver>(shared: Rc<Shared<D>>, mut plans: watch::Receiver<Plan<D::Point>>) {
    let plan = plans.borrow_and_update().clone();
    let now = Instant::now();
    let progress = plan.properties.iter().map(|_| Progress::new(now)).collect();
    let (health, once) = (Health::default(), Once::default());
    let edge = Retry::at(now);
    let mut registered = shared.registered.subscribe();
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
            // The node may be a new one without state. The sender is in `shared`.
            _ = registered.changed() => device.tell_all(),
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

    fn tell_all(&mut self) {
        let now = Instant::now();
        (self.told, self.edge) = (None, Retry::at(now));
        self.progress.iter_mut().for_each(|progress| progress.report_at = now);
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
}
