//! CertificateSigningRequests: a client requests a certificate, another approves, a signer signs (K8s
//! pkg/registry/certificates/certificates/strategy.go, pkg/apis/certificates/validation). Rights to approve and sign
//! are checked by admission (`admission/certificates.rs`); the signers are not known here.

use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1;
use sampan_json::SetField;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::columns::{self, AGE, NAME, Table};
use super::kind::{Kind, PLAIN, Selectable, Sub, keep_status};
use crate::codec::decode;
use crate::patch::merge_keys::{CONDITIONS, META, Type, object};
use crate::resource::rules::Rules;
use apimachinery::field::{FieldError, invalid_number};
use apimachinery::json::{items, text};
use apimachinery::names;

/// The storage of the requests.
pub(crate) const STORAGE: &str = "certificatesigningrequests.certificates.k8s.io";
/// Its certificates are for clients of this API.
pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Minimum validity of a certificate, in seconds.
const LIFE_MIN: i64 = 600;
/// Conditions that cannot be removed.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) static KIND: Kind = Kind {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    check: Some(decode::check::<v1::CertificateSigningRequest>),
    rules: Rules { name: names::path_segment, ..Rules::SPEC_AND_STATUS },
    prepare_create: |request| request.set("status", json!({})),
    prepare_update: |new, old| {
        new.set("spec", old["spec"].clone());
        keep_status(new, old);
    },
    create: validate,
    update: |_, _| Vec::new(),
    status: Some(|new, old| changed(new, old, false)),
    subresources: &[Sub::part("approval", "CertificateSigningRequest", approval, |new, old| changed(new, old, true))],
    table: &Table {
        columns: [
            NAME,
            AGE,
            ("SignerName", "string", 0, "Who is asked to sign."),
            ("Requestor", "string", 0, "Who asks."),
            ("RequestedDuration", "string", 0, "How long the certificate is to be good for."),
            ("Condition", "string", 0, "What has become of it."),
        ],
        row,
    },
    fields: &[Selectable::text("spec.signerName", "/spec/signerName")],
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("status", &CONDITIONS)] };

/// An approval changes conditions and metadata, and nothing else.
fn approval(new: &mut Value, old: &Value) {
    let conditions = new["status"]["conditions"].clone();
    new.set("spec", old["spec"].clone());
    new.set("status", old["status"].clone());
    if !new["status"].is_object() {
        new.set("status", json!({}));
    }
    new.set_at(&["status", "conditions"], conditions);
}

/// The requested subject: its name and groups.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) groups: Vec<String>,
}

/// Parses the PKCS #10 request in `spec.request`, which is base64 of PEM.
///
/// # Errors
/// The reason why it is invalid.
pub(crate) fn subject(spec: &Value) -> Result<Subject, String> {
    let pem =
        base64::engine::general_purpose::STANDARD.decode(text(spec, "request")).map_err(|error| error.to_string())?;
    let block = Pem::iter_from_buffer(&pem).next().and_then(Result::ok);
    let block = block.filter(|block| block.label == "CERTIFICATE REQUEST" || block.label == "NEW CERTIFICATE REQUEST");
    let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    let subject = &request.certification_request_info.subject;
    let groups = subject.iter_organization().filter_map(|one| one.as_str().ok()).map(str::to_owned).collect();
    Ok(Subject { groups })
}

fn validate(request: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &request["spec"];
    if let Err(why) = subject(spec) {
        errors.push(FieldError::invalid("spec.request", &spec["request"], &format!("unable to parse csr: {why}")));
    }
    let usages = items(spec, "usages");
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", "usages are required"));
    }
    for (n, usage) in usages.iter().enumerate() {
        let path = format!("spec.usages[{n}]");
        if !USAGES.iter().any(|known| usage == known) {
            errors.push(FieldError::not_supported(path, usage, &USAGES));
        } else if usages[..n].contains(usage) {
            errors.push(FieldError::duplicate(path, usage));
        }
    }
    let signer = text(spec, "signerName");
    match signer.split_once('/') {
        _ if signer.is_empty() => errors.push(FieldError::required("spec.signerName", "")),
        Some((domain, path)) if domain.contains('.') && names::dns_subdomain(domain).is_empty() && is_path(path) => {}
        _ => {
            let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.push(FieldError::invalid("spec.signerName", &signer.into(), why));
        }
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64()
        && seconds < LIFE_MIN
    {
        let why = "may not specify a duration less than 600 seconds (10 minutes)".to_owned();
        invalid_number(&mut errors, "spec.expirationSeconds", seconds, vec![why]);
    }
    errors
}

/// The last part of a signer's name: names with dots between.
fn is_path(path: &str) -> bool {
    path.len() <= 253 && !path.is_empty() && path.split('.').all(|part| names::dns_label(part).is_empty())
}

