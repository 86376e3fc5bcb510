//! Clients of the API: the bridge's own, and one per node that acts under the node's name.
//!
//! Acting as the node makes the API server's own rules for nodes the second lock behind the bridge's.

use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use kube::Client;
use kube::client::Body;

pub use super::requests::KUBELET;
use super::requests::{IMPERSONATE_GROUP, IMPERSONATE_USER, Requests};
use crate::pki::identity::{NODE_GROUP, node_user};

type AsNode = dyn Fn(&str) -> Client + Send + Sync;

/// Renews the Lease of the node with this name to this time; false if it cannot.
type Renew = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Creates clients. Cheap to clone.
#[derive(Clone)]
pub struct Clients {
    own: Client,
    as_node: Arc<AsNode>,
    renew: Option<Arc<Renew>>,
}

impl Clients {
    /// `as_node` creates a client that the API authenticates as this node.
    pub fn new(own: Client, as_node: impl Fn(&str) -> Client + Send + Sync + 'static) -> Self {
        Self { own, as_node: Arc::new(as_node), renew: None }
    }

    /// Sets a direct function for renewing Leases without requests, if the API is in this process.
    #[must_use]
    pub fn with_renewal(self, renew: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { renew: Some(Arc::new(renew)), ..self }
    }

    /// Whether the Lease was renewed by the direct function.
    pub(super) fn renew(&self, node: &str, time: &str) -> bool {
        self.renew.as_ref().is_some_and(|renew| renew(node, time))
    }

    /// Creates clients for any API server: for nodes by impersonation, for which `own` needs the right.
    pub fn impersonating(own: Client) -> Self {
        let base = own.clone();
        Self::new(own, move |node| impersonate(&base, node))
    }

    pub fn own(&self) -> &Client {
        &self.own
    }

    pub fn as_node(&self, node: &str) -> Client {
        (self.as_node)(node)
    }

    /// Creates single requests in the name of a node, by impersonation.
    pub(super) fn requests_as(&self, node: &str) -> Requests {
        Requests::impersonating(self.own.clone(), user(node))
    }
}

fn user(node: &str) -> HeaderValue {
    // The name was checked when the certificate was read, so it is a valid header value.
    HeaderValue::from_str(&node_user(node)).unwrap_or(HeaderValue::from_static("system:anonymous"))
}

fn impersonate(base: &Client, node: &str) -> Client {
    let user = user(node);
    let base = base.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(IMPERSONATE_USER, user.clone());
        request.headers_mut().insert(IMPERSONATE_GROUP, HeaderValue::from_static(NODE_GROUP));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(KUBELET));
        let base = base.clone();
        async move { base.send(request).await }
    });
    Client::new(service, "default")
}
