//! The listener for calls of controllers of CSI drivers on nodes, which `cloud-bridge csi-proxy` makes: `POST
//! /csi/NODE/DRIVER/SERVICE/METHOD` over HTTPS, with a bearer token. Off unless it is asked for.
//!
//! Owns the port and who may use it, and passes calls on to the bridge that has the node.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use apimachinery::flow::Flow;
use apimachinery::panics;
use apimachinery::user::UserInfo;
use clap::Args;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use crate::accept::client::{Client, Held, held};
use crate::accept::{Busy, Gate};
use crate::bridge::Bridge;
use crate::https_port::HttpsPort;
use crate::info;
use crate::kubelet::auth::{Denied, Reviewer};
use crate::kubelet::body::{Body, text};
use crate::kubelet::controller::{self, Asked, DEADLINE};
use crate::kubelet::forward::Forwarder;
use crate::listen;
use crate::pki::authority::Authority;

/// Where calls of controllers of CSI drivers are taken.
#[derive(Debug, Clone, Default, Args)]
pub struct CsiFlags {
    /// Accept calls of controllers of CSI drivers on nodes, by csi-proxy, over HTTPS at this address. Absent: none are
    /// accepted.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub csi_listen: Option<SocketAddr>,
}

impl CsiFlags {
    /// The port, before anything else is begun: a taken one is a clean failure.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn bind(&self) -> anyhow::Result<Option<TcpListener>> {
        match self.csi_listen {
            Some(address) => Ok(Some(listen::bind(address).await?)),
            None => Ok(None),
        }
    }

    /// Names under which the port is reached.
    pub fn names(&self, advertise: &[String]) -> Vec<String> {
        info::addresses(self.csi_listen.as_slice(), advertise)
    }
}

struct Served {
    bridge: Bridge,
    reviewer: Reviewer,
    forwarder: Arc<Forwarder>,
}

/// Serves forever; does nothing without a port. `names`: the names under which clients reach it.
///
/// # Errors
/// No certificate can be made.
pub async fn serve(
    listener: Option<TcpListener>,
    bridge: &Bridge,
    authority: &Arc<Authority>,
    names: Vec<String>,
    client: kube::Client,
    gate: Arc<Gate>,
) -> anyhow::Result<Infallible> {
    let Some(listener) = listener else { return std::future::pending().await };
    let port = HttpsPort::new(authority, names, &[], &[b"http/1.1"])?;
    log::info!("calls of controllers of CSI drivers are taken at {}", listener.local_addr()?);
    let (reviewer, forwarder) = (Reviewer::new(client), Forwarder::new(Arc::clone(authority)));
    let served = Arc::new(Served { bridge: bridge.clone(), reviewer, forwarder });
    let answer = move |client, _, request| answer(Arc::clone(&served), client, request);
    match port.serve(listener, gate, "port of CSI", answer).await {}
}

async fn answer(
    served: Arc<Served>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Response<Held<Body, Option<Busy>>> {
    let (parts, body) = request.into_parts();
    let allowed = async {
        let subject = served.reviewer.bearer(&parts.headers, client.source()).await?;
        let Some(asked) = Asked::of(&parts.method, &parts.uri) else { return Ok(None) };
        let flow = Flow::of(&UserInfo::new(&subject.user, subject.groups.iter().cloned()));
        served.reviewer.check_controller(subject, &asked.node, &asked.driver).await?;
        Ok::<_, Denied>(Some((asked, flow)))
    };
    let refused = match allowed.await {
        Ok(Some((asked, flow))) => {
            let Some(busy) = client.proven(&flow) else {
                return held(text(StatusCode::TOO_MANY_REQUESTS, "too many connections are busy"), None);
            };
            let work = format!("a call of the CSI driver {} on node {}", asked.driver, asked.node);
            let called = async {
                match served.bridge.elsewhere(&asked.node) {
                    Some(place) => {
                        let place = (asked.node.as_str(), place.as_str());
                        let passed = served.forwarder.forward_call(place, (&flow, DEADLINE), &parts, body).await;
                        passed.unwrap_or_else(controller::refused)
                    }
                    None => controller::call(&served.bridge, asked, &flow, body).await,
                }
            };
            let mistake = || text(StatusCode::INTERNAL_SERVER_ERROR, "the bridge has made a mistake");
            return held(panics::isolate(work, called).await.unwrap_or_else(mistake), Some(busy));
        }
        Ok(None) => text(StatusCode::NOT_FOUND, "want POST /csi/NODE/DRIVER/SERVICE/METHOD of a controller"),
        Err(denied) => {
            let code = match denied {
                Denied::Unauthorized => StatusCode::UNAUTHORIZED,
                Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
                Denied::Api(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            text(code, denied.to_string())
        }
    };
    client.end();
    held(refused, None)
}
