//! The CertificateSigningRequest of a board (certificates.k8s.io/v1): its content, and what was decided about it. Pure.

use std::net::IpAddr;
use std::time::Duration;

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use rcgen::PublicKeyData;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::pki::claim::Hardware;
use crate::pki::encoding::to_pem;

/// Signer of these requests.
pub(super) const SIGNER: &str = "sampan.dev/node";
/// Label: name of the claim token.
const CLAIM: &str = "sampan.dev/claim-token";
/// Annotation: the name that the board gets.
const NODE: &str = "sampan.dev/node";
/// Annotations: what the board reports about its hardware.
const SERIAL: &str = "sampan.dev/serial";
const MAC: &str = "sampan.dev/mac";
const MODEL: &str = "sampan.dev/model";
/// Annotation: time at which a bridge began to issue the certificate. Others leave the request alone for a while.
const ISSUING: &str = "sampan.dev/issuing";
/// That while, in seconds.
const ISSUING_SECONDS: i64 = 60;
/// Minimum of `spec.expirationSeconds` (K8s pkg/apis/certificates/validation).
const LIFE_MIN: Duration = Duration::from_secs(600);

/// A board that asks for a certificate.
pub(super) struct Board {
    /// Name of its CertificateSigningRequest: the same for the same key.
    pub(super) id: String,
    /// The number in that name: the beginning of the digest of the key.
    pub(super) number: u64,
    pub(super) node: String,
    pub(super) hardware: Hardware,
    /// PEM of its PKCS #10 request.
    pem: String,
}

impl Board {
    /// `csr` is the request as DER, and `key` its public key.
    pub(super) fn new(node: String, hardware: Hardware, csr: &[u8], key: &impl PublicKeyData) -> Self {
        let digest = digest(&SHA256, &key.subject_public_key_info());
        let number = digest.as_ref()[..8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let id = format!("enrol-{number:016x}");
        Self { id, number, node, hardware, pem: to_pem("CERTIFICATE REQUEST", csr) }
    }

    /// The object of its request. `life` is that of nodes' certificates.
    pub(super) fn object(&self, claim: &str, peer: IpAddr, life: Duration) -> Value {
        let (hardware, seconds) = (&self.hardware, life.max(LIFE_MIN).as_secs());
        json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {
                "name": self.id,
                "labels": {CLAIM: claim},
                "annotations": {
                    NODE: self.node,
                    SERIAL: hardware.serial.trim(),
                    MAC: hardware.mac.join(","),
                    MODEL: hardware.model.trim(),
                    "sampan.dev/peer": peer.to_string(),
                },
            },
            "spec": {
                "request": ByteString(self.pem.clone().into_bytes()),
                "signerName": SIGNER,
                "expirationSeconds": i32::try_from(seconds).unwrap_or(i32::MAX),
                "usages": ["client auth"],
            },
        })
    }

    /// Whether this object is the one of this board's request. Another client may have created one of its name, or
    /// changed its annotations, which a person reads before the approval. The board may have found more network devices
    /// since.
    pub(super) fn is_its(&self, object: &CertificateSigningRequest) -> bool {
        let hardware = &self.hardware;
        let says = |name: &str| object.annotations().get(name).map_or("", String::as_str);
        object.spec.signer_name == SIGNER
            && object.spec.request.0 == self.pem.as_bytes()
            && says(NODE) == self.node
            && says(SERIAL) == hardware.serial.trim()
            && says(MODEL) == hardware.model.trim()
            && says(MAC).split(',').all(|mac| mac.is_empty() || hardware.mac.iter().any(|own| own == mac))
    }
}

/// What was decided about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Pending,
    Approved,
    /// The message of the person who denied it, or the reason why it failed.
    Refused(String),
    /// The certificate, PEM.
    Issued(Vec<u8>),
}

/// A denial counts more than an approval, and what was issued stays so.
pub(super) fn standing(object: &CertificateSigningRequest) -> Standing {
    let status = object.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let has = |kind: &str| conditions.iter().find(|one| one.type_ == kind && one.status == "True");
    if let Some(refusal) = has("Denied").or_else(|| has("Failed")) {
        let message = refusal.message.clone().filter(|message| !message.is_empty());
        return Standing::Refused(message.unwrap_or_else(|| "no reason was given".to_owned()));
    }
    match status.certificate {
        Some(certificate) => Standing::Issued(certificate.0),
        None if has("Approved").is_some() => Standing::Approved,
        None => Standing::Pending,
    }
}

/// Patch of the subresource `approval`: the bridge approves the request itself.
pub(super) fn approval(object: &CertificateSigningRequest, claim: &str, now: Timestamp) -> Value {
    let status = object.status.clone().unwrap_or_default();
    let mut conditions = json!(status.conditions.unwrap_or_default());
    let approved = json!({
        "type": "Approved",
        "status": "True",
        "reason": "ClaimToken",
        "message": format!("claim token {claim} approves new names automatically"),
        "lastUpdateTime": rfc3339(now),
    });
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.push(approved);
    }
    json!({"metadata": same(object), "status": {"conditions": conditions}})
}

/// Patch with which a bridge begins to issue the certificate: of several bridges, one succeeds.
pub(super) fn issuing(object: &CertificateSigningRequest, now: Timestamp) -> Value {
    let annotations = json!({ISSUING: rfc3339(now)});
    json!({"metadata": {
        "uid": object.uid(),
        "resourceVersion": object.resource_version(),
        "annotations": annotations,
    }})
}

