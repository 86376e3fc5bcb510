//! Renews the node's certificate: a new key is made here, the bridge signs it over the link, and only when a handshake
//! with it has succeeded does it replace the one in use. A power cut at any step leaves a usable identity.
//!
//! The bridge's clock, sent with each welcome, determines the time; from then on a timer runs. The device's wall clock
//! is not used.

use super::csr::{self, Signed};
use super::dial::{self, DialError};
use super::identity::{Identity, IdentityError};
use super::tls::{self, TlsError};
use super::{News, Shared, http};
use crate::sys::random::random;
use crate::sys::time::within;
use edge_protocol::message::RenewAnswer;
use edge_protocol::version::IdentityTerms;
use ring::error::Unspecified;
use rustls_pki_types::CertificateDer;
use smol::Timer;
use smol::channel::Receiver;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Attempts to prove a certificate on a bad line before it is thrown away and another is asked for.
const PROOFS: u32 = 6;
/// Timeout for the bridge's answer, over the link and to the proof.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause after an attempt that failed, within these: a fiftieth of the certificate's life.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

#[derive(Debug, thiserror::Error)]
enum RenewError {
    /// The connection ended, or the bridge renews nothing: the next welcome begins again.
    #[error("the connection ended")]
    Ended,
    #[error("the bridge refused: {0}")]
    Refused(String),
    #[error("the bridge's answer: {0}")]
    Answer(&'static str),
    #[error("no answer from the bridge")]
    Silent,
    #[error("the new certificate was not taken ({status}): {message}")]
    NotTaken { status: u16, message: String },
    #[error("trying the new certificate: {0}")]
    Exchange(io::Error),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot make a key: the kernel gives no random numbers")]
    Key(#[from] Unspecified),
}

/// How long until the renewal: at a random point between 70 and 90 % of the certificate's life, so that a thousand
/// nodes that joined on one day do not renew on one.
fn due_in(terms: &IdentityTerms, random: u32) -> Duration {
    let spread = 0.1 + 0.2 * f64::from(random) / f64::from(u32::MAX);
    // Ten years of milliseconds are exact in a f64.
    let keep = Duration::from_millis(terms.life_ms).mul_f64(spread);
    Duration::from_millis(terms.left_ms).saturating_sub(keep)
}

fn pause(terms: &IdentityTerms) -> Duration {
    (Duration::from_millis(terms.life_ms) / 50).clamp(PAUSE.0, PAUSE.1)
}

/// Runs as long as the link.
pub(super) async fn run(shared: Rc<Shared>, news: Receiver<News>) {
    let mut next = None;
    loop {
        let Some((terms, wait)) = next.take() else {
            match news.recv().await {
                Ok(News::Welcome(terms)) => next = Some((terms, due_in(&terms, random()))),
                Ok(News::Answer(_) | News::Ended) => {}
                Err(_) => return,
            }
            continue;
        };
        log::debug!("the certificate of this node will be renewed in {wait:?}");
        if let Some(sooner) = within(wait, news.recv()).await {
            next = match sooner {
                Ok(News::Welcome(terms)) => Some((terms, due_in(&terms, random()))),
                Ok(News::Answer(_)) => Some((terms, wait)),
                Ok(News::Ended) => None,
                Err(_) => return,
            };
            continue;
        }
        match renew(&shared, &news).await {
            Ok(()) => log::info!("the certificate of this node was renewed"),
            Err(RenewError::Ended) => {}
            Err(error) => {
                let wait = pause(&terms);
                log::warn!("the certificate of this node was not renewed, next attempt in {wait:?}: {error}");
                next = Some((terms, wait));
            }
        }
    }
}

async fn renew(shared: &Shared, news: &Receiver<News>) -> Result<(), RenewError> {
    let old = shared.identity.borrow().clone();
    let Signed { key, request } = csr::make(&old.node)?;
    if !shared.renew(request) {
        return Err(RenewError::Ended);
    }
    let answer = async {
        loop {
            match news.recv().await {
                Ok(News::Answer(answer)) => return Ok(answer),
                Ok(News::Welcome(_)) => {}
                Ok(News::Ended) | Err(_) => return Err(RenewError::Ended),
            }
        }
    };
    let new = match within(ANSWER, answer).await.unwrap_or(Err(RenewError::Silent))? {
        RenewAnswer::Issued { certificate, authorities } => {
            let authorities: Vec<CertificateDer<'_>> = authorities.into_iter().map(|der| der.0.into()).collect();
            if authorities.is_empty() {
                return Err(RenewError::Answer("it names no authority"));
            }
            old.renewed(&certificate.0.into(), &authorities, &key)
        }
        RenewAnswer::Refused { reason } => return Err(RenewError::Refused(reason)),
        RenewAnswer::Unknown => return Err(RenewError::Answer("it is not understood")),
    };
    // Durable before it is used: once the bridge has seen it, it may be all that this node is.
    new.save_next(&shared.paths)?;
    let proven = prove(shared, &new).await;
    if let Err(error) = proven {
        Identity::discard_next(&shared.paths);
        return Err(error);
    }
    // Another join may have replaced the identity meanwhile.
    if *shared.identity.borrow() != old {
        Identity::discard_next(&shared.paths);
        return Err(RenewError::Ended);
    }
    let config = shared.client_config(&new)?;
    Identity::promote_next(&shared.paths)?;
    shared.adopt(new, config);
    Ok(())
}

/// A handshake with the new certificate, and the bridge's word that it stands for this node.
async fn prove(shared: &Shared, new: &Identity) -> Result<(), RenewError> {
    let config = Arc::new(shared.client_config(new)?);
    let mut wait = Duration::from_secs(1);
    let mut bridges = new.bridges.iter().cycle();
    for attempt in 1.. {
        let Some(bridge) = bridges.next() else { break };
        let answer =
            http::ask(bridge, &shared.proxy, &config, ("/v1/identity", b"{}"), ANSWER, RenewError::Exchange).await;
        let problem = match answer {
            Err(RenewError::Exchange(error) | RenewError::Dial(DialError::Handshake { source: error, .. }))
                if tls::refused_certificate(&error).is_some() =>
            {
                return Err(RenewError::Exchange(error));
            }
            Ok(response) if response.status == 200 => return Ok(()),
            Ok(response) => {
                let message = dial::status_message(&response.body);
                let refused = RenewError::NotTaken { status: response.status, message };
                if response.status < 500 {
                    return Err(refused);
                }
                refused
            }
            Err(error) => error,
        };
        if attempt >= PROOFS {
            return Err(problem);
        }
        log::debug!("trying the new certificate, attempt {attempt}: {problem}");
        Timer::after(wait).await;
        wait = wait.saturating_mul(2);
    }
    Err(RenewError::Answer("there is no bridge"))
}

/// Returns another identity to try after this one was refused: one from a new join, or a renewed one that a power cut
/// left untested.
fn other(shared: &Shared) -> Option<Identity> {
    let present = shared.identity.borrow().clone();
    let found = match Identity::load(&shared.paths) {
        Ok(Some(found)) if found != present => Some(found),
        Ok(_) => Identity::load_next(&shared.paths).filter(|next| next.node == present.node),
        Err(error) => {
            log::warn!("{error}");
            None
        }
    }?;
    if found.node != present.node {
        log::warn!("this device has joined as node {}: restart edge-runtime to be that node", found.node);
        return None;
    }
    Some(found)
}

/// Switches to another identity of this node, after the present one was refused. False if no other exists.
pub(super) fn change_over(shared: &Shared) -> bool {
    let Some(identity) = other(shared) else { return false };
    let change = || {
        let config = shared.client_config(&identity)?;
        match Identity::load(&shared.paths) {
            Ok(Some(stored)) if stored == identity => {}
            _ => Identity::promote_next(&shared.paths)?,
        }
        shared.adopt(identity, config);
        Ok::<(), TlsError>(())
    };
    match change() {
        Ok(()) => {
            log::info!("trying again with another identity of this node");
            true
        }
        Err(error) => {
            log::error!("{error}");
            false
        }
    }
}

impl Shared {
    fn renew(&self, csr: Vec<u8>) -> bool {
        let asked = self.session.borrow_mut().as_mut().is_some_and(|session| session.renew(csr));
        self.wake();
        asked
    }

    fn client_config(&self, identity: &Identity) -> Result<rustls::ClientConfig, TlsError> {
        tls::node_config(identity, self.time.clone())
    }

    fn adopt(&self, identity: Identity, config: rustls::ClientConfig) {
        *self.identity.borrow_mut() = identity;
        *self.config.borrow_mut() = Some(Arc::new(config));
    }
}

#[cfg(test)]
mod tests;
