//! The certificate authority: one ECDSA P-256 key that signs server, admin and node certificates.
//!
//! Pure but for randomness; where the key is kept is the business of `keep`.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    date_time_ymd,
};
use ring::{digest, rand::SecureRandom, rand::SystemRandom};
use rustls_pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
    pem::{self, PemObject},
};

use x509_parser::prelude::FromDer;

use super::{PkiError, clock};

/// The authority outlives the devices that pin it.
const CA_LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Certificates that the bridge makes for itself, new ones at every start.
const SERVER_LIFE: Duration = Duration::from_secs(5 * 365 * 24 * 3600);
const CLIENT_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Life of a node's certificate unless said otherwise.
pub const NODE_LIFE: Duration = CLIENT_LIFE;
/// Longest request that is looked at; a P-256 request has about 250 bytes.
const MAX_REQUEST: usize = 8 * 1024;

/// A certificate with its private key.
pub struct Signed {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

/// The authority with its key in memory.
pub struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    node_life: Duration,
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
        Ok(Self { certificate: certificate.der().clone(), key, node_life: NODE_LIFE })
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
        Ok(Self { certificate, key, node_life: NODE_LIFE })
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
        self
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

    /// A client certificate of this user, in this group, for a year.
    pub fn client(&self, user: &str, group: &str) -> Result<Signed, PkiError> {
        self.user(user, Some(group), CLIENT_LIFE)
    }

    /// A client certificate of this user for this long, perhaps in a group.
    pub fn user(&self, user: &str, group: Option<&str>, life: Duration) -> Result<Signed, PkiError> {
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
    /// [`PkiError::Request`] when it is unreadable, has a wrong signature or no name, or asks for the identity of a node.
    pub fn person(&self, request: &[u8], life: Duration) -> Result<String, PkiError> {
        let wrong = |why: &str| PkiError::Request(why.to_owned());
        let text = str::from_utf8(request).map_err(|_| wrong("is no PEM"))?;
        let request =
            CertificateSigningRequestParams::from_pem(text).map_err(|error| PkiError::Request(error.to_string()))?;
        let name = request.params.distinguished_name;
        let user = common_name(&name).filter(|user| !user.is_empty()).ok_or_else(|| wrong("names no user (CN)"))?;
        let groups: Vec<String> = name
            .iter()
            .filter(|(kind, _)| **kind == DnType::OrganizationName)
            .filter_map(|(_, value)| text_of(value))
            .collect();
        // This library keeps one value of each kind.
        let asked = x509_parser::certification_request::X509CertificationRequest::from_der(&request_der(text)?)
            .map_or(0, |(_, asked)| asked.certification_request_info.subject.iter_organization().count());
        if asked != groups.len() {
            return Err(wrong("names several groups (O): one can be signed, more are given by bindings"));
        }
        if user.starts_with(NODE_USER_PREFIX) || groups.iter().any(|group| group == NODE_GROUP) {
            return Err(wrong("asks for the identity of a node, which gets its certificate when it joins"));
        }
        let mut params = subject(&user, None);
        params.distinguished_name = name;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        set_validity(&mut params, life);
        Ok(to_pem("CERTIFICATE", &self.sign(params, &request.public_key)?))
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

/// User names of nodes, as the API server's node authorizer knows them.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// Group of all nodes.
pub const NODE_GROUP: &str = "system:nodes";

/// A node's request as it can be signed. Signs nothing, so it costs a stranger's request little.
///
/// # Errors
/// [`PkiError::Request`] when it is unreadable, has a wrong signature, another kind of key or the name of another node.
pub fn check_node_request(node: &str, request: &[u8]) -> Result<CertificateSigningRequestParams, PkiError> {
    if request.len() > MAX_REQUEST {
        return Err(PkiError::Request(format!("longer than {MAX_REQUEST} bytes")));
    }
    let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
        .map_err(|e| PkiError::Request(e.to_string()))?;
    if *request.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
        return Err(PkiError::Request("the key is not ECDSA P-256".to_owned()));
    }
    let wanted = node_user(node);
    if let Some(asked) = common_name(&request.params.distinguished_name)
        && asked.starts_with(NODE_USER_PREFIX)
        && asked != wanted
    {
        return Err(PkiError::Request(format!("asks for {asked}, but is made by {wanted}")));
    }
    Ok(request)
}

/// The user name of a node.
pub fn node_user(node: &str) -> String {
    format!("{NODE_USER_PREFIX}{node}")
}

/// PEM text of one DER value.
pub fn to_pem(label: &str, der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// All certificates of a PEM text.
pub fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let bad = |_: pem::Error| PkiError::Pem { what: what.to_owned(), wanted: "certificate" };
    let list: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad)?;
    if list.is_empty() { Err(PkiError::Pem { what: what.to_owned(), wanted: "certificate" }) } else { Ok(list) }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
        }
        text
    })
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

fn common_name(name: &DistinguishedName) -> Option<String> {
    text_of(name.get(&DnType::CommonName)?)
}

fn request_der(pem: &str) -> Result<Vec<u8>, PkiError> {
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes());
    der.map(|der| der.to_vec()).map_err(|_| PkiError::Request("is no PEM of a certificate request".to_owned()))
}

fn text_of(value: &DnValue) -> Option<String> {
    match value {
        DnValue::Utf8String(text) => Some(text.clone()),
        DnValue::PrintableString(text) => Some(text.as_str().to_owned()),
        DnValue::Ia5String(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
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

/// Serial numbers that say when a certificate was issued: its `notBefore` cannot, see [`set_validity`].
pub(super) mod serial {
    use super::{Duration, PkiError, SecureRandom, SystemTime, UNIX_EPOCH};
    use rcgen::SerialNumber;

    const MARK: [u8; 4] = *b"smp\x01";

    /// Four bytes of mark, six of milliseconds since 1970, six of randomness.
    pub(crate) fn new(now: SystemTime, random: &dyn SecureRandom) -> Result<SerialNumber, PkiError> {
        let millis = u64::try_from(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..10].copy_from_slice(&millis.to_be_bytes()[2..]);
        random.fill(&mut bytes[10..]).map_err(|_| PkiError::Random)?;
        Ok(SerialNumber::from_slice(&bytes))
    }

    /// When a certificate with this serial was issued; 1970 for one that does not say.
    pub(crate) fn issued(serial: &[u8]) -> SystemTime {
        let millis = match serial.strip_prefix(&MARK) {
            Some([a, b, c, d, e, f, ..]) => u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]),
            _ => 0,
        };
        UNIX_EPOCH + Duration::from_millis(millis)
    }
}

fn failed(what: &'static str) -> impl Fn(rcgen::Error) -> PkiError {
    move |source| PkiError::Certificate { what, source }
}

#[cfg(test)]
mod tests;
