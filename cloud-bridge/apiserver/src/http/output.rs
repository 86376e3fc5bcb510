//! Forms of answers: JSON objects and lists, Tables for kubectl, metadata only. Pure; the storage keeps bodies without
//! kind and apiVersion, which are added here.

use sampan_json::SetField;
use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::status;
use crate::auth::request_info::Query;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;
use apimachinery::meta;

/// The part of its object in a row of a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

/// The version of Tables and metadata that a client asks for (K8s apiserver pkg/endpoints/handlers/response.go
/// `targetEncodingForTransform`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1beta1,
}

impl Version {
    /// Reads group and version of a clause of `Accept`.
    pub(super) fn of(group: &str, version: &str) -> Option<Self> {
        match (group, version) {
            ("meta.k8s.io", "v1") => Some(Self::V1),
            ("meta.k8s.io", "v1beta1") => Some(Self::V1beta1),
            _ => None,
        }
    }

    fn api(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The form of the objects in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Table(Include, Version),
    Metadata(Version),
}

impl Form {
    /// Chooses by the `Accept` header and the query.
    ///
    /// # Errors
    /// 406 when nothing in the header can be served, 400 for a wrong `includeObject`.
    pub(crate) fn negotiate(accept: &str, query: &Query) -> ApiResult<Self> {
        if accept.trim().is_empty() {
            return Ok(Self::Json);
        }
        for clause in accept.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                continue;
            }
            let mut kind = None;
            let (mut group, mut version) = ("", "");
            for part in parts {
                match part.split_once('=') {
                    Some(("as", value)) => kind = Some(value),
                    Some(("g", value)) => group = value,
                    Some(("v", value)) => version = value,
                    _ => {}
                }
            }
            match (kind, Version::of(group, version)) {
                (None, _) => return Ok(Self::Json),
                (Some("Table"), Some(version)) => return Ok(Self::Table(include(query)?, version)),
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some(version)) => {
                    return Ok(Self::Metadata(version));
                }
                (Some(_), _) => {}
            }
        }
        Err(ApiError::not_acceptable())
    }
}

fn include(query: &Query) -> ApiResult<Include> {
    match query.text("includeObject") {
        "None" => Ok(Include::None),
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        other => Err(ApiError::bad_request(format!("unrecognized includeObject value: {other:?}"))),
    }
}

/// `{"kind":…,"apiVersion":…,` before the body's own fields.
fn head(resource: &Resource) -> Vec<u8> {
    format!("{{\"kind\":{:?},\"apiVersion\":{:?}", resource.kind, resource.api_version()).into_bytes()
}

fn join(mut head: Vec<u8>, body: &[u8]) -> Vec<u8> {
    let fields = body.strip_prefix(b"{").unwrap_or(body);
    // With the comma, and a newline behind.
    head.reserve(fields.len() + 2);
    if fields != b"}" {
        head.push(b',');
    }
    head.extend_from_slice(fields);
    head
}

/// The stored body in the served form, without kind and apiVersion.
fn served<'a>(resource: &Resource, stored: &'a Stored) -> Cow<'a, [u8]> {
    let read = resource.is_custom().then(|| resource.strategy().read(stored.value())).flatten();
    let mut value = match read {
        Some(value) => value,
        None if resource.converts() => stored.value().clone(),
        None => return stored.body.as_ref().into(),
    };
    resource.to_served(&mut value);
    serde_json::to_vec(&value).unwrap_or_default().into()
}

fn partial(value: &Value, version: Version) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": version.api(), "metadata": value["metadata"] })
}

/// One stored object.
pub(crate) fn stored(resource: &Resource, form: Form, stored: &Stored, now: Timestamp) -> Vec<u8> {
    match form {
        Form::Json => join(head(resource), &served(resource, stored)),
        Form::Metadata(version) => partial(&stored.metadata(), version).to_string().into_bytes(),
        Form::Table(include, version) => {
            let value = stored.value();
            let head = table_head(version, &table_metadata(meta::text(value, "resourceVersion")), &columns(resource));
            table(head, &row(resource, value, include, version, now))
        }
    }
}

