//! A link without a bridge, for unit tests of the loop: the test says what the bridge says, and reads what the node says.

use std::cell::RefCell;
use std::iter::from_fn;
use std::rc::Rc;
use std::time::Duration;

use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::frame::encode;
use edge_protocol::message::{ToCloud, ToEdge};
use edge_protocol::version::Welcome;
use rustls_pki_types::CertificateDer;

use super::identity::Identity;
use super::tls::Time;
use super::{LinkHandle, Shared};
use crate::net::proxy::Proxy;
use crate::paths::Paths;

const NOW: Duration = Duration::ZERO;

impl LinkHandle {
    /// A connection after the welcome of a bridge with these features, to stream `s` of cluster `c`.
    pub(crate) fn for_tests(paths: &Paths, features: &[&str]) -> Self {
        let none = CertificateDer::from(Vec::<u8>::new());
        let identity = Identity::new("n".to_owned(), "c".to_owned(), Vec::new(), &none, &none, &[]);
        let shared = Shared {
            session: RefCell::new(Some(EdgeSession::new(EdgeFacts::new("n", "boot"), NOW))),
            facts: RefCell::new(None),
            wake: smol::channel::bounded(1).0,
            identity: RefCell::new(identity),
            config: RefCell::new(None),
            time: Time::default(),
            paths: paths.clone(),
            proxy: Proxy::default(),
            renewal: smol::channel::bounded(1).0,
        };
        let link = Self { shared: Rc::new(shared) };
        let welcome = Welcome {
            protocol: 1,
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            cluster: "c".to_owned(),
            session: 1,
            stream: "s".to_owned(),
            resume: false,
            heartbeat_ms: 15_000,
            repeat_within_ms: None,
            identity: None,
        };
        link.hears(&ToEdge::Welcome(welcome));
        link
    }

    /// The bridge says this. Returns the changes in it.
    pub(crate) fn hears(&self, message: &ToEdge) -> Vec<Change> {
        let of = |event: EdgeEvent| if let EdgeEvent::Change(change) = event { Some(change) } else { None };
        let heard = self.with(|session| {
            session.handle(&encode(message), NOW).unwrap();
            from_fn(|| session.poll_event()).filter_map(of).collect::<Vec<Change>>()
        });
        heard.unwrap_or_default()
    }

    /// What the node has said since the last call.
    pub(crate) fn says(&self) -> Vec<ToCloud> {
        let said = self.with(|session| from_fn(|| session.poll_transmit(NOW)).collect::<Vec<String>>());
        said.unwrap_or_default().iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }
}
