//! Answers that are read from the API: one node, fleet jobs, devices.

use http::{Response, StatusCode};

use super::{Refusal, Served, away, json_of};
use crate::page::access::Who;
use crate::page::body::Body;
use crate::page::{detail, devices};

impl Served {
    pub(super) async fn node(&self, name: &str, packs: bool) -> Result<Response<Body>, Refusal> {
        // Never closed.
        let _turn = self.details.acquire().await;
        let timeline = self.live.board().timeline(name);
        let read = detail::read(&self.client, name, self.bridge.node_view(name), timeline).await;
        let node = read.map_err(|error| away(&error))?;
        let absent = || Refusal(StatusCode::NOT_FOUND, format!("there is no node {name}"));
        Ok(json_of(node.ok_or_else(absent)?.to_string().into(), packs).await)
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
