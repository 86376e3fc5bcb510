//! Tests of `authority`, case by case.

use super::*;
use crate::pki::encoding::certificates;
use crate::pki::identity::Holder;
use crate::pki::request::MAX_REQUEST;
use crate::pki::rotation::{Pair, Trust};

fn request(common_name: &str) -> Vec<u8> {
    let key = new_key().unwrap();
    subject(common_name, None).serialize_request(&key).unwrap().der().to_vec()
}

fn subject_of(certificate: &CertificateDer<'_>) -> crate::pki::identity::Subject {
    crate::pki::identity::Subject::of(certificate).expect("readable subject")
}

#[test]
fn pem_and_back_signs_with_the_same_name() {
    let first = Authority::create("x").unwrap();
    let second = Authority::from_pem("test", &first.certificate_pem(), &first.key_pem()).unwrap();
    assert_eq!(first.fingerprint(), second.fingerprint());
    let signed = second.client("admin", "system:masters").unwrap();
    let (_, leaf) = x509_parser::parse_x509_certificate(&signed.certificate).unwrap();
    let (_, ca) = x509_parser::parse_x509_certificate(first.certificate()).unwrap();
    assert_eq!(leaf.issuer().as_raw(), ca.subject().as_raw());
    leaf.verify_signature(Some(ca.public_key())).unwrap();
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (a, b) = (Authority::create("a").unwrap(), Authority::create("b").unwrap());
    assert!(Authority::from_pem("test", &a.certificate_pem(), &b.key_pem()).is_err());
    assert!(Authority::from_pem("test", "", &b.key_pem()).is_err());
}

#[test]
fn g23_names_of_a_node_certificate_come_from_the_proven_name() {
    let authority = Authority::create("x").unwrap();
    let certificate = authority.node("edge-1", &request("system:masters")).unwrap();
    let subject = subject_of(&certificate);
    assert_eq!((subject.user.as_str(), subject.node()), ("system:node:edge-1", Some("edge-1")));
    assert_eq!(subject.groups, ["system:nodes"]);
}

#[test]
fn g23_a_request_for_another_node_or_with_a_bad_signature_is_refused() {
    let authority = Authority::create("x").unwrap();
    let error = authority.node("edge-1", &request("system:node:edge-2")).unwrap_err().to_string();
    assert!(error.contains("edge-2"), "{error}");
    let mut forged = request("x");
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert!(matches!(authority.node("edge-1", &forged), Err(PkiError::Request(_))));
    assert!(matches!(authority.node("edge-1", b"nonsense"), Err(PkiError::Request(_))));
    assert!(matches!(authority.node("edge-1", &vec![0; MAX_REQUEST + 1]), Err(PkiError::Request(_))));
}

/// A join is checked before its token is redeemed: nothing is signed for a client without a token.
#[test]
fn join_request_is_checked_without_the_authority() {
    assert!(check_node_request("edge-1", &request("system:node:edge-1")).is_ok());
    assert!(matches!(check_node_request("edge-1", &request("system:node:edge-2")), Err(PkiError::Request(_))));
    assert!(matches!(check_node_request("edge-1", b"nonsense"), Err(PkiError::Request(_))));
}

#[test]
fn other_keys_than_p256_are_refused() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let request = subject("x", None).serialize_request(&key).unwrap();
    let error = Authority::create("x").unwrap().node("edge-1", request.der()).unwrap_err().to_string();
    assert!(error.contains("P-256"), "{error}");
}

#[test]
fn server_certificates_name_each_address_once() {
    let authority = Authority::create("x").unwrap();
    let signed = authority.server(&["127.0.0.1".into(), "10.0.0.7".into(), "bridge.example".into()]).unwrap();
    let (_, leaf) = x509_parser::parse_x509_certificate(&signed.certificate).unwrap();
    let names = leaf.subject_alternative_name().unwrap().unwrap().value.general_names.len();
    assert_eq!(names, 5, "localhost, 127.0.0.1, ::1, 10.0.0.7, bridge.example");
}

