//! An authority and its successor, while both are trusted.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;

use super::Authority;
use crate::pki::PkiError;
use crate::pki::encoding::to_pem;
use crate::pki::identity::{Holder, subject_key};
use crate::pki::rotation::{Rotation, Trust};

impl Authority {
    /// The authority in the state of its last rotation. `present` reads the one that is stored in its place; `what` names
    /// the place of the rotation in errors.
    ///
    /// # Errors
    /// The new authority cannot be read, or what `present` says.
    pub fn in_rotation(
        what: &str,
        rotation: Option<Rotation>,
        present: impl FnOnce() -> Result<Self, PkiError>,
    ) -> Result<Self, PkiError> {
        let Some(rotation) = rotation else { return present() };
        let next = rotation.next.as_ref().map(|pair| Self::from_pem(what, &pair.certificate, &pair.key)).transpose()?;
        Ok(match next {
            // A power cut has kept it from being stored in its place, where a half pair may be.
            Some(next) if !rotation.lasts() => Self { rotation: Some(rotation), ..next },
            next => Self { next: next.map(Box::new), rotation: Some(rotation), ..present()? },
        })
    }

    /// The last rotation, if there was one.
    pub fn rotation(&self) -> Option<&Rotation> {
        self.rotation.as_ref()
    }

    /// All authorities whose certificates are good: the present one, then its successor.
    pub fn trusted(&self) -> Vec<CertificateDer<'static>> {
        let next = self.next.iter().map(|next| next.certificate.clone());
        std::iter::once(self.certificate.clone()).chain(next).collect()
    }

    /// [`trusted`](Self::trusted) as PEM.
    pub fn trusted_pem(&self) -> String {
        self.trusted().iter().map(|one| to_pem("CERTIFICATE", one)).collect()
    }

    /// SHA-256 of the successor's certificate, as [`fingerprint`](Self::fingerprint).
    pub fn next_fingerprint(&self) -> Option<String> {
        self.next.as_ref().map(|next| next.fingerprint())
    }

    /// Signs for a node that gets all of [`trusted`](Self::trusted) with the certificate. See [`node`](Self::node).
    ///
    /// # Errors
    /// Same as [`node`](Self::node).
    pub fn renewed(&self, node: &str, request: &[u8], issued: SystemTime) -> Result<CertificateDer<'static>, PkiError> {
        self.issuer(issued).node_at(node, request, issued)
    }

    /// What the holder of a verified certificate trusts; `None` without a rotation.
    pub fn trust_of(&self, holder: &Holder) -> Option<Trust> {
        let next_key = self.next.as_ref().and_then(|next| subject_key(&next.certificate));
        let by_next = next_key.is_some() && next_key == holder.authority_key;
        self.rotation.as_ref().map(|rotation| rotation.trust(by_next, holder.issued))
    }

    /// Signs what has to outlast the rotation, for clients that get all of [`trusted`](Self::trusted).
    pub(super) fn issuer(&self, now: SystemTime) -> &Self {
        match (&self.next, &self.rotation) {
            (Some(next), Some(rotation)) if rotation.issues(now) => next,
            _ => self,
        }
    }
}
