//! The certificate of the helper, made once. It is signed by an authority of its own, whose key is thrown away at once:
//! nobody can sign a second one. Two certificates and not one that is its own authority, because webpki (kube-rs)
//! refuses an authority as a server. Nothing is signed by the cluster's authority.
//!
//! It is valid from 1970 to 9999: a board's clock may not be set, and its files may outlive it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sampan_sys::files::{private_dir, replace};

use crate::pods::hex;

/// A certificate with its key.
#[derive(Debug)]
pub(super) struct Certificate {
    /// The server's own, and its authority's.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// PEM of the authority's, one block.
    pub(super) authority: String,
}

/// Names by which pods reach the helper: each address, and those of the Service `kubernetes`.
pub(super) fn names(listen: &[SocketAddr], domain: &str) -> Vec<String> {
    let mut names: Vec<String> = listen.iter().map(|address| address.ip().to_string()).collect();
    names.extend(["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned));
    names.push(format!("kubernetes.default.svc.{}", domain.trim_end_matches('.')));
    names.sort();
    names.dedup();
    names
}

/// Reads `cert.pem` and `key.pem` of the folder, or makes them where they do not fit.
///
/// # Errors
/// They cannot be written, or a name is none.
pub(super) fn get(folder: &Path, names: &[String], provider: &CryptoProvider) -> io::Result<Certificate> {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let found = fs::read(&certificate).and_then(|certificate| Ok((certificate, fs::read(&key)?)));
    let unfit = match found {
        Ok((certificate, key)) => match fits(&certificate, &key, names, provider) {
            Ok(found) => return Ok(found),
            Err(why) => format!("the one in {} does not fit: {why}", folder.display()),
        },
        Err(error) => format!("{}: {error}", certificate.display()),
    };
    log::info!("making a certificate for pods ({unfit})");
    let (certificate_pem, key_pem) = make(names).map_err(io::Error::other)?;
    private_dir(folder)?;
    // A power cut between the two leaves a key that does not fit: both are made again.
    replace(&key, key_pem.as_bytes(), true)?;
    replace(&certificate, certificate_pem.as_bytes(), true)?;
    fits(certificate_pem.as_bytes(), key_pem.as_bytes(), names, provider).map_err(io::Error::other)
}

/// The certificate, if it can be used and has all names.
fn fits(certificate: &[u8], key: &[u8], names: &[String], provider: &CryptoProvider) -> Result<Certificate, String> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("cert.pem: {error}"))?;
    let [own, authority] = chain.as_slice() else { return Err("cert.pem: not two certificates".into()) };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key.pem: {error}"))?;
    CertifiedKey::from_der(chain.clone(), key.clone_key(), provider).map_err(|error| error.to_string())?;
    let parsed = ParsedCertificate::try_from(own).map_err(|error| error.to_string())?;
    for name in names {
        let server = ServerName::try_from(name.as_str()).map_err(|_| format!("{name:?} is no name of a server"))?;
        verify_server_name(&parsed, &server).map_err(|_| format!("it is not for {name}"))?;
    }
    let authority = pem("CERTIFICATE", authority);
    Ok(Certificate { chain, key, authority })
}

/// PEM of the certificates, and of the key.
fn make(names: &[String]) -> Result<(String, String), rcgen::Error> {
    let authority_key = KeyPair::generate()?;
    // Another subject each time: a pod may trust an earlier one, too.
    let mut number = [0; 4];
    SystemRandom::new().fill(&mut number).map_err(|_| rcgen::Error::RingUnspecified)?;
    let mut authority = params(&[], &format!("edge-api authority {}", hex(&number)))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_der = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let mut own = params(names, "edge-api")?;
    own.is_ca = IsCa::ExplicitNoCa;
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // OpenSSL's strict mode, the default of Python 3.13, wants it.
    own.use_authority_key_identifier_extension = true;
    let own = own.signed_by(&key, &issuer)?;
    let certificates = pem("CERTIFICATE", own.der()) + &pem("CERTIFICATE", authority_der.der());
    Ok((certificates, pem("PRIVATE KEY", key.serialized_der())))
}

fn params(names: &[String], subject: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    (params.not_before, params.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
    Ok(params)
}

/// PEM text of DER bytes (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn get_in(folder: &Path, listen: &[&str]) -> Certificate {
        let listen: Vec<SocketAddr> = listen.iter().map(|address| address.parse().expect("an address")).collect();
        let provider = rustls::crypto::ring::default_provider();
        get(folder, &names(&listen, "cluster.local"), &provider).expect("a certificate")
    }

    #[test]
    fn certificate_is_made_once_and_for_root_alone() {
        let folder = tempfile::tempdir().expect("temp dir");
        let inside = folder.path().join("api");
        let first = get_in(&inside, &["10.88.0.1:6443", "[fd73::1]:6443"]);
        assert_eq!(get_in(&inside, &["10.88.0.1:6443", "[fd73::1]:6443"]).chain, first.chain);
        assert_eq!(get_in(&inside, &["10.88.0.1:7000"]).chain, first.chain, "fewer names are fine");
        for name in ["cert.pem", "key.pem"] {
            let mode = fs::metadata(inside.join(name)).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(first.authority.matches("BEGIN CERTIFICATE").count(), 1);
    }

    #[test]
    fn certificate_that_does_not_fit_is_made_again() {
        let folder = tempfile::tempdir().expect("temp dir");
        let first = get_in(folder.path(), &["10.88.0.1:6443"]);
        let second = get_in(folder.path(), &["10.88.0.1:6443", "10.88.0.2:6443"]);
        assert_ne!(first.chain, second.chain, "an address is missing");
        let other = tempfile::tempdir().expect("temp dir");
        get_in(other.path(), &["10.88.0.1:6443"]);
        fs::copy(other.path().join("key.pem"), folder.path().join("key.pem")).expect("copied");
        let third = get_in(folder.path(), &["10.88.0.1:6443"]);
        assert_ne!(second.chain, third.chain, "another key");
        fs::write(folder.path().join("cert.pem"), "-----BEGIN CERTIFICATE-----\nAA\n").expect("written");
        assert_ne!(get_in(folder.path(), &["10.88.0.1:6443"]).chain, third.chain, "a cut file");
    }

    /// Without a clock of its own and without a link a board begins in 1970, and so do its pods.
    #[test]
    fn certificate_is_valid_while_the_clock_is_not_set() {
        let folder = tempfile::tempdir().expect("temp dir");
        for certificate in get_in(folder.path(), &["10.88.0.1:6443"]).chain {
            let has = |time: &[u8]| certificate.windows(time.len()).any(|window| window == time);
            assert!(has(b"700101000000Z") && has(b"99991231000000Z"));
        }
    }

    #[test]
    fn names_are_those_of_the_service_and_the_addresses() {
        let listen = ["10.88.0.1:6443", "10.88.0.1:7443", "[fd73::1]:6443"]
            .map(|text| text.parse::<SocketAddr>().expect("an address"));
        assert_eq!(
            names(&listen, "example.org."),
            [
                "10.88.0.1",
                "fd73::1",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.example.org"
            ]
        );
    }
}