/// Checks a change of the status, by an approval or by the signer.
fn changed(new: &Value, old: &Value, approves: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (now, before) = (items(&new["status"], "conditions"), items(&old["status"], "conditions"));
    let of =
        |list: &[Value], kind: &str| -> Vec<Value> { list.iter().filter(|one| one["type"] == kind).cloned().collect() };
    for kind in LASTING {
        let (now, before) = (of(now, kind), of(before, kind));
        let words = if now.is_empty() && !before.is_empty() {
            format!("updates may not remove a condition of type {kind:?}")
        } else if kind != "Failed" && !approves && now != before {
            format!("updates may not add or modify a condition of type {kind:?}")
        } else {
            continue;
        };
        errors.push(FieldError::forbidden("status.conditions", &words));
    }
    let held = |object: &Value| text(&object["status"], "certificate").to_owned();
    if !held(old).is_empty() && held(old) != held(new) {
        errors.push(FieldError::forbidden("status.certificate", "updates may not modify existing certificate content"));
    }
    for (n, condition) in now.iter().enumerate() {
        let path = format!("status.conditions[{n}]");
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        if kind.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), ""));
        } else if now[..n].iter().any(|other| other["type"] == kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &kind.into()));
        }
        let states: &[&str] = if LASTING.contains(&kind) { &["True"] } else { &["True", "False", "Unknown"] };
        if status.is_empty() {
            errors.push(FieldError::required(format!("{path}.status"), ""));
        } else if !states.contains(&status) {
            errors.push(FieldError::not_supported(format!("{path}.status"), &status.into(), states));
        }
    }
    if !of(now, "Approved").is_empty() && !of(now, "Denied").is_empty() {
        let why = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid("status.conditions", &"Denied".into(), why));
    }
    errors
}

fn row(request: &Value, now: Timestamp) -> [Value; 6] {
    let (spec, status) = (&request["spec"], &request["status"]);
    let has = |kind: &str| items(status, "conditions").iter().any(|one| one["type"] == kind);
    let mut words: Vec<&str> = ["Approved", "Denied", "Failed"].into_iter().filter(|kind| has(kind)).collect();
    if !has("Approved") && !has("Denied") {
        words.insert(0, "Pending");
    }
    if !text(status, "certificate").is_empty() {
        words.push("Issued");
    }
    let life = spec["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), columns::human_duration);
    let [name, age] = [columns::name(request), columns::age(request, now)];
    [name, age, spec["signerName"].clone(), spec["username"].clone(), life.into(), words.join(",").into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `openssl req -new -subj /O=team/CN=ann`, with a key of P-256.
    const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
        MIHXMH8CAQAwHTENMAsGA1UECgwEdGVhbTEMMAoGA1UEAwwDYW5uMFkwEwYHKoZI\n\
        zj0CAQYIKoZIzj0DAQcDQgAE6ETmZUlExmrdz63Y8ptarJZT9q/qfi+YQVsi2Uyv\n\
        2x9nwYAaAJXHkA+iarAwfGgy5e0ls5/jBzEHNMYiqHSnnKAAMAoGCCqGSM49BAMC\n\
        A0gAMEUCICqDizu4QbbcOndp81Tlwe6Y4S5Dk/tMhhvtqn3ws/llAiEAsC9LlKSa\n\
        5P6xYYzjTS7ilQb4bYJ77ESxcs7/GJqqw5U=\n\
        -----END CERTIFICATE REQUEST-----\n";

    fn encoded(pem: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(pem)
    }

    #[test]
    fn what_is_asked_for_is_read_and_judged() {
        let whole = json!({"request": encoded(REQUEST), "usages": ["client auth"], "signerName": CLIENT_SIGNER});
        assert_eq!(subject(&whole), Ok(Subject { groups: vec!["team".into()] }));
        let errors = |change: Value| {
            let mut spec = whole.clone();
            json_patch::merge(&mut spec, &change);
            validate(&json!({"spec": spec})).iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        assert!(errors(json!({"expirationSeconds": 600})).is_empty());
        for (change, field) in [
            (json!({"request": "AAAA"}), "spec.request"),
            (json!({"request": encoded(&REQUEST.replace("REQUEST", "KEY"))}), "spec.request"),
            (json!({"usages": []}), "spec.usages"),
            (json!({"usages": ["client auth", "client auth"]}), "spec.usages[1]"),
            (json!({"usages": ["wishful thinking"]}), "spec.usages[0]"),
            (json!({"signerName": "local/x"}), "spec.signerName"),
            (json!({"signerName": "example.com/"}), "spec.signerName"),
            (json!({"signerName": null}), "spec.signerName"),
            (json!({"expirationSeconds": 599}), "spec.expirationSeconds"),
        ] {
            assert_eq!(errors(change.clone()), [field], "{change}");
        }
    }

    #[test]
    fn approvals_stay_and_signers_give_none() {
        let with = |conditions: Value, certificate: Value| json!({"status": {"conditions": conditions, "certificate": certificate}});
        let approved = || json!([{"type": "Approved", "status": "True"}]);
        let none = with(json!([]), Value::Null);
        assert!(changed(&with(approved(), Value::Null), &none, true).is_empty());
        assert_eq!(changed(&with(approved(), Value::Null), &none, false).len(), 1);
        assert_eq!(changed(&none, &with(approved(), Value::Null), true).len(), 1, "it stays");
        assert!(changed(&with(approved(), "AA==".into()), &with(approved(), Value::Null), false).is_empty());
        assert_eq!(changed(&with(approved(), "BB==".into()), &with(approved(), "AA==".into()), false).len(), 1);
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]);
        assert_eq!(changed(&with(both, Value::Null), &none, true).len(), 1);
        let doubtful = json!([{"type": "Denied", "status": "False"}]);
        assert_eq!(changed(&with(doubtful, Value::Null), &none, true).len(), 1);
        let mut new = with(approved(), "CC==".into());
        approval(&mut new, &json!({"spec": {"a": 1}, "status": {"certificate": "AA=="}}));
        assert_eq!(new, json!({"spec": {"a": 1}, "status": {"certificate": "AA==", "conditions": approved()}}));
    }
}
