//! A valid rule: where its messages or requests come from, and where they go. Pure.

use std::collections::BTreeMap;

use edge_protocol::topic::{is_filter, is_topic};
use http::Uri;

use super::view::{Endpoint, EndpointType, Rule};
use crate::bridge::name::Name;

/// Source of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Messages of a node's broker that match a filter.
    Topic { node: Box<str>, filter: String },
    /// Requests of programs on a node to this URL, compared as a whole.
    Url { node: Box<str>, url: String },
    /// Requests at the listener for rules, by the prefix of their path after node and namespace.
    Path(String),
}

/// Target of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Url(Uri),
    Topic(String),
    Service { port: u16, path: String },
}

/// A valid rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub name: Name,
    pub uid: Box<str>,
    pub source: Source,
    pub target: Target,
    pub priority: u8,
    /// Seconds since 1970.
    pub created: i64,
}

impl Route {
    /// The path of its requests, if it takes any at the listener for rules.
    pub(super) fn path(&self) -> Option<&str> {
        if let Source::Path(path) = &self.source { Some(path) } else { None }
    }

    /// The route of a rule, or the reason why it is invalid.
    pub(super) fn of(name: &Name, rule: &Rule, endpoints: &BTreeMap<Name, Endpoint>) -> Result<Self, String> {
        let end = |what: &str, of: &str| {
            let end = endpoints.get(&(name.0.clone(), of.to_owned()));
            end.map(|end| end.kind).ok_or_else(|| format!("there is no {what} RuleEndpoint {of:?} in its namespace"))
        };
        let from = |field: &str| {
            let value = rule.source_resource.get(field).filter(|value| !value.is_empty());
            value.cloned().ok_or_else(|| format!("sourceResource has no {field}"))
        };
        let to = |field: &str| {
            let value = rule.target_resource.get(field).filter(|value| !value.is_empty());
            value.cloned().ok_or_else(|| format!("targetResource has no {field}"))
        };
        let path = |path: String| match path.starts_with('/') {
            true => path.trim_end_matches('/').to_owned(),
            false => format!("/{}", path.trim_end_matches('/')),
        };
        let (source, target) = match (end("source", &rule.source)?, end("target", &rule.target)?) {
            (EndpointType::Eventbus, EndpointType::Rest) => {
                let filter = format!("{}/{}", name.0, from("topic")?.trim_start_matches('/'));
                if !is_filter(&filter) {
                    return Err(format!("{filter:?} is no topic"));
                }
                (Source::Topic { node: from("node_name")?.into(), filter }, Target::Url(url(&to("resource")?)?))
            }
            (EndpointType::Rest, EndpointType::Eventbus) => {
                let topic = to("topic")?;
                if !is_topic(&topic) {
                    return Err(format!("nothing can be published to {topic:?}"));
                }
                (Source::Path(path(from("path")?)), Target::Topic(topic))
            }
            (EndpointType::Rest, EndpointType::Servicebus(port)) => {
                (Source::Path(path(from("path")?)), Target::Service { port, path: path(to("path")?) })
            }
            (EndpointType::Servicebus(_), EndpointType::Rest) => (
                Source::Url { node: from("node_name")?.into(), url: from("target_url")? },
                Target::Url(url(&to("resource")?)?),
            ),
            (source, target) => return Err(format!("nothing leads from {source:?} to {target:?}")),
        };
        Ok(Self {
            name: name.clone(),
            uid: rule.uid.clone(),
            source,
            target,
            priority: rule.priority,
            created: rule.created,
        })
    }
}

fn url(text: &str) -> Result<Uri, String> {
    let wrong = || format!("{text:?} is no URL with http or https and a host");
    let url: Uri = text.parse().map_err(|_| wrong())?;
    let sound = matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty());
    // Every user who may read rules would see a name and a password in it.
    let plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if sound && plain { Ok(url) } else { Err(wrong()) }
}
