//! What is asked of a kubelet: paths and parameters of `/containerLogs`. Pure.

use http::Uri;

use crate::api::backend::LogOptions;

/// A request that is understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Healthz,
    Logs { namespace: String, pod: String, options: LogOptions },
}

/// Why a request is not understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misunderstood {
    NotFound,
    BadRequest(String),
}

/// Takes a request's path and query apart.
pub(super) fn parse(uri: &Uri) -> Result<Asked, Misunderstood> {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    match parts[..] {
        ["healthz"] => Ok(Asked::Healthz),
        // The names of pods and containers need no percent-encoding, so one that has it is none.
        ["containerLogs", namespace, pod, container] => {
            let options = log_options(container, uri.query().unwrap_or_default()).map_err(Misunderstood::BadRequest)?;
            Ok(Asked::Logs { namespace: namespace.to_owned(), pod: pod.to_owned(), options })
        }
        _ => Err(Misunderstood::NotFound),
    }
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
            // The kubelet's own older name for "everything" is no number.
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

    fn asked(uri: &str) -> Result<Asked, Misunderstood> {
        parse(&uri.parse().unwrap())
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
        assert_eq!(asked(uri), Ok(Asked::Logs { namespace: "ns".into(), pod: "web-0".into(), options }));
        assert_eq!(asked("/healthz"), Ok(Asked::Healthz));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, word) in [
            ("tailLines=x", "tailLines"),
            ("tailLines=-1", "tailLines"),
            ("limitBytes=0", "limitBytes"),
            ("sinceSeconds=1&sinceTime=x", "sinceTime"),
        ] {
            let Err(Misunderstood::BadRequest(text)) = asked(&format!("/containerLogs/a/b/c?{query}")) else {
                panic!("{query} was taken");
            };
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(asked("/containerLogs/a/b"), Err(Misunderstood::NotFound));
        assert_eq!(asked("/exec/a/b/c"), Err(Misunderstood::NotFound));
    }
}