#[test]
fn g24_a_certificate_says_when_it_was_issued_and_lives_as_long_as_wanted() {
    use crate::pki::identity::Holder;
    let before = SystemTime::now() - Duration::from_millis(1);
    let authority = Authority::create("x").unwrap().with_node_life(Duration::from_secs(3600));
    let holder = Holder::of(&authority.node("edge-1", &request("x")).unwrap()).unwrap();
    assert!(holder.issued >= before && holder.issued <= SystemTime::now());
    let life = holder.expires.duration_since(holder.issued).unwrap();
    assert!((3_590..=3_600).contains(&life.as_secs()), "{life:?}");
    assert_ne!(authority.node("edge-1", &request("x")).unwrap(), authority.node("edge-1", &request("x")).unwrap());
    let admin = Holder::of(&authority.client("admin", "system:masters").unwrap().certificate).unwrap();
    assert_eq!(admin.issued, UNIX_EPOCH, "others do not say");
}

#[test]
fn g24_the_server_certificate_is_renewed_while_the_bridge_runs() {
    use crate::pki::serving::Serving;
    use std::sync::Arc;
    let authority = Arc::new(Authority::create("x").unwrap());
    let serving = Serving::new(authority, vec!["bridge.example".to_owned()]).unwrap();
    let first = serving.shown();
    serving.renew().unwrap();
    assert_ne!(first.cert[0], serving.shown().cert[0]);
    assert_eq!(first.cert[1], serving.shown().cert[1], "the authority in the chain stays");
}

/// A certificate that a board signed after booting in 1970 is valid when its clock is set.
#[test]
fn g25_nothing_is_signed_by_a_clock_of_1970() {
    let authority = Authority::create_at("x", UNIX_EPOCH + Duration::from_secs(60)).unwrap();
    let built = clock::believable(UNIX_EPOCH);
    assert!(authority.ends() >= built + CA_LIFE);
    let boot = UNIX_EPOCH + Duration::from_secs(90);
    let node = Holder::of(&authority.node_at("edge-1", &request("x"), boot).unwrap()).unwrap();
    assert_eq!(node.issued, boot, "joins are told apart by it");
    assert!(node.expires >= built + NODE_LIFE);
}

/// After the authority has expired, nodes and bridge continue, since only kubectl checks its end.
#[test]
fn g25_an_authority_that_has_ended_still_lets_nodes_in() {
    let mut authority = Authority::create("x").unwrap();
    let mut params = subject("sampan-ca-old", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2001, 1, 1);
    authority.certificate = params.self_signed(&authority.key).unwrap().der().clone();
    assert!(authority.ends() < clock::now());

    let authority = std::sync::Arc::new(authority);
    let serving = crate::pki::serving::Serving::new(std::sync::Arc::clone(&authority), Vec::new()).unwrap();
    let server = crate::pki::tls::link_config(&authority, &serving).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let signed = authority.client("system:node:a", NODE_GROUP).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![signed.certificate], signed.key)
        .unwrap();
    let mut client = rustls::ClientConnection::new(client.into(), "localhost".try_into().unwrap()).unwrap();
    let mut server = rustls::ServerConnection::new(server).unwrap();
    let mut wire = Vec::new();
    for _ in 0..8 {
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().unwrap();
        wire.clear();
    }
    assert!(!server.is_handshaking() && !client.is_handshaking());
    assert!(server.peer_certificates().is_some());
}

#[test]
fn a_person_gets_what_was_approved_and_no_nodes_name() {
    let authority = Authority::create("test").unwrap();
    let request = |name: &[(DnType, &str)]| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        name.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        let key = new_key().unwrap();
        params.is_ca = IsCa::NoCa;
        params.serialize_request(&key).unwrap().pem().unwrap()
    };
    let (cn, o) = (DnType::CommonName, DnType::OrganizationName);
    let ask = |name: &[(DnType, &str)]| authority.person(request(name).as_bytes(), Duration::from_secs(3600));
    let pem = ask(&[(o.clone(), "team"), (cn.clone(), "ann")]).unwrap();
    let certificate = &certificates("it", pem.as_bytes()).unwrap()[0];
    let holder = Holder::of(certificate).unwrap();
    assert_eq!((holder.subject.user.as_str(), holder.subject.groups), ("ann", vec!["team".to_owned()]));
    let left = holder.expires.duration_since(clock::now()).unwrap();
    assert!(left <= Duration::from_secs(3600) && left > Duration::from_secs(3000), "{left:?}");
    for name in [
        &[(cn.clone(), "system:node:a")][..],
        &[(o.clone(), "system:nodes"), (cn.clone(), "x")],
        &[(o.clone(), "sampan:bridges"), (cn.clone(), "x")],
        &[(cn, "sampan:bridge")],
        &[(o, "team")],
    ] {
        assert!(matches!(ask(name), Err(PkiError::Request(_))), "{name:?}");
    }
    for nonsense in
        [&b"\xff"[..], b"", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
    {
        assert!(matches!(authority.person(nonsense, Duration::from_secs(3600)), Err(PkiError::Request(_))));
    }
}