/// The object as served, with kind and apiVersion.
fn full(resource: &Resource, value: &Value) -> Value {
    let mut value = value.clone();
    resource.to_served(&mut value);
    let mut map = Map::new();
    map.insert("kind".into(), resource.kind.as_ref().into());
    map.insert("apiVersion".into(), resource.api_version().into());
    if let Value::Object(fields) = value {
        map.extend(fields);
    }
    Value::Object(map)
}

/// The part of a list before its items. After the last one follows [`END`].
pub(crate) fn list_head(resource: &Resource, form: Form, metadata: &Value) -> Vec<u8> {
    let (kind, version) = (&resource.list_kind, resource.api_version());
    let head = match form {
        Form::Json => format!("{{\"kind\":{kind:?},\"apiVersion\":{version:?},\"metadata\":{metadata},\"items\":["),
        Form::Metadata(of) => format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":{:?},\"metadata\":{metadata},\"items\":[",
            of.api()
        ),
        Form::Table(_, of) => return table_head(of, metadata, &columns(resource)),
    };
    head.into_bytes()
}

/// The part of a list after its items. Go's encoder ends a text with a newline.
pub(crate) const END: &[u8] = b"]}\n";

fn table_head(version: Version, metadata: &Value, columns: &Value) -> Vec<u8> {
    let head = format!("{{\"kind\":\"Table\",\"apiVersion\":{:?}", version.api());
    format!("{head},\"metadata\":{metadata},\"columnDefinitions\":{columns},\"rows\":[").into_bytes()
}

fn table_metadata(version: &str) -> Value {
    json!({ "resourceVersion": version })
}

/// One item of a list.
pub(crate) fn list_item(resource: &Resource, form: Form, item: &Stored, now: Timestamp) -> Vec<u8> {
    match form {
        // Items of typed lists carry no kind; custom resources always do.
        Form::Json if resource.is_custom() => join(head(resource), &served(resource, item)),
        Form::Json => served(resource, item).into_owned(),
        Form::Metadata(version) => partial(&item.metadata(), version).to_string().into_bytes(),
        Form::Table(include, version) => row(resource, item.value(), include, version, now).to_string().into_bytes(),
    }
}

/// A Table of one row.
fn table(mut head: Vec<u8>, row: &Value) -> Vec<u8> {
    head.extend_from_slice(row.to_string().as_bytes());
    head.extend_from_slice(b"]}");
    head
}

fn row(resource: &Resource, item: &Value, include: Include, version: Version, now: Timestamp) -> Value {
    let item = resource.read(item);
    let mut row = json!({ "cells": resource.strategy().row(&item, now) });
    match include {
        Include::None => {}
        Include::Metadata => row.set("object", partial(&item, version)),
        Include::Object => row.set("object", full(resource, &item)),
    }
    row
}

fn columns(resource: &Resource) -> Value {
    let of = |c: crate::resource::strategy::Column| json!({ "name": c.name, "type": c.type_, "format": c.format, "description": c.description, "priority": c.priority });
    resource.strategy().columns().into_iter().map(of).collect()
}

/// One line of a watch. `first` sends the columns of a Table along.
pub(crate) fn event(
    resource: &Resource,
    form: Form,
    kind: &str,
    object: &Arc<Stored>,
    now: Timestamp,
    first: bool,
) -> Vec<u8> {
    let mut line = format!("{{\"type\":{kind:?},\"object\":").into_bytes();
    match form {
        Form::Table(include, version) => {
            let columns = if first { columns(resource) } else { Value::Null };
            let head = table_head(version, &table_metadata(&object.rev.to_string()), &columns);
            line.extend(table(head, &row(resource, object.value(), include, version, now)));
        }
        _ => line.extend_from_slice(&stored(resource, form, object, now)),
    }
    line.extend_from_slice(b"}\n");
    line
}

