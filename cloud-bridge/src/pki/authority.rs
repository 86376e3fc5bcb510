//! The certificate authority: one ECDSA P-256 key that signs server, admin and node certificates.
//!
//! Pure but for randomness; where the key is kept is the business of `keep`. `rotating` has the successor of an authority.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, date_time_ymd,
};
use ring::{digest, rand::SystemRandom};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::encoding::{hex, to_pem};
use super::identity::{NODE_GROUP, node_user};
use super::request::{check_node_request, check_person_request};
use super::rotation::Rotation;
use super::{PkiError, clock, serial};

mod rotating;

/// The authority outlives the devices that pin it.
const CA_LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Certificates that the bridge makes for itself, new ones at every start.
const SERVER_LIFE: Duration = Duration::from_secs(5 * 365 * 24 * 3600);
const CLIENT_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Life of a node's certificate unless said otherwise.
pub const NODE_LIFE: Duration = CLIENT_LIFE;

/// A certificate with its private key.
pub struct Signed {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

/// The authority with its key in memory, and during a rotation the one that will replace it.
pub struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    node_life: Duration,
    /// The last rotation, if there was one.
    rotation: Option<Rotation>,
    next: Option<Box<Self>>,
}

impl Authority {
    /// A new authority. `cluster` is only a name for people to see in the certificate.
    pub fn create(cluster: &str) -> Result<Self, PkiError> {
        Self::create_at(cluster, clock::now())
    }

    fn create_at(cluster: &str, now: SystemTime) -> Result<Self, PkiError> {
        Self::signed(cluster, new_key()?, now)
    }

    /// The authority of a key whose certificate was lost, with a new one: who trusts the old one trusts what this signs, since
    /// name and key are the same. `what` names the place of the key in errors.
    pub fn of_key(what: &str, cluster: &str, key: &str) -> Result<Self, PkiError> {
        let bad = |_| PkiError::Pem { what: what.to_owned(), wanted: "private key" };
        Self::signed(cluster, KeyPair::from_pem(key).map_err(bad)?, clock::now())
    }

    fn signed(cluster: &str, key: KeyPair, now: SystemTime) -> Result<Self, PkiError> {
        let mut params = subject(&format!("sampan-ca-{cluster}"), None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.use_authority_key_identifier_extension = true;
        set_validity_from(&mut params, now, CA_LIFE);
        let certificate = params.self_signed(&key).map_err(failed("signing the authority's certificate"))?;
        Ok(Self { certificate: certificate.der().clone(), key, node_life: NODE_LIFE, rotation: None, next: None })
    }

    /// Reads back what [`certificate_pem`](Self::certificate_pem) and [`key_pem`](Self::key_pem) gave.
    /// `what` names the place in errors.
    pub fn from_pem(what: &str, certificate: &str, key: &str) -> Result<Self, PkiError> {
        let bad = |wanted| PkiError::Pem { what: what.to_owned(), wanted };
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| bad("certificate"))?;
        let key = KeyPair::from_pem(key).map_err(|_| bad("private key"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).map_err(|_| bad("certificate"))?;
        if *parsed.public_key().subject_public_key.data != *key.der_bytes() {
            return Err(bad("certificate of this private key"));
        }
        Ok(Self { certificate, key, node_life: NODE_LIFE, rotation: None, next: None })
    }

    /// When its own certificate ends.
    pub fn ends(&self) -> SystemTime {
        let parsed = x509_parser::parse_x509_certificate(&self.certificate);
        let end = parsed.map_or(0, |(_, parsed)| parsed.validity().not_after.timestamp());
        UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default())
    }

    /// Gives certificates of nodes this life.
    #[must_use]
    pub fn with_node_life(mut self, life: Duration) -> Self {
        self.node_life = life;
        if let Some(next) = &mut self.next {
            next.node_life = life;
        }
        self
    }

