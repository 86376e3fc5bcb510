//! One request of a pod: who asks, what is passed on, and where the answer comes from.

use std::rc::Rc;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};

use super::body::Content;
use super::job::Job;
use super::offline::{self, Why};
use super::refusal::Refusal;
use super::seat::Seat;
use super::{filter, online};
use crate::asked::Asked;
use crate::pods::sha256;

pub(super) async fn handle(seat: &Seat, request: Request<Incoming>) -> Response<Content> {
    match serve(seat, request).await {
        Ok(answer) => answer,
        Err(refusal) => {
            if refusal.is_limit() {
                seat.shared.count(|counters| counters.over_limit += 1);
            }
            refusal.answer()
        }
    }
}

async fn serve(seat: &Seat, request: Request<Incoming>) -> Result<Response<Content>, Refusal> {
    let shared = &seat.shared;
    let (head, body) = request.into_parts();
    if !shared.pods.borrow().is_ready() {
        return Err(Refusal::not_ready());
    }
    // First of all: without a token that is known nothing else is looked at.
    let digest = filter::token(&head.headers).map(|token| sha256(token.as_bytes()));
    let who = digest.and_then(|digest| shared.pods.borrow().find(shared.now(), &digest));
    let Some(who) = who else {
        shared.count(|counters| counters.unknown += 1);
        return Err(Refusal::unknown_token());
    };
    if !seat.is_pod(&who.uid) {
        return Err(Refusal::too_many_connections());
    }
    if !shared.turn(&who).await {
        return Err(Refusal::too_many("pods of this node ask the API too often"));
    }
    let request = filter::request(&head, !body.is_end_stream())?;
    let asked = Asked::of(&request);
    if asked.wants_initial_events && shared.cache.borrow().is_on() {
        return Err(Refusal::initial_events());
    }
    let full = "too many requests of this pod are under way";
    let under_way = Rc::new(who.begin().ok_or_else(|| Refusal::too_many(full))?);
    let job = Job { shared: Rc::clone(shared), who, request, asked, under_way };
    match shared.relay().await {
        Some(relay) => online::answer(&relay, job, body).await,
        None => offline::answer(job, Why::NoLink),
    }
}
