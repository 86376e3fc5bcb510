//! ConfigMaps and Secrets.

use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, Selectable};
use crate::codec::decode;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{entries, object_mut, remove, set_default_text, text, text_entries};
use apimachinery::names;

pub(crate) static CONFIG_MAP: Kind = Kind {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    namespaced: true,
    check: Some(decode::check::<v1::ConfigMap>),
    default: |map| drop_zero(map, &["data", "binaryData"]),
    create: config_map,
    update: config_map_update,
    table: &Table { columns: [NAME, ("Data", "string", 0, "Number of keys."), AGE], row: config_map_row },
    ..PLAIN
};

pub(crate) static SECRET: Kind = Kind {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    namespaced: true,
    check: Some(decode::check::<v1::Secret>),
    default: default_secret,
    create: secret,
    update: secret_update,
    table: &Table {
        columns: [NAME, ("Type", "string", 0, "Type of the secret."), ("Data", "string", 0, "Number of keys."), AGE],
        row: secret_row,
    },
    fields: &[Selectable::text("type", "/type")],
    ..PLAIN
};

/// The type, and `stringData` written over `data`.
fn default_secret(secret: &mut Value) {
    set_default_text(secret, "type", "Opaque");
    if let Some(Value::Object(plain)) = remove(secret, "stringData")
        && let Some(data) = object_mut(secret, "data")
    {
        for (key, value) in plain {
            let bytes = value.as_str().unwrap_or_default().as_bytes();
            data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
        }
    }
    drop_zero(secret, &["data"]);
}

fn config_map_row(obj: &Value, now: Timestamp) -> [Value; 3] {
    [name(obj), json!(entries(obj, "data").count() + entries(obj, "binaryData").count()), age(obj, now)]
}

fn secret_row(obj: &Value, now: Timestamp) -> [Value; 4] {
    [name(obj), obj["type"].clone(), json!(entries(obj, "data").count()), age(obj, now)]
}

/// Sum of all values, in bytes.
const MAX_SIZE: usize = 1024 * 1024;

/// Validates a ConfigMap.
fn config_map(map: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let mut size = 0;
    for (key, value) in text_entries(map, "data") {
        let path = format!("data[{key}]");
        invalid_text(&mut errors, &path, key, names::config_map_key(key));
        if map["binaryData"].get(key).is_some() {
            errors.push(FieldError::invalid(path, &key.into(), "duplicate of key present in binaryData"));
        }
        size += value.len();
    }
    for (key, value) in text_entries(map, "binaryData") {
        invalid_text(&mut errors, &format!("binaryData[{key}]"), key, names::config_map_key(key));
        size += decoded_len(value);
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("[]", MAX_SIZE));
    }
    errors
}

/// Validates a change of a ConfigMap.
fn config_map_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    frozen(&mut errors, new, old, &["data", "binaryData"]);
    errors.extend(config_map(new));
    errors
}

/// Validates a Secret.
fn secret(secret: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let mut size = 0;
    for (key, value) in text_entries(secret, "data") {
        invalid_text(&mut errors, &format!("data[{key}]"), key, names::config_map_key(key));
        size += decoded_len(value);
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("data", MAX_SIZE));
    }
    secret_type(&mut errors, secret);
    errors
}

/// Some types promise certain keys.
fn secret_type(errors: &mut Errors, secret: &Value) {
    let data = &secret["data"];
    let mut needs = |keys: &[&str]| {
        for key in keys.iter().filter(|key| data.get(**key).is_none()) {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    };
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            const KEY: &str = "kubernetes.io/service-account.name";
            if text(&secret["metadata"]["annotations"], KEY).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{KEY}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => docker_config(errors, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(errors, data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if data.get("username").or(data.get("password")).is_none() => {
            needs(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            errors.push(FieldError::required("data[ssh-privatekey]", ""));
        }
        "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

fn docker_config(errors: &mut Errors, data: &Value, key: &str) {
    let path = format!("data[{key}]");
    if data.get(key).is_none() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(text(data, key)).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        errors.push(FieldError::invalid(path, &"<secret contents redacted>".into(), &error.to_string()));
    }
}

/// Validates a change of a Secret.
fn secret_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    immutable(&mut errors, "type", &new["type"], &old["type"]);
    frozen(&mut errors, new, old, &["data"]);
    errors.extend(secret(new));
    errors
}

/// `immutable: true` cannot be reverted, and the content cannot change.
fn frozen(errors: &mut Errors, new: &Value, old: &Value, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", DETAIL));
    }
    for field in fields.iter().filter(|f| new[**f] != old[**f]) {
        errors.push(FieldError::forbidden(*field, DETAIL));
    }
}

fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count().min(2)
}