/// A bookmark; `initial` marks the end of the initial events.
pub(crate) fn bookmark(resource: &Resource, form: Form, rev: u64, initial: bool) -> Vec<u8> {
    let mut metadata = json!({ "resourceVersion": rev.to_string(), "creationTimestamp": null });
    if initial {
        metadata.set("annotations", json!({ "k8s.io/initial-events-end": "true" }));
    }
    let object = match form {
        Form::Json => json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata }),
        Form::Metadata(version) => partial(&json!({ "metadata": metadata }), version),
        Form::Table(_, version) => {
            json!({ "kind": "Table", "apiVersion": version.api(), "metadata": metadata, "columnDefinitions": null, "rows": [] })
        }
    };
    line("BOOKMARK", &object.to_string())
}

/// An error in the midst of a watch.
pub(crate) fn error(error: &ApiError) -> Vec<u8> {
    line("ERROR", status::line(&error.status()).trim_end())
}

fn line(kind: &str, object: &str) -> Vec<u8> {
    format!("{{\"type\":{kind:?},\"object\":{object}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_headers() {
        let form = |accept: &str| Form::negotiate(accept, &Query::default());
        assert_eq!(form("").unwrap(), Form::Json);
        assert_eq!(form("application/json, */*").unwrap(), Form::Json);
        assert_eq!(
            form("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").unwrap(),
            Form::Table(Include::Metadata, Version::V1)
        );
        assert_eq!(
            form("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json").unwrap(),
            Form::Table(Include::Metadata, Version::V1beta1)
        );
        assert_eq!(form("application/json;as=Table;v=v1alpha1;g=meta.k8s.io,application/json").unwrap(), Form::Json);
        assert_eq!(form("application/vnd.kubernetes.protobuf,application/json").unwrap(), Form::Json);
        assert_eq!(form("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
        assert_eq!(
            form("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").unwrap(),
            Form::Metadata(Version::V1)
        );
    }

    #[test]
    fn answer_has_the_version_that_was_asked_for() {
        let pods = crate::kinds::resources().into_iter().find(|one| one.kind == "Pod").unwrap();
        let pod = Stored::unwritten(json!({"metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"}}));
        let version = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["apiVersion"].clone();
        for (of, api) in [(Version::V1, "meta.k8s.io/v1"), (Version::V1beta1, "meta.k8s.io/v1beta1")] {
            for form in [Form::Table(Include::Metadata, of), Form::Metadata(of)] {
                assert_eq!(version(&stored(&pods, form, &pod, Timestamp::UNIX_EPOCH)), api);
                let list = [&list_head(&pods, form, &json!({}))[..], END].concat();
                assert_eq!(version(&list), api);
                let added = event(&pods, form, "ADDED", &pod, Timestamp::UNIX_EPOCH, true);
                for line in [added, bookmark(&pods, form, 7, false)] {
                    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap()["object"]["apiVersion"], api);
                }
            }
            let row = list_item(&pods, Form::Table(Include::Metadata, of), &pod, Timestamp::UNIX_EPOCH);
            assert_eq!(serde_json::from_slice::<Value>(&row).unwrap()["object"]["apiVersion"], api);
        }
    }

    #[test]
    fn bodies_get_their_kind_back() {
        assert_eq!(join(b"{\"kind\":\"A\"".to_vec(), b"{\"a\":1}"), b"{\"kind\":\"A\",\"a\":1}");
        assert_eq!(join(b"{\"kind\":\"A\"".to_vec(), b"{}"), b"{\"kind\":\"A\"}");
    }

    #[test]
    fn events_and_lists_end_with_one_newline() {
        let pods = crate::kinds::resources().into_iter().find(|one| one.kind == "Pod").unwrap();
        let pod = Stored::unwritten(json!({"metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"}}));
        for form in [Form::Json, Form::Metadata(Version::V1), Form::Table(Include::Metadata, Version::V1)] {
            let added = event(&pods, form, "ADDED", &pod, Timestamp::UNIX_EPOCH, true);
            let list = [&list_head(&pods, form, &json!({}))[..], END].concat();
            for text in [added, bookmark(&pods, form, 7, true), list] {
                let newlines = text.iter().filter(|byte| **byte == b'\n').count();
                assert!(newlines == 1 && text.ends_with(b"\n"), "{form:?}");
            }
        }
        let told = String::from_utf8(error(&ApiError::expired("too old"))).unwrap();
        let expected = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}"#;
        assert_eq!(told, format!("{expected}\n"));
    }
}
