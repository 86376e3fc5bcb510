//! The running bridge: its API, its port for nodes, its process, its nodes. Asks them as an operator does.

mod findings;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::time::timeout;

use crate::bridge::is_revoked;
use crate::bridge::overview::NodeView;
use crate::bridge::requests::Requests;
use crate::info::{self, Info};
use crate::nodes::{PAGE, readiness};
use crate::operator::Operator;
use crate::pki::authority::Authority;

pub(super) use findings::judge;

/// A healthy API answers within this.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was seen; nothing where it could not be asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Whether the bridge has an API of its own.
    pub(super) standalone: bool,
    pub(super) now: Timestamp,
    /// What the bridge tells of itself through the API, or why the API does not.
    pub(super) info: Option<Result<Info, String>>,
    /// Address of the port of the nodes.
    pub(super) url: String,
    /// Answer of `/readyz` there.
    pub(super) ready: Option<Result<(), Refused>>,
    /// Its metrics.
    pub(super) metrics: Option<String>,
    /// Links of the nodes.
    pub(super) links: Option<Vec<NodeView>>,
    /// Status of the condition Ready of each node that is not revoked.
    pub(super) nodes: Option<HashMap<String, String>>,
}

/// Why `/readyz` was not 200.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// The bridge answered that it is not ready.
    NotReady(String),
    /// There was no answer.
    Unreached(String),
}

/// `bridge`: its address, if not as it advertises itself.
pub(super) async fn look(
    client: &kube::Client,
    authority: Option<&Authority>,
    bridge: Option<String>,
    standalone: bool,
) -> Facts {
    let now = apimachinery::clock::timestamp();
    let mut facts = Facts { standalone, now, ..Facts::default() };
    let info = match timeout(PATIENCE, info::read(client)).await {
        Ok(info) => info.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let url = bridge.or_else(|| info.as_ref().ok().map(|info| info.url.clone()));
    if info.is_ok() {
        let mut nodes = HashMap::new();
        let requests = Requests::new(client.clone());
        let listed = requests.each("/api/v1/nodes", "", PAGE, |node: Node| {
            if !is_revoked(&node.metadata) {
                nodes.insert(node.metadata.name.clone().unwrap_or_default(), readiness(&node));
            }
            true
        });
        if let Ok(Ok(_)) = timeout(PATIENCE, listed).await {
            facts.nodes = Some(nodes);
        }
    }
    facts.info = Some(info);
    if let (Some(url), Some(authority)) = (url, authority) {
        ask(&mut facts, authority, &url).await;
        facts.url = url;
    }
    facts
}

async fn ask(facts: &mut Facts, authority: &Authority, url: &str) {
    let operator = match Operator::new(authority, url) {
        Ok(operator) => operator,
        Err(error) => {
            facts.ready = Some(Err(Refused::Unreached(error.to_string())));
            return;
        }
    };
    facts.ready = Some(match operator.get("/readyz").await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(Refused::NotReady(status.message.trim().replace('\n', "; "))),
        Err(error) => Err(Refused::Unreached(whole(&error))),
    });
    facts.metrics = operator.get("/metrics").await.ok();
    let links = operator.get("/v1/nodes").await.ok();
    facts.links = links.and_then(|text| serde_json::from_str(&text).ok());
}

/// An error with its causes: the outer one often says only that there was one.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
