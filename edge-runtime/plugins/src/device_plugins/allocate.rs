//! Order: choose devices, and have the plugin allocate them.

use std::rc::Rc;
use std::time::Duration;

use sampan_grpc::{Client, Code, Status};
use sampan_plugins_control::{Edits, FromHelper};
use tokio::time::sleep;

use crate::choose::Wanted;
use crate::connected::{Connected, text};
use crate::messages::allocated::Allocated;
use crate::messages::device_plugin::{ALLOCATE, PREFERRED, allocate_request, preferred, preferred_request};
use crate::shared::Shared;
use crate::{cdi, edits};

/// Timeout for a preference: without one devices are chosen as well.
const HINT: Duration = Duration::from_secs(10);
/// Timeout for an allocation: a plugin may reset its device or load firmware first. The kubelet waits without end, and
/// admits no pod meanwhile (K8s pkg/kubelet/cm/devicemanager/endpoint.go, `allocate`); here only containers for the same
/// plugin wait.
const DEADLINE: Duration = Duration::from_secs(120);
/// Until the end of a plugin's list of devices is known, when a call of it has failed.
const MOMENT: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) resource: String,
    pub(crate) had: Vec<String>,
    pub(crate) free: Vec<String>,
    pub(crate) count: u32,
    /// Pod and container, for messages.
    pub(crate) who: String,
}

/// What became of it.
pub(crate) async fn allocate(shared: &Rc<Shared>, id: u64, order: Order) -> FromHelper {
    let Order { resource, had, free, count, who } = order;
    let wanted = match Wanted::new(&resource, had, free, count) {
        Ok(wanted) => wanted,
        Err(why) => return FromHelper::Failed { id, why, gone: false },
    };
    let Some((number, connected)) = shared.plugins.borrow().connection(&resource) else {
        return not_connected(id, &resource);
    };
    match call(shared, &connected, &resource, wanted).await {
        Ok((ids, edits)) => {
            log::info!("{who}: {} devices of {resource}", ids.len());
            // It has lists and texts alone: nothing that JSON cannot have.
            let edits = serde_json::to_value(edits).unwrap_or_default();
            FromHelper::Allocated { id, ids, pre_start: connected.options.pre_start, edits }
        }
        Err(failure) => failure.answer(shared, id, &resource, number).await,
    }
}

async fn call(
    shared: &Shared,
    connected: &Connected,
    resource: &str,
    wanted: Wanted,
) -> Result<(Vec<String>, Edits), Failure> {
    let mut client = connected.client.lock().await;
    let hint = match connected.options.preferred && wanted.has_choice() {
        true => ask_preferred(&mut client, resource, &wanted).await,
        false => None,
    };
    let ids = wanted.choose(hint);
    let answer = client.call(ALLOCATE, &allocate_request(&ids), DEADLINE).await.map_err(Failure::Status)?;
    // The next order need not wait for files.
    drop(client);
    let wrong = |why: String| Failure::Wrong(format!("the plugin of {resource}: {why}"));
    let allocated = Allocated::read(&answer).map_err(wrong)?;
    let names = allocated.cdi_devices().map_err(wrong)?;
    let devices = cdi::resolve(&shared.settings.cdi_folders, &names).map_err(Failure::Wrong)?;
    let mut sources = vec![edits::of_plugin(resource, allocated)];
    sources.extend(devices);
    Ok((ids, edits::merge(sources).map_err(Failure::Wrong)?))
}

/// What the plugin prefers: a hint, without which devices are chosen as well.
async fn ask_preferred(client: &mut Client, resource: &str, wanted: &Wanted) -> Option<Vec<String>> {
    let request = preferred_request(&wanted.available(), wanted.had(), wanted.count());
    let answer = client.call(PREFERRED, &request, HINT).await.map_err(|status| text(&status));
    match answer.and_then(|answer| preferred(&answer)) {
        Ok(ids) if wanted.accepts(&ids) => Some(ids),
        Ok(ids) => {
            log::warn!("the plugin of {resource} prefers {} devices that are not those it was asked about", ids.len());
            None
        }
        Err(why) => {
            log::warn!("the plugin of {resource} has no preference: {why}");
            None
        }
    }
}

/// How an order has failed.
#[derive(Debug)]
pub(super) enum Failure {
    Status(Status),
    /// The answer cannot be used.
    Wrong(String),
}

impl Failure {
    pub(super) async fn answer(self, shared: &Shared, id: u64, resource: &str, number: u64) -> FromHelper {
        let status = match self {
            Self::Wrong(why) => return FromHelper::Failed { id, why, gone: false },
            Self::Status(status) => status,
        };
        // A plugin that ends breaks its list of devices as well, which is known a moment later.
        if status.code == Code::Unavailable {
            sleep(MOMENT).await;
        }
        let is_there = shared.plugins.borrow().connection(resource).is_some_and(|(now, _)| now == number);
        FromHelper::Failed { id, why: text(&status), gone: !is_there }
    }
}

pub(super) fn not_connected(id: u64, resource: &str) -> FromHelper {
    FromHelper::Failed { id, why: format!("no plugin of {resource} is connected"), gone: true }
}
