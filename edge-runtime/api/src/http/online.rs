//! A request through the link, with the pod's own token.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::message::ApiAnswer;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use super::body::{Content, Flow};
use super::head::head;
use super::job::Job;
use super::keep::{Again, Keeping};
use super::offline::{self, Why};
use super::refusal::Refusal;
use super::upload::upload;
use crate::relay::{Relay, Stream};

/// Until the head of an answer must come: longer than the API's own limit of 60 s for a request.
const HEAD: Duration = Duration::from_secs(75);

/// Headers that are of a connection, and not of an answer.
const OF_CONNECTION: [&str; 8] =
    ["connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

pub(super) async fn answer(relay: &Rc<Relay>, job: Job, body: Incoming) -> Result<Response<Content>, Refusal> {
    let full = "too many requests of this node to the API are under way";
    let stream = relay.open(&job.request, job.under_way.is_only()).ok_or_else(|| Refusal::too_many(full))?;
    job.shared.count(|counters| counters.passed += 1);
    let answer = exchange(&stream, &job, body).await?;
    let Ok(answer) = answer else { return offline::answer(job, Why::NoAnswer) };
    if job.asked.is_kept
        && matches!(answer.status, 502..=504)
        && let Some(kept) = offline::kept(&job, Why::NoAnswer)
    {
        return Ok(kept);
    }
    flow(stream, job, &answer)
}

/// Sends the body and waits for the answer, which may come before the body has been sent.
async fn exchange(stream: &Stream, job: &Job, body: Incoming) -> Result<Result<ApiAnswer, String>, Refusal> {
    let mut answer = pin!(head(stream));
    if job.request.has_body {
        let sent = tokio::select! {
            biased;
            early = &mut answer => return Ok(early),
            sent = upload(stream, body) => sent,
        };
        sent?;
    }
    Ok(timeout(HEAD, answer).await.unwrap_or_else(|_| Err("no answer".to_owned())))
}

fn flow(stream: Stream, job: Job, answer: &ApiAnswer) -> Result<Response<Content>, Refusal> {
    let Job { shared, who, request, asked, under_way } = job;
    let status = StatusCode::from_u16(answer.status).ok().filter(|status| !status.is_informational());
    let status = status.ok_or_else(Refusal::bad_answer)?;
    let keeping = Keeping::new(&shared, &who.account, &asked, answer);
    let reads_again = asked.is_watch && status == StatusCode::OK && shared.cache.borrow().is_on();
    let again = reads_again.then(|| Again::start(&shared, &who.account, &request));
    let flow = Flow { stream, is_watch: asked.is_watch, keeping, _again: again, _under_way: under_way };
    let mut response = Response::new(Content::Flow(Box::new(flow)));
    *response.status_mut() = status;
    for (name, value) in &answer.headers {
        if !OF_CONNECTION.contains(&name.as_str())
            && let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()))
        {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}
