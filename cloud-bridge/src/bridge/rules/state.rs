//! What the tasks of rules share: the running watch, and the client for targets.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;

use super::post::Poster;
use super::route::Route;
use super::watch::RuleWatch;
use crate::bridge::followed::present::Present;

/// Interval of checks whether rules have been read.
const LOOK: Duration = Duration::from_millis(200);

/// State of all rules.
pub(in crate::bridge) struct RuleState {
    pub(in crate::bridge) watch: Present<RuleWatch>,
    /// Sends the HTTP requests of rules.
    pub(super) poster: Poster,
}

impl RuleState {
    /// `authorities`: trusted for targets, in addition to the system's.
    pub(in crate::bridge) fn new(authorities: &[CertificateDer<'static>]) -> Self {
        Self { watch: Present::default(), poster: Poster::new(authorities) }
    }

    /// The rule of this uid, if it is valid, and the watch that counts its results. Waits until all rules have been read:
    /// a node that has just connected knows its rules from an earlier connection.
    pub(super) async fn route(&self, uid: &str) -> (Arc<RuleWatch>, Option<Arc<Route>>) {
        loop {
            if let Some(watch) = self.watch.get()
                && let (route, true) = watch.route(uid)
            {
                return (watch, route);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
