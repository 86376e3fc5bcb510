//! The Services of one namespace, as environments of pods need them: name, address and ports. One object for all of
//! them, so that a node holds no more, and other changes cause no traffic on the link.

mod state;

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};

use super::news::{Subscription, What, watch_failure};
use crate::bridge::ApiAddress;
use crate::bridge::resource::resource;
use crate::bridge::told::groups::API_SERVICE;
use apimachinery::well_known::PAGE;
use state::State;

/// Pause after each object, in multiples of the time that it took: it contains all Services, and many change together.
const REST: u32 = 20;
/// Limit of that pause.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Follows until aborted. The key's name says which Services: all of the namespace, or the API's own. For the latter,
/// `api_address` is used instead, if it is set.
pub(super) async fn watch_service_links(client: Client, api_address: Option<ApiAddress>, to: Subscription) {
    let key = &to.key;
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource("v1", "Service", "services"));
    let config = match key.name.as_str() {
        API_SERVICE => watcher::Config::default().page_size(PAGE).fields(&format!("metadata.name={API_SERVICE}")),
        _ => watcher::Config::default().page_size(PAGE),
    };
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut state = State::default();
    // When the next object may be made.
    let mut rest = Instant::now();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = sleep_until(rest), if state.is_due() => {
                let begun = Instant::now();
                let object = state.object(key, api_address.as_ref());
                rest = begun + (begun.elapsed() * REST).min(LONGEST_REST);
                if let Some(object) = object
                    && to.tell(What::Present(object)).await.is_none()
                {
                    return;
                }
                continue;
            }
        };
        match event {
            Ok(None) => return,
            Ok(Some(event)) => state.take(event),
            Err(error) => {
                log::warn!("watching the services of namespace {}: {error}", key.namespace);
                if let Some(what) = state.fail(watch_failure(&error))
                    && to.tell(what).await.is_none()
                {
                    return;
                }
            }
        }
    }
}
