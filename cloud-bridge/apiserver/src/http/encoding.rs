//! The encoding of an answer by the `Accept` header (K8s apiserver pkg/endpoints/handlers/negotiation/negotiate.go):
//! JSON, YAML, or protobuf for clients that accept nothing else.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response};

use super::binary;
use super::body::ApiBody;
use super::output::Version;
use super::response::JSON;
use crate::codec::protobuf;
use crate::codec::yaml::write;

/// The content type of YAML.
pub(super) const YAML: &str = "application/yaml";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// All `Accept` values as one.
pub(super) fn accept(headers: &HeaderMap) -> String {
    let values = headers.get_all(ACCEPT);
    values.iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>().join(",")
}

/// The encoding that an `Accept` header asks for, and the header as if it named JSON in its place, best choice first.
pub(super) fn chosen(accept: &str) -> (Encoding, String) {
    let mut clauses: Vec<&str> = accept.split(',').map(str::trim).collect();
    clauses.sort_by(|a, b| quality(b).total_cmp(&quality(a)));
    let text = |clause: &&&str| matches!(media(clause), JSON | "*/*" | "application/*" | YAML) && is_served(clause);
    if let Some(first) = clauses.iter().find(text) {
        return match media(first) {
            YAML => (Encoding::Yaml, first.replacen(YAML, JSON, 1)),
            _ => (Encoding::Json, clauses.join(",")),
        };
    }
    // Objects are stored as JSON, and protobuf has no Table.
    let binary = clauses.iter().find(|clause| media(clause) == protobuf::MEDIA_TYPE && !clause.contains("as=Table"));
    match binary {
        Some(clause) => (Encoding::Protobuf, clause.replacen(protobuf::MEDIA_TYPE, JSON, 1)),
        None => (Encoding::Json, clauses.join(",")),
    }
}

/// The media type of a clause or of a `Content-Type`.
pub(super) fn media(clause: &str) -> &str {
    clause.split(';').next().unwrap_or_default().trim()
}

fn parameter<'a>(clause: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = clause.split(';').skip(1).filter_map(|part| part.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn quality(clause: &str) -> f32 {
    parameter(clause, "q").and_then(|q| q.parse().ok()).unwrap_or(1.0)
}

/// Whether objects are served in the form that a clause asks for.
fn is_served(clause: &str) -> bool {
    let of = |name| parameter(clause, name).unwrap_or_default();
    let version = Version::of(of("g"), of("v"));
    match parameter(clause, "as") {
        None => true,
        Some(kind) => {
            version.is_some() && matches!(kind, "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList")
        }
    }
}

/// Encodes the answer as negotiated. A body that is not an object, such as a log, stays unchanged.
pub(super) fn encoded(response: Response<ApiBody>, encoding: Encoding) -> Response<ApiBody> {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == JSON);
    match encoding {
        Encoding::Protobuf if is_json => binary::encoded(response),
        Encoding::Yaml if is_json => in_yaml(response),
        _ => response,
    }
}

fn in_yaml(response: Response<ApiBody>) -> Response<ApiBody> {
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(YAML));
    let body = match body.into_full() {
        Ok(json) => ApiBody::full(write::from_json(&json).map_or(json, Into::into)),
        // A long list, which is read while it is sent. JSON is YAML, too.
        Err(list) => list,
    };
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOBUF: &str = protobuf::MEDIA_TYPE;

    #[test]
    fn protobuf_is_for_clients_that_take_nothing_else() {
        for both in ["", JSON, &format!("{PROTOBUF},{JSON}"), &format!("{PROTOBUF}, */*"), "text/plain"] {
            assert_eq!(chosen(both).0, Encoding::Json, "{both}");
        }
        assert_eq!(chosen(&format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1")).0, Encoding::Json);
        assert_eq!(chosen(PROTOBUF), (Encoding::Protobuf, JSON.to_owned()));
        let partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(chosen(&format!("{PROTOBUF}{partial}")), (Encoding::Protobuf, format!("{JSON}{partial}")));
    }

    #[test]
    fn first_of_json_and_yaml_counts() {
        let table = ";as=Table;g=meta.k8s.io;v=v1";
        assert_eq!(chosen(YAML), (Encoding::Yaml, JSON.to_owned()));
        assert_eq!(chosen(&format!("{YAML}{table}")), (Encoding::Yaml, format!("{JSON}{table}")));
        assert_eq!(chosen("application/yaml, */*").0, Encoding::Yaml);
        assert_eq!(chosen("text/html, application/json, application/yaml").0, Encoding::Json);
        assert_eq!(chosen("application/json;q=0.5,application/yaml").0, Encoding::Yaml);
        assert_eq!(chosen("application/yaml;q=0.8,*/*").0, Encoding::Json);
        let of = |version: &str| chosen(&format!("{YAML};as=Table;g=meta.k8s.io;v={version},{JSON}")).0;
        assert_eq!([of("v1beta1"), of("v1alpha1")], [Encoding::Yaml, Encoding::Json]);
    }
}
