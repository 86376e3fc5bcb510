//! Requests of the node's pods to the API: which are passed on, and how many at a time.

use std::sync::Arc;

use apimachinery::panics;
use edge_protocol::message::{ApiRequest, StreamId};

use super::Connection;
use crate::bridge::api_proxy::head::{self, PodClaim, Refusal};
use crate::bridge::api_proxy::upstream::Upstream;
use crate::bridge::api_proxy::{self, EACH_POD, PodStream, RequestShare};
use crate::bridge::counters;
use crate::bridge::told::kinds::Kind;

impl Connection {
    /// Starts the request that a pod has opened a stream for, or refuses it.
    pub(super) fn pod_request(&mut self, stream: StreamId, request: ApiRequest) {
        counters::POD_REQUESTS.one();
        let now = self.now();
        let early = || Refusal::busy("the pods of this node send too many requests, please try again later");
        let admitted = if self.pod_rate.take(now) { self.admit(&request) } else { Err(early()) };
        // A connection that is being replaced has no link any more, and its streams end with it.
        let link = self.node.link().filter(|link| link.session == self.session.session());
        match (admitted, link) {
            (Ok((upstream, claim, share)), Some(link)) => {
                let name = self.node.name.clone();
                self.streams.accept(stream, claim, move |opened| {
                    let stream = PodStream::new(opened, link.commands, share);
                    let served = api_proxy::serve(upstream, request, stream);
                    tokio::spawn(panics::isolate(format!("request of a pod of node {name}"), served)).abort_handle()
                });
            }
            (Ok(_), None) => self.session.stream_end(stream, Some("the connection has been replaced".to_owned())),
            (Err(refusal), _) => {
                counters::POD_REQUESTS_REFUSED.one();
                log::debug!("node {}: a request of a pod is refused with {}", self.node.name, refusal.code);
                let records = refusal.records(request.method == "HEAD");
                // Without credit for so few bytes the node cannot want to know.
                let ended = self.session.stream_send(stream, &records).err().map(|error| error.to_string());
                self.session.stream_end(stream, ended);
            }
        }
    }

    /// Ends what pods have begun that the node has no more: a watch would outlive its pod for as long as the API lets it.
    pub(super) fn end_requests_of_deleted(&mut self) {
        let state = self.node.state();
        self.streams.end_requests(&mut self.session, |claim| {
            let held = state.uid(&Kind::Pod.key(claim.namespace.as_str(), claim.name.as_str()));
            head::is_bound(claim, held, state.is_listed()).is_err_and(|refusal| refusal.code == 403)
        });
    }

    fn admit(&self, request: &ApiRequest) -> Result<(Arc<Upstream>, PodClaim, RequestShare), Refusal> {
        let none = || Refusal::unavailable("this bridge passes on no requests of pods");
        let upstream = self.shared.settings.pod_requests.clone().ok_or_else(none)?;
        let claim = head::pod_of(request)?;
        {
            let state = self.node.state();
            let held = state.uid(&Kind::Pod.key(claim.namespace.as_str(), claim.name.as_str()));
            head::is_bound(&claim, held, state.is_listed())?;
        }
        if self.streams.requests_of(&claim.uid) >= EACH_POD {
            return Err(Refusal::busy("too many requests of this pod are under way, please try again later"));
        }
        let share = self.shared.request_memory.take(&claim.namespace, &self.node.name)?;
        Ok((upstream, claim, share))
    }
}
