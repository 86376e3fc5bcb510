//! The protobuf form of the OpenAPI v2 document (`openapi.v2.Document` of gnostic), encoded by hand: paths
//! with their PATCH operations, nothing else. Field numbers are those of gnostic's OpenAPIv2.proto.

use std::sync::Arc;

use super::v3::{PATCH_PARAMETERS, object_path};
use crate::http::discovery::VERSION;
use crate::resource::Resource;

/// The encoded document.
pub(super) fn document(resources: &[Arc<Resource>]) -> Vec<u8> {
    let mut info = Vec::new();
    text(&mut info, 1, "Kubernetes");
    text(&mut info, 2, VERSION);

    let mut paths = Vec::new();
    for resource in resources {
        let mut item = Vec::new();
        bytes(&mut item, 8, &patch_operation(resource));
        let mut named = Vec::new();
        text(&mut named, 1, &object_path(resource));
        bytes(&mut named, 2, &item);
        bytes(&mut paths, 2, &named);
    }

    let mut out = Vec::new();
    text(&mut out, 1, "2.0");
    bytes(&mut out, 2, &info);
    bytes(&mut out, 8, &paths);
    bytes(&mut out, 9, &[]);
    out
}

/// `Operation`: query parameters and the kind extension, which clients read as YAML.
fn patch_operation(resource: &Resource) -> Vec<u8> {
    let mut operation = Vec::new();
    for (name, kind) in PATCH_PARAMETERS {
        let mut query = Vec::new();
        text(&mut query, 2, "query");
        text(&mut query, 4, name);
        text(&mut query, 6, kind);
        // ParametersItem.parameter, Parameter.non_body_parameter, NonBodyParameter.query_parameter_sub_schema.
        bytes(&mut operation, 8, &wrapped(1, &wrapped(2, &wrapped(3, &query))));
    }
    let yaml = format!("group: {:?}\nkind: {}\nversion: {}\n", resource.group, resource.kind, resource.version);
    let mut any = Vec::new();
    text(&mut any, 2, &yaml);
    let mut extension = Vec::new();
    text(&mut extension, 1, "x-kubernetes-group-version-kind");
    bytes(&mut extension, 2, &any);
    bytes(&mut operation, 13, &extension);
    operation
}

fn wrapped(field: u8, inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, field, inner);
    out
}

fn text(out: &mut Vec<u8>, field: u8, value: &str) {
    bytes(out, field, value.as_bytes());
}

/// A length-delimited field: the key byte (fields up to 15), the length as a varint, the content.
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = value.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_varints() {
        let mut out = Vec::new();
        bytes(&mut out, 2, &[7; 300]);
        assert_eq!(&out[..3], &[0x12, 0xac, 0x02]);
        assert_eq!(out.len(), 303);
    }
}
