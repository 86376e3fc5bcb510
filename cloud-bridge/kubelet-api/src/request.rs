//! What is asked of a kubelet: its paths and their parameters. Pure.

use http::{Method, Uri};

use crate::backend::LogOptions;
use crate::streaming::StreamRequest;
use crate::streaming::options::{self, Dialect};

/// A request that is understood.
#[derive(Debug, PartialEq, Eq)]
pub enum KubeletRequest {
    Healthz,
    /// Measurements as the node gives them.
    Stats {
        only_cpu_and_memory: bool,
    },
    /// Measurements for Prometheus.
    Metrics,
    Pods,
    Logs {
        namespace: String,
        pod: String,
        options: LogOptions,
    },
    /// `uid` is empty if the path does not have one.
    Connect {
        namespace: String,
        pod: String,
        uid: String,
        work: StreamRequest,
    },
}

/// Why a request is not understood.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestError {
    NotFound,
    BadMethod,
    BadRequest(String),
}

/// Takes a request apart (K8s pkg/kubelet/server/server.go InstallDefaultHandlers and InstallDebuggingHandlers).
pub fn parse(method: &Method, uri: &Uri) -> Result<KubeletRequest, RequestError> {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let query = uri.query().unwrap_or_default();
    // The names of pods and containers need no percent-encoding, so an encoded one is invalid.
    let session = |[namespace, pod, uid, container]: [&str; 4], exec: bool| {
        let options = options::session(Dialect::Kubelet, container, query, exec).map_err(RequestError::BadRequest)?;
        Ok(connect(namespace, pod, uid, StreamRequest::Session(options)))
    };
    let (asked, posts) = match parts[..] {
        ["healthz", ..] => (KubeletRequest::Healthz, false),
        ["stats", "summary"] => {
            let only = form_urlencoded::parse(query.as_bytes()).any(|(k, v)| k == "only_cpu_and_memory" && v == "true");
            (KubeletRequest::Stats { only_cpu_and_memory: only }, true)
        }
        ["metrics", "resource"] => (KubeletRequest::Metrics, false),
        ["pods"] => (KubeletRequest::Pods, false),
        ["containerLogs", namespace, pod, container] => {
            let options = log_options(container, query).map_err(RequestError::BadRequest)?;
            (KubeletRequest::Logs { namespace: namespace.to_owned(), pod: pod.to_owned(), options }, false)
        }
        ["exec", namespace, pod, container] => (session([namespace, pod, "", container], true)?, true),
        ["exec", namespace, pod, uid, container] => (session([namespace, pod, uid, container], true)?, true),
        ["attach", namespace, pod, container] => (session([namespace, pod, "", container], false)?, true),
        ["attach", namespace, pod, uid, container] => (session([namespace, pod, uid, container], false)?, true),
        ["portForward", namespace, pod] => (connect(namespace, pod, "", StreamRequest::PortForward), true),
        ["portForward", namespace, pod, uid] => (connect(namespace, pod, uid, StreamRequest::PortForward), true),
        _ => return Err(RequestError::NotFound),
    };
    match *method {
        Method::GET => Ok(asked),
        Method::POST if posts => Ok(asked),
        _ => Err(RequestError::BadMethod),
    }
}

fn connect(namespace: &str, pod: &str, uid: &str, work: StreamRequest) -> KubeletRequest {
    KubeletRequest::Connect { namespace: namespace.to_owned(), pod: pod.to_owned(), uid: uid.to_owned(), work }
}

