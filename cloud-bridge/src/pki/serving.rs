//! The bridge's own server certificate, which is renewed while the bridge runs, so that it never expires.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::authority::Authority;
use super::{PkiError, clock};

/// Pause after a failed renewal.
const AGAIN: Duration = Duration::from_secs(3600);

/// The certificate of a listener. New connections get the newest; open ones continue.
pub struct Serving {
    authority: Arc<Authority>,
    addresses: Vec<String>,
    shown: RwLock<Shown>,
}

struct Shown {
    key: Arc<CertifiedKey>,
    made: SystemTime,
}

impl Serving {
    /// Creates the certificate for these addresses, see [`Authority::server`].
    ///
    /// # Errors
    /// An address that no certificate can hold.
    pub fn new(authority: Arc<Authority>, addresses: Vec<String>) -> Result<Arc<Self>, PkiError> {
        let shown = RwLock::new(sign(&authority, &addresses)?);
        Ok(Arc::new(Self { authority, addresses, shown }))
    }

    /// Signs another certificate, for another key.
    ///
    /// # Errors
    /// The system has no randomness: any other error would have prevented the first certificate. The present
    /// certificate stays.
    pub fn renew(&self) -> Result<(), PkiError> {
        let signed = sign(&self.authority, &self.addresses)?;
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = signed;
        Ok(())
    }

    /// The certificate for the next connection, and the authority's.
    pub fn shown(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner).key)
    }

    fn made(&self) -> SystemTime {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).made
    }

    /// Renews the certificate periodically, forever.
    pub async fn keep_fresh(self: Arc<Self>) {
        loop {
            clock::due(self.made()).await;
            match self.renew() {
                Ok(()) => log::info!("the server certificate was renewed"),
                Err(error) => {
                    log::error!("the server certificate was not renewed: {error}");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

fn sign(authority: &Authority, addresses: &[String]) -> Result<Shown, PkiError> {
    let made = clock::now();
    let signed = authority.server(addresses)?;
    let key = rustls::crypto::ring::sign::any_supported_type(&signed.key)?;
    let key = Arc::new(CertifiedKey::new(vec![signed.certificate, authority.certificate().clone()], key));
    Ok(Shown { key, made })
}

/// Not derived, because the authority's key must not be logged.
impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }
}
