//! The answer without the link: what the same ServiceAccount last read at the same path; a watch without events until
//! the link is back; an error for anything else. Writes are never queued and never repeated.

use std::rc::Rc;
use std::time::Duration;

use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, WARNING};
use jiff::Timestamp;
use tokio::time::timeout;

use super::body::{Content, Kept, Silence};
use super::job::Job;
use super::refusal::Refusal;
use crate::asked::Asked;

/// Why the API does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// There is no link: the request was not sent.
    NoLink,
    /// It was sent.
    NoAnswer,
}

/// What a pod gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Kept,
    Silence,
    Unavailable,
    /// An error that no client takes as a reason to try again.
    Unknown,
}

fn plan(asked: &Asked, method: &str, why: Why, is_down: bool) -> Plan {
    let reads = matches!(method, "GET" | "HEAD");
    match why {
        _ if asked.is_kept => Plan::Kept,
        // A client waits for the end of initial events without a limit (client-go tools/cache/reflector.go).
        _ if asked.is_watch && is_down && !asked.wants_initial_events => Plan::Silence,
        Why::NoAnswer if !reads => Plan::Unknown,
        _ => Plan::Unavailable,
    }
}

pub(super) fn answer(job: Job, why: Why) -> Result<Response<Content>, Refusal> {
    let since = job.shared.down_since();
    let message = since.map_or_else(
        || "the API does not answer".to_owned(),
        |since| format!("there is no link to the API since {}", time(since)),
    );
    match plan(&job.asked, &job.request.method, why, since.is_some()) {
        Plan::Kept => {
            kept(&job, why).ok_or_else(|| Refusal::unavailable(&format!("{message}, and this was not read before")))
        }
        Plan::Silence => Ok(silence(job)),
        Plan::Unavailable => Err(Refusal::unavailable(&message)),
        Plan::Unknown => Err(Refusal::no_answer()),
    }
}

/// What the ServiceAccount last read at this path.
pub(super) fn kept(job: &Job, why: Why) -> Option<Response<Content>> {
    let account = &job.who.account;
    let (answer, read_ms) = job.shared.cache.borrow_mut().get(&job.asked.key(account), account)?;
    let page = answer.page(&job.asked.page)?;
    let body = Kept {
        answer: Rc::clone(&answer),
        page: job.asked.page.clone(),
        sent: 0,
        _under_way: Rc::clone(&job.under_way),
    };
    let mut response = Response::new(Content::Kept(body));
    for (name, value) in &page.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str())) {
            response.headers_mut().append(name, value);
        }
    }
    let warning = warning(job.shared.down_since(), why, read_ms);
    if let Ok(warning) = HeaderValue::try_from(warning) {
        response.headers_mut().append(WARNING, warning);
    }
    job.shared.count(|counters| counters.offline += 1);
    Some(response)
}

/// Header of RFC 7234 5.5, which clients of Kubernetes show.
fn warning(down_since: Option<u64>, why: Why, read_ms: u64) -> String {
    let read = time(read_ms);
    match (down_since, why) {
        (Some(since), _) => format!("299 - \"no link since {}: as read at {read}\"", time(since)),
        (None, _) => format!("299 - \"no answer of the API: as read at {read}\""),
    }
}

fn time(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1_000).unwrap_or_default();
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
}

fn silence(job: Job) -> Response<Content> {
    let Job { shared, asked, request, under_way, .. } = job;
    let limit = asked.timeout_s.map(Duration::from_secs);
    let end = Box::pin(async move {
        match limit {
            // The end is the same in both cases.
            Some(limit) => drop(timeout(limit, shared.link_is_up()).await),
            None => shared.link_is_up().await,
        }
    });
    let mut response = Response::new(Content::Silence(Silence { end, _under_way: under_way }));
    let kind = watch_kind(request.header("accept").unwrap_or_default());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Content type of a watch that a client accepts.
fn watch_kind(accept: &str) -> &'static str {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    if accept.contains(PROTOBUF) && !accept.contains("application/json") && !accept.contains("*/*") {
        "application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        "application/json"
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::ApiRequest;

    use super::*;

    fn plan_of(method: &str, path: &str, why: Why, is_down: bool) -> Plan {
        let request = ApiRequest { method: method.into(), path: path.into(), headers: Vec::new(), has_body: false };
        plan(&Asked::of(&request), method, why, is_down)
    }

    #[test]
    fn reads_are_kept_and_watches_are_silent() {
        assert_eq!(plan_of("GET", "/api/v1/pods", Why::NoLink, true), Plan::Kept);
        assert_eq!(plan_of("GET", "/api/v1/pods", Why::NoAnswer, false), Plan::Kept);
        assert_eq!(plan_of("GET", "/api/v1/pods?watch=1", Why::NoLink, true), Plan::Silence);
        assert_eq!(plan_of("GET", "/api/v1/pods?watch=1", Why::NoAnswer, false), Plan::Unavailable);
        assert_eq!(plan_of("GET", "/api/v1/pods?watch=1&sendInitialEvents=true", Why::NoLink, true), Plan::Unavailable);
        assert_eq!(plan_of("GET", "/healthz", Why::NoLink, true), Plan::Unavailable);
        assert_eq!(plan_of("HEAD", "/api/v1/pods", Why::NoAnswer, true), Plan::Unavailable);
    }

    #[test]
    fn write_that_was_sent_is_not_offered_again() {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(plan_of(method, "/api/v1/pods", Why::NoLink, true), Plan::Unavailable, "{method}");
            assert_eq!(plan_of(method, "/api/v1/pods", Why::NoAnswer, true), Plan::Unknown, "{method}");
        }
    }

    #[test]
    fn warning_names_both_times() {
        assert_eq!(
            warning(Some(1_790_000_460_000), Why::NoLink, 1_790_000_340_999),
            "299 - \"no link since 2026-09-21T14:21:00Z: as read at 2026-09-21T14:19:00Z\""
        );
        assert!(warning(None, Why::NoAnswer, 0).starts_with("299 - \"no answer of the API: as read at 1970-01-01T"));
    }

    #[test]
    fn silent_watch_has_a_type_that_the_client_accepts() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(watch_kind(""), "application/json");
        assert_eq!(watch_kind(&format!("{protobuf},application/json")), "application/json");
        assert_eq!(watch_kind(protobuf), "application/vnd.kubernetes.protobuf;stream=watch");
    }
}