    /// Life of certificates of nodes.
    pub fn node_life(&self) -> Duration {
        self.node_life
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn certificate_pem(&self) -> String {
        to_pem("CERTIFICATE", &self.certificate)
    }

    /// PKCS #8. Never logged.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Lower-case hex of the SHA-256 of the certificate's DER: what a join token pins.
    pub fn fingerprint(&self) -> String {
        hex(digest::digest(&digest::SHA256, &self.certificate).as_ref())
    }

    /// A server certificate for these addresses, IP or DNS, and for `localhost`, `127.0.0.1` and `::1`.
    pub fn server(&self, addresses: &[String]) -> Result<Signed, PkiError> {
        let mut params = subject("cloud-bridge", None);
        for address in ["localhost", "127.0.0.1", "::1"].into_iter().chain(addresses.iter().map(String::as_str)) {
            let name = match address.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(address.try_into().map_err(failed("server address"))?),
            };
            if !params.subject_alt_names.contains(&name) {
                params.subject_alt_names.push(name);
            }
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_validity(&mut params, SERVER_LIFE);
        self.sign_new(params)
    }

    /// A client certificate of this user, in this group, for a year. Bridges that do not know of a rotation yet take it.
    pub fn client(&self, user: &str, group: &str) -> Result<Signed, PkiError> {
        self.sign_user(user, Some(group), CLIENT_LIFE)
    }

    /// A client certificate of this user for this long, perhaps in a group. It outlasts a rotation.
    pub fn user(&self, user: &str, group: Option<&str>, life: Duration) -> Result<Signed, PkiError> {
        self.issuer(clock::now()).sign_user(user, group, life)
    }

    fn sign_user(&self, user: &str, group: Option<&str>, life: Duration) -> Result<Signed, PkiError> {
        let mut params = subject(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        set_validity(&mut params, life);
        self.sign_new(params)
    }

    /// Signs a node's request. The names in the certificate come from `node`, which the caller has proven;
    /// of the request only the public key is used (guarantees against a request for another identity).
    ///
    /// # Errors
    /// [`PkiError::Request`] when the request is unreadable, has a wrong signature, has a key other than
    /// ECDSA P-256, or asks for another node's identity.
    pub fn node(&self, node: &str, request: &[u8]) -> Result<CertificateDer<'static>, PkiError> {
        self.node_at(node, request, clock::now())
    }

    /// Same as [`node`](Self::node), with this time of issue.
    pub fn node_at(&self, node: &str, request: &[u8], issued: SystemTime) -> Result<CertificateDer<'static>, PkiError> {
        let request = check_node_request(node, request)?;
        let mut params = subject(&node_user(node), Some(NODE_GROUP));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(serial::new(issued, &SystemRandom::new())?);
        set_validity_from(&mut params, issued, self.node_life);
        self.sign(params, &request.public_key)
    }

    /// Signs a user's request, PEM of PKCS #10, for a client of the API: with the name and groups that it asks for,
    /// which must be approved, and nothing else of it.
    ///
    /// # Errors
    /// [`PkiError::Request`] when it is unreadable, has a wrong signature or no name, or asks for the identity of a node
    /// or a bridge.
    pub fn person(&self, request: &[u8], life: Duration) -> Result<String, PkiError> {
        let request = check_person_request(request)?;
        let mut params = subject("", None);
        params.distinguished_name = request.params.distinguished_name;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        set_validity(&mut params, life);
        Ok(to_pem("CERTIFICATE", &self.issuer(clock::now()).sign(params, &request.public_key)?))
    }

    /// Signs, and names the authority's key in the certificate: RFC 5280 4.2.1.1 requires it, and clients that verify
    /// strictly (Python 3.13) refuse a certificate without.
    fn sign(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, PkiError> {
        let issuer = Issuer::from_ca_cert_der(&self.certificate, &self.key)
            .map_err(failed("reading the authority's certificate"))?;
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(key, &issuer).map_err(failed("signing a certificate"))?;
        Ok(signed.der().clone())
    }

    fn sign_new(&self, params: CertificateParams) -> Result<Signed, PkiError> {
        let key = new_key()?;
        let certificate = self.sign(params, &key)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Signed { certificate, key })
    }
}

fn new_key() -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed("making a key"))
}

fn subject(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

/// Devices without a clock battery compare with the build time of their software: a certificate made after
/// it must not look as if it came from the future. So validity begins long ago.
fn set_validity(params: &mut CertificateParams, life: Duration) {
    set_validity_from(params, clock::now(), life);
}

/// `from` may be of another's clock, and that one may stand in 1970.
fn set_validity_from(params: &mut CertificateParams, from: SystemTime, life: Duration) {
    let from = clock::believable(from).duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = date_time_ymd(2024, 1, 1);
    params.not_after = date_time_ymd(1970, 1, 1) + from + life;
}

fn failed(what: &'static str) -> impl Fn(rcgen::Error) -> PkiError {
    move |source| PkiError::Certificate { what, source }
}

#[cfg(test)]
mod tests;