/// The rules of `PodLogOptions` (core/v1) as the kubelet checks them. Unknown parameters are for others
/// (`insecureSkipTLSVerifyBackend`) or newer (`stream`).
fn log_options(container: &str, query: &str) -> Result<LogOptions, String> {
    let mut options = LogOptions { container: container.to_owned(), ..LogOptions::default() };
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "follow" => options.follow = flag(&value),
            "previous" => options.previous = flag(&value),
            "timestamps" => options.timestamps = flag(&value),
            // The kubelet's own older word for "everything" is not a number.
            "tailLines" if value == "all" => {}
            "tailLines" => options.tail_lines = Some(number("tailLines", &value, 0)?),
            "sinceSeconds" => options.since_seconds = Some(number("sinceSeconds", &value, 1)?),
            "limitBytes" => options.limit_bytes = Some(number("limitBytes", &value, 1)?),
            "sinceTime" => options.since_time = Some(value.into_owned()),
            "stream" if value != "All" && !value.is_empty() => {
                return Err(format!("stream: {value:?}: this node writes stdout and stderr to one log, ask for All"));
            }
            _ => {}
        }
    }
    if options.since_seconds.is_some() && options.since_time.is_some() {
        return Err("at most one of sinceTime or sinceSeconds may be specified".to_owned());
    }
    Ok(options)
}

fn flag(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

fn number(name: &str, value: &str, least: i64) -> Result<i64, String> {
    let number: i64 = value.parse().map_err(|_| format!("{name}: {value:?} is no number"))?;
    if number < least { Err(format!("{name}: must be at least {least}")) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str) -> Result<KubeletRequest, RequestError> {
        parse(&Method::GET, &uri.parse().unwrap())
    }

    #[test]
    fn every_option_is_read() {
        let uri = "/containerLogs/ns/web-0/app?follow=true&previous=false&timestamps&tailLines=5&limitBytes=9\
                   &sinceTime=2026-01-01T00%3A00%3A00Z&insecureSkipTLSVerifyBackend=true";
        let options = LogOptions {
            container: "app".into(),
            follow: true,
            timestamps: true,
            tail_lines: Some(5),
            limit_bytes: Some(9),
            since_time: Some("2026-01-01T00:00:00Z".into()),
            ..LogOptions::default()
        };
        assert_eq!(asked(uri), Ok(KubeletRequest::Logs { namespace: "ns".into(), pod: "web-0".into(), options }));
        assert_eq!(asked("/healthz"), Ok(KubeletRequest::Healthz));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, word) in [
            ("tailLines=x", "tailLines"),
            ("tailLines=-1", "tailLines"),
            ("limitBytes=0", "limitBytes"),
            ("sinceSeconds=1&sinceTime=x", "sinceTime"),
        ] {
            let Err(RequestError::BadRequest(text)) = asked(&format!("/containerLogs/a/b/c?{query}")) else {
                panic!("{query} was taken");
            };
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(asked("/containerLogs/a/b"), Err(RequestError::NotFound));
        assert!(matches!(asked("/exec/a/b/c"), Err(RequestError::BadRequest(text)) if text.contains("stdin")));
        let post = |path: &str| parse(&Method::POST, &path.parse().unwrap());
        assert_eq!(post("/containerLogs/a/b/c"), Err(RequestError::BadMethod));
        assert_eq!(parse(&Method::DELETE, &"/stats/summary".parse().unwrap()), Err(RequestError::BadMethod));
    }

    #[test]
    fn sessions_come_with_a_uid_or_without() {
        for (path, uid) in [("/exec/ns/p/c", ""), ("/exec/ns/p/u1/c", "u1"), ("/attach/ns/p/u1/c", "u1")] {
            let Ok(KubeletRequest::Connect { namespace, pod, uid: found, work: StreamRequest::Session(options) }) =
                parse(&Method::POST, &format!("{path}?output=1&command=ls").parse().unwrap())
            else {
                panic!("{path}");
            };
            assert_eq!((namespace.as_str(), pod.as_str(), found.as_str()), ("ns", "p", uid));
            assert_eq!((options.container.as_str(), options.stdout), ("c", true));
            assert_eq!(options.command.is_empty(), path.starts_with("/attach"));
        }
        let forward = KubeletRequest::Connect {
            namespace: "ns".into(),
            pod: "p".into(),
            uid: "u".into(),
            work: StreamRequest::PortForward,
        };
        assert_eq!(asked("/portForward/ns/p/u"), Ok(forward));
        assert_eq!(
            asked("/stats/summary?only_cpu_and_memory=true"),
            Ok(KubeletRequest::Stats { only_cpu_and_memory: true })
        );
    }
}