/// Chains are verified as Python 3.13 and newer do (`VERIFY_X509_STRICT`).
#[test]
fn every_certificate_passes_strict_verification() {
    let authority = Authority::create("x").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.certificate_pem()).unwrap();
    let mut person = CertificateParams::default();
    person.distinguished_name = DistinguishedName::new();
    person.distinguished_name.push(DnType::CommonName, "ann");
    let person = person.serialize_request(&new_key().unwrap()).unwrap().pem().unwrap();
    let server = authority.server(&["10.0.0.7".into(), "bridge.example".into()]).unwrap();
    let client = authority.client("admin", "system:masters").unwrap();
    let pem = |der: &CertificateDer<'_>| to_pem("CERTIFICATE", der);
    for (kind, purpose, text) in [
        ("authority", "any", authority.certificate_pem()),
        ("server", "sslserver", pem(&server.certificate)),
        ("client", "sslclient", pem(&client.certificate)),
        ("node", "sslclient", pem(&authority.node("edge-1", &request("x")).unwrap())),
        ("person", "sslclient", authority.person(person.as_bytes(), Duration::from_secs(3600)).unwrap()),
    ] {
        let file = folder.path().join(kind);
        std::fs::write(&file, &text).unwrap();
        let verified = std::process::Command::new("openssl")
            .args(["verify", "-x509_strict", "-purpose", purpose, "-CAfile"])
            .args([&ca, &file])
            .output()
            .unwrap();
        assert!(verified.status.success(), "{kind}: {}", String::from_utf8_lossy(&verified.stderr));
        let certificate = &certificates(kind, text.as_bytes()).unwrap()[0];
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
        let named = parsed.iter_extensions().any(|one| {
            matches!(one.parsed_extension(), x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(_))
        });
        assert!(named, "{kind} does not name the authority's key");
    }
}

#[test]
fn renewal_in_a_rotation_shows_that_the_node_trusts_both() {
    let (old, new) = (Authority::create("a").unwrap(), Authority::create("b").unwrap());
    let pair = Pair { certificate: new.certificate_pem(), key: new.key_pem() };
    let all = [old.certificate().clone(), new.certificate().clone()];
    let rotation = Rotation::begin(pair, clock::now(), Duration::ZERO, Duration::from_secs(60));
    let both = Authority::in_rotation("test", Some(rotation.clone()), || Ok(old)).unwrap();
    let both = both.with_node_life(Duration::from_secs(3600));
    assert_eq!((both.certificate(), both.trusted()), (&all[0], all.to_vec()));
    assert_eq!(certificates("test", both.trusted_pem().as_bytes()).unwrap(), all);
    let now = clock::now();
    let joined = Holder::of(&both.node("edge-1", &request("x")).unwrap()).unwrap();
    let renewed = Holder::of(&both.renewed("edge-1", &request("x"), now).unwrap()).unwrap();
    assert_eq!((both.trust_of(&joined), both.trust_of(&renewed)), (Some(Trust::Old), Some(Trust::Both)));
    assert!(renewed.expires <= now + Duration::from_secs(3600), "it lives no longer");
    // Clients of this time also reach bridges that do not know of the rotation; what people get outlasts it.
    let operator = both.client("robot", "sampan:operators").unwrap();
    let person = both.user("ann", None, NODE_LIFE).unwrap();
    let by_new = |signed: &Signed| Holder::of(&signed.certificate).unwrap().authority_key == renewed.authority_key;
    assert!(!by_new(&operator) && by_new(&person));

    let later = now + Duration::from_secs(60);
    let after = Authority::in_rotation("test", Some(rotation.finish(now, Duration::from_secs(60))), || {
        panic!("it is not read")
    })
    .unwrap();
    assert_eq!(after.trusted(), all[1..]);
    assert_eq!(after.trust_of(&renewed), Some(Trust::Both));
    let last = Holder { issued: later, ..renewed };
    assert_eq!(after.trust_of(&last), Some(Trust::New));
    assert_eq!(new.trust_of(&last), None, "there was no rotation");
}