/// Whether a bridge is issuing the certificate.
pub(super) fn is_being_issued(object: &CertificateSigningRequest, now: Timestamp) -> bool {
    let since = object.annotations().get(ISSUING).and_then(|text| text.parse::<Timestamp>().ok());
    since.is_some_and(|since| (0..ISSUING_SECONDS).contains(&(now.as_second() - since.as_second())))
}

/// Patch of the status that stores the certificate.
pub(super) fn issued(object: &CertificateSigningRequest, certificate: &[u8]) -> Value {
    let pem = to_pem("CERTIFICATE", certificate);
    json!({"metadata": same(object), "status": {"certificate": ByteString(pem.into_bytes())}})
}

/// Precondition of a patch: no other client has written meanwhile.
fn same(object: &CertificateSigningRequest) -> Value {
    json!({"uid": object.uid(), "resourceVersion": object.resource_version()})
}

/// Seconds until a board asks again: 30 at first, up to 300 for a request that waits for long.
pub(super) fn retry_seconds(object: &CertificateSigningRequest, now: Timestamp) -> i64 {
    let since = object.creation_timestamp().map_or(now, |created| created.0);
    ((now.as_second() - since.as_second()) / 20).clamp(30, 300)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

    fn board(key: &KeyPair, serial: &str) -> Board {
        let csr = CertificateParams::default().serialize_request(key).unwrap();
        let hardware = Hardware { serial: serial.into(), mac: vec!["02:00:5e:10:00:01".into()], ..Hardware::default() };
        Board::new(format!("gw-{serial}"), hardware, csr.der(), key)
    }

    fn object(board: &Board) -> CertificateSigningRequest {
        let value = board.object("claim-a", [192, 0, 2, 1].into(), Duration::from_secs(5));
        serde_json::from_value(value).unwrap()
    }

    fn with(kinds: &[(&str, &str)], certificate: Option<&str>) -> CertificateSigningRequest {
        let mut object = object(&board(&key(), "1"));
        let conditions: Vec<Value> =
            kinds.iter().map(|(kind, message)| json!({"type": kind, "status": "True", "message": message})).collect();
        let certificate = certificate.map(|text| ByteString(text.as_bytes().to_vec()));
        object.status = serde_json::from_value(json!({"conditions": conditions, "certificate": certificate})).unwrap();
        object
    }

    fn key() -> KeyPair {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
    }

    #[test]
    fn request_is_named_by_its_key_and_shows_the_hardware() {
        let key = key();
        let (first, again) = (board(&key, "1"), board(&key, "1"));
        assert_eq!(first.id, again.id);
        assert_ne!(first.id, board(&self::key(), "1").id);
        let made = object(&first);
        assert_eq!(made.annotations()["sampan.dev/serial"], "1");
        assert_eq!((made.spec.signer_name.as_str(), made.spec.expiration_seconds), (SIGNER, Some(600)));
        assert!(first.is_its(&made));
        assert!(!again.is_its(&made), "a signature of ECDSA is another each time: the board sends the same bytes");
    }

    #[test]
    fn request_with_changed_annotations_is_not_its() {
        let mut board = board(&key(), "1");
        let made = object(&board);
        for (name, text) in
            [(NODE, "gw-2"), (SERIAL, "2"), (MODEL, "harmless"), (MAC, "02:00:5e:10:00:01,02:00:5e:10:00:02")]
        {
            let mut changed = made.clone();
            changed.annotations_mut().insert(name.into(), text.into());
            assert!(!board.is_its(&changed), "{name}");
        }
        board.hardware.mac.push("02:00:5e:10:00:02".into());
        assert!(board.is_its(&made), "a network device came up later");
    }

    #[test]
    fn denial_counts_more_than_approval_and_certificate() {
        assert_eq!(standing(&with(&[], None)), Standing::Pending);
        assert_eq!(standing(&with(&[("Approved", "")], None)), Standing::Approved);
        assert_eq!(standing(&with(&[("Approved", "")], Some("pem"))), Standing::Issued(b"pem".to_vec()));
        assert_eq!(standing(&with(&[("Denied", "stolen")], Some("pem"))), Standing::Refused("stolen".into()));
        let failed = standing(&with(&[("Approved", ""), ("Failed", "")], None));
        assert_eq!(failed, Standing::Refused("no reason was given".into()));
        assert_eq!(standing(&CertificateSigningRequest::default()), Standing::Pending);
    }

    #[test]
    fn one_bridge_issues_at_a_time() {
        let mut object = with(&[("Approved", "")], None);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let later = |seconds: i64| Timestamp::from_second(now.as_second() + seconds).unwrap();
        assert!(!is_being_issued(&object, now));
        let patch = issuing(&object, now);
        let since = patch["metadata"]["annotations"][ISSUING].as_str().unwrap().to_owned();
        object.annotations_mut().insert(ISSUING.into(), since);
        assert!(is_being_issued(&object, now) && is_being_issued(&object, later(59)));
        assert!(!is_being_issued(&object, later(60)), "its bridge has ended");
    }

    #[test]
    fn approval_keeps_other_conditions() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let patch = approval(&with(&[("Noted", "")], None), "claim-a", now);
        let kinds: Vec<&str> =
            patch["status"]["conditions"].as_array().unwrap().iter().filter_map(|one| one["type"].as_str()).collect();
        assert_eq!(kinds, ["Noted", "Approved"]);
    }

    #[test]
    fn board_asks_less_often_the_longer_it_waits() {
        let mut object = with(&[], None);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut after = |seconds: i64| {
            let created = Timestamp::from_second(now.as_second() - seconds).unwrap();
            object.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
            retry_seconds(&object, now)
        };
        assert_eq!((after(0), after(-100), after(2000), after(86_400)), (30, 30, 100, 300));
    }
}
