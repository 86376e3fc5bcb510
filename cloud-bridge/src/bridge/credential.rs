//! The certificate of a connection: its validity, and the authority that signs its successor.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edge_protocol::message::{Der, RenewAnswer};
use edge_protocol::version::IdentityTerms;

use crate::pki::PkiError;
use crate::pki::authority::Authority;
use crate::pki::clock;
use crate::pki::rotation::Trust;

/// Credential of one connection.
#[derive(Clone)]
pub struct Credential {
    pub authority: Arc<Authority>,
    pub issued: SystemTime,
    pub expires: SystemTime,
    /// Authorities that the node trusts, if there was a rotation.
    pub trust: Option<Trust>,
}

impl Credential {
    /// How long the certificate is still valid.
    pub(super) fn left(&self, now: SystemTime) -> Duration {
        self.expires.duration_since(now).unwrap_or_default()
    }

    /// Returns the terms that are sent to the node: its certificate's, or those that make it renew earlier, because it
    /// lacks an authority or trusts one that was removed.
    pub(super) fn terms(&self, now: SystemTime) -> IdentityTerms {
        let own = self.own_terms(now);
        let rotation = self.authority.rotation().zip(self.trust);
        match rotation.and_then(|(rotation, trust)| rotation.renewal(trust, now)) {
            Some((pause, within)) => sooner(own, pause, within),
            None => own,
        }
    }

    /// A certificate that does not say when it was issued must be renewed at once.
    fn own_terms(&self, now: SystemTime) -> IdentityTerms {
        let life = self.expires.duration_since(self.issued).unwrap_or_default();
        // A join may have issued it a little ahead of this clock.
        let left = if self.issued == UNIX_EPOCH { Duration::ZERO } else { self.left(now).min(life) };
        IdentityTerms {
            now_ms: millis(now.duration_since(UNIX_EPOCH).unwrap_or_default()),
            left_ms: millis(left),
            life_ms: millis(life),
        }
    }

    /// Signs a certificate for a new key of the node that this connection has proven to be.
    pub(super) fn renew(&self, node: &str, request: &[u8]) -> RenewAnswer {
        // Not issued before this connection's own: a join may have used a time that this clock has not reached.
        match self.authority.renewed(node, request, clock::now().max(self.issued)) {
            Ok(certificate) => {
                log::info!("node {node}: its certificate was renewed");
                let authorities = self.authority.trusted().iter().map(|one| Der(one.to_vec())).collect();
                RenewAnswer::Issued { certificate: Der(certificate.to_vec()), authorities }
            }
            Err(error) => {
                log::warn!("node {node}: its certificate was not renewed: {error}");
                let reason = match error {
                    PkiError::Request(_) => error.to_string(),
                    _ => "the bridge cannot sign now".to_owned(),
                };
                RenewAnswer::Refused { reason }
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Terms with which a node renews at a random time within `within` after `pause`, unless its own make it renew earlier.
/// Nodes renew when between 10 and 30 % of `life_ms` are left (`link/renew.rs` of the node).
fn sooner(own: IdentityTerms, pause: Duration, within: Duration) -> IdentityTerms {
    let (pause, within) = (millis(pause), millis(within));
    let latest = own.left_ms.saturating_sub(own.life_ms / 10);
    if latest <= pause.saturating_add(within) {
        return own;
    }
    let left_ms = pause.saturating_add(within.saturating_add(within / 2));
    IdentityTerms { left_ms, life_ms: within.saturating_mul(5), ..own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g24_terms_are_of_the_bridges_clock() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let authority = Arc::new(Authority::create("x").unwrap());
        let credential = Credential { authority, issued: at(1_000), expires: at(2_000), trust: None };
        let terms = credential.terms(at(1_400));
        assert_eq!((terms.now_ms, terms.left_ms, terms.life_ms), (1_400_000, 600_000, 1_000_000));
        assert_eq!(credential.terms(at(3_000)).left_ms, 0);
        let silent = Credential { issued: UNIX_EPOCH, ..credential };
        assert_eq!(silent.terms(at(1_400)).left_ms, 0, "renewed at once");
    }

    #[test]
    fn node_without_the_new_authority_renews_soon() {
        let day = 86_400_000;
        let own = IdentityTerms { now_ms: 7, left_ms: 300 * day, life_ms: 365 * day };
        let terms = sooner(own, Duration::from_secs(60), Duration::from_secs(600));
        // As `due_in` of the node: what is left, less 30 to 10 % of the life.
        let due = [terms.life_ms / 10 * 3, terms.life_ms / 10].map(|keep| terms.left_ms.saturating_sub(keep));
        assert_eq!((due, terms.now_ms), ([60_000, 660_000], 7));
        let late = IdentityTerms { left_ms: 36 * day, ..own };
        assert_eq!(sooner(late, Duration::from_secs(60), Duration::from_secs(600)), late, "it is due anyway");
    }

    #[test]
    fn g23_a_renewal_is_for_the_connections_node_whatever_is_asked() {
        let authority = Arc::new(Authority::create("x").unwrap());
        let credential = Credential { authority, issued: UNIX_EPOCH, expires: UNIX_EPOCH, trust: None };
        let request = |name: &str| {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
            params.serialize_request(&key).unwrap().der().to_vec()
        };
        let RenewAnswer::Issued { certificate, .. } = credential.renew("a", &request("admin")) else { panic!() };
        let subject = crate::pki::identity::Subject::of(&certificate.0.into()).unwrap();
        assert_eq!((subject.user.as_str(), subject.groups), ("system:node:a", vec!["system:nodes".to_owned()]));
        let refused = credential.renew("a", &request("system:node:b"));
        assert!(matches!(refused, RenewAnswer::Refused { reason } if reason.contains("system:node:b")));
        assert!(matches!(credential.renew("a", b"nonsense"), RenewAnswer::Refused { .. }));
    }
}
