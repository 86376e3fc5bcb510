//! Answers that are read on request: from the API one node, fleet jobs, devices, CPU and memory; from the board pods.

use std::time::Duration;

use http::{Response, StatusCode};
use serde_json::json;

use super::{Refusal, Served, away, json_of, value};
use crate::kubelet::auth::Denied;
use crate::page::access::Who;
use crate::page::board::Search;
use crate::page::body::Body;
use crate::page::stream::Seat;
use crate::page::{detail, devices, usage};
use crate::pki::identity::is_node_name;

/// Pause of a search after each slice of about a millisecond: the links of nodes share its thread.
const REST: Duration = Duration::from_millis(3);

impl Served {
    /// Answers about the nodes in the path.
    pub(super) async fn of_nodes(&self, who: &Who, path: &str, packs: bool) -> Result<Response<Body>, Refusal> {
        let nothing = || Refusal(StatusCode::NOT_FOUND, "there is nothing here".to_owned());
        if let Some(names) = path.strip_prefix("/api/usage/") {
            let names: Vec<String> = names.split(',').map(str::to_owned).collect();
            let valid = names.len() <= usage::NODES && names.iter().all(|name| is_node_name(name));
            return if valid { self.usage_of_nodes(who, names, packs).await } else { Err(nothing()) };
        }
        let node = path.strip_prefix("/api/nodes/").ok_or_else(nothing)?;
        let (name, is_usage) = node.strip_suffix("/usage").map_or((node, false), |name| (name, true));
        match is_node_name(name) {
            true if is_usage => self.usage_of_node(who, name, packs).await,
            true => self.node(who, name, packs).await,
            false => Err(nothing()),
        }
    }

    async fn usage_of_nodes(&self, who: &Who, names: Vec<String>, packs: bool) -> Result<Response<Body>, Refusal> {
        self.access.may_list(who, usage::GROUP, "nodes").await?;
        let used = self.usage.of_nodes(&self.client, self.shown(names)).await;
        Ok(json_of(used.to_string().into(), packs).await)
    }

    /// Those of these nodes that are shown: each name costs a request of the API, and a user may invent names.
    fn shown(&self, mut names: Vec<String>) -> Vec<String> {
        let board = self.live.board();
        names.retain(|name| board.has(name));
        names
    }

    /// The node, and its pods for users who may list these measurements, too.
    async fn usage_of_node(&self, who: &Who, name: &str, packs: bool) -> Result<Response<Body>, Refusal> {
        self.access.may_list(who, usage::GROUP, "nodes").await?;
        let names = self.shown(vec![name.to_owned()]);
        if names.is_empty() {
            return Ok(json_of(json!({"node": null, "pods": []}).to_string().into(), packs).await);
        }
        let nodes = self.usage.of_nodes(&self.client, names).await;
        let pods = match self.access.may_list(who, usage::GROUP, "pods").await {
            Ok(()) => self.usage.of_pods(&self.client, name).await.map_err(|error| away(&error))?,
            Err(Denied::Forbidden { .. }) => Vec::new(),
            Err(denied) => return Err(denied.into()),
        };
        Ok(json_of(json!({"node": nodes[name], "pods": pods}).to_string().into(), packs).await)
    }

    async fn node(&self, who: &Who, name: &str, packs: bool) -> Result<Response<Body>, Refusal> {
        let _seat = self.seat(who)?;
        // Never closed.
        let _turn = self.details.acquire().await;
        let timeline = self.live.board().timeline(name);
        let read = detail::read(&self.client, name, self.bridge.node_view(name), timeline).await;
        let node = read.map_err(|error| away(&error))?;
        let absent = || Refusal(StatusCode::NOT_FOUND, format!("there is no node {name}"));
        Ok(json_of(node.ok_or_else(absent)?.to_string().into(), packs).await)
    }

    /// Pods of all nodes that match the words of `filter`: those behind the place `after`.
    pub(super) async fn pods(&self, who: &Who, query: &str, packs: bool) -> Result<Response<Body>, Refusal> {
        let bad = || Refusal(StatusCode::BAD_REQUEST, "the filter is too long, or after is unknown".to_owned());
        let [filter, after] = ["filter", "after"].map(|name| value(query.as_bytes(), name));
        let mut search = Search::new(&filter, &after).ok_or_else(bad)?;
        let _seat = self.seat(who)?;
        // Never closed.
        let _turn = self.searches.acquire().await;
        while self.goes_on(&mut search) {
            tokio::time::sleep(REST).await;
        }
        Ok(json_of(search.answer().into(), packs).await)
    }

    /// A place in a line. Without a limit, others would wait for all that one user asks.
    fn seat(&self, who: &Who) -> Result<Seat, Refusal> {
        let full = || Refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests are waiting: try again".to_owned());
        self.asking.take(who.name()).ok_or_else(full)
    }

    fn goes_on(&self, search: &mut Search) -> bool {
        self.live.board().search(search)
    }

    pub(super) async fn jobs(&self, packs: bool) -> Result<Response<Body>, Refusal> {
        let text = self.jobs.read(&self.client).await.map_err(|error| away(&error))?;
        Ok(json_of(text, packs).await)
    }

    /// Values of devices are for those who may list them.
    pub(super) async fn devices(&self, who: &Who, packs: bool) -> Result<Response<Body>, Refusal> {
        for resource in devices::RESOURCES {
            self.access.may_list(who, devices::GROUP, resource).await?;
        }
        let text = self.devices.read(&self.client).await.map_err(|error| away(&error))?;
        Ok(json_of(text, packs).await)
    }
}
