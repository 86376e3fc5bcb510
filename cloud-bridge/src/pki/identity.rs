//! From a client certificate to the name it proves. Pure.
//!
//! The TLS layer has checked signature and validity; this only reads the subject.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apimachinery::names;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;

use super::serial;

/// User names of nodes, as the API server's node authorizer knows them.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// Group of all nodes.
pub const NODE_GROUP: &str = "system:nodes";

/// User name of a bridge, as it proves itself to other bridges of its cluster.
pub const BRIDGE_USER: &str = "sampan:bridge";
/// Group of all bridges.
pub const BRIDGE_GROUP: &str = "sampan:bridges";

/// The user name of a node.
pub fn node_user(node: &str) -> String {
    format!("{NODE_USER_PREFIX}{node}")
}

/// The subject of a verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// CN: the user name.
    pub user: String,
    /// O, in order: the groups.
    pub groups: Vec<String>,
}

impl Subject {
    /// `None` if the certificate has no readable subject.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let user = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups = parsed.subject().iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
        Some(Self { user, groups })
    }

    /// The node's name, if this is a node's identity.
    pub fn node(&self) -> Option<&str> {
        if !self.groups.iter().any(|group| group == NODE_GROUP) {
            return None;
        }
        self.user.strip_prefix(NODE_USER_PREFIX).filter(|name| is_node_name(name))
    }
}

/// A client certificate that the TLS layer has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub subject: Subject,
    /// Time of issue; 1970 for a certificate without one, as this authority issues for users.
    pub issued: SystemTime,
    pub expires: SystemTime,
    /// Identifier of the key that has signed it (RFC 5280, 4.2.1.1).
    pub authority_key: Option<Vec<u8>>,
}

impl Holder {
    /// `None` if the certificate cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let expires = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
        Some(Self {
            subject: Subject::of(certificate)?,
            issued: serial::issued(parsed.raw_serial()),
            expires: UNIX_EPOCH + Duration::from_secs(expires),
            authority_key: authority_key(&parsed),
        })
    }
}

fn authority_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(named) => named.key_identifier.as_ref().map(|key| key.0.to_vec()),
        _ => None,
    })
}

/// Identifier of an authority's key (RFC 5280, 4.2.1.2), as [`Holder::authority_key`] names it.
pub(super) fn subject_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0.to_vec()),
        _ => None,
    })
}

/// Whether this is a valid name of a Node object (RFC 1123 subdomain). It is used in URLs and user names.
pub fn is_node_name(name: &str) -> bool {
    names::dns_subdomain(name).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_dns_subdomains() {
        for good in ["edge-1", "a", "a.b-c.d", "0"] {
            assert!(is_node_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a..b", "a/b", "a b", "ä", &"x".repeat(254)] {
            assert!(!is_node_name(bad), "{bad}");
        }
    }

    #[test]
    fn only_members_of_the_node_group_are_nodes() {
        let subject = |user: &str, group: &str| Subject { user: user.into(), groups: vec![group.into()] };
        assert_eq!(subject("system:node:a", "system:nodes").node(), Some("a"));
        assert_eq!(subject("system:node:a", "system:masters").node(), None);
        assert_eq!(subject("a", "system:nodes").node(), None);
        assert_eq!(subject("system:node:A/b", "system:nodes").node(), None);
    }
}
