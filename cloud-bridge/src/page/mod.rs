//! `--page ADDRESS:PORT`: a page on which people see their nodes, over HTTPS. Without the flag nothing of it is there: no port, watch or
//! memory. Shows only; who may look is what the API lets `list nodes`.
//!
//! | file | owns |
//! |---|---|
//! | `board` | pure: what is shown, and what has changed |
//! | `follow` | what feeds it |
//! | `access`, `sessions` | who may look |
//! | `routes` | from a request to an answer |
//! | `stream` | server-sent events |
//! | `detail`, `jobs`, `devices`, `usage` | one node, fleet jobs, devices, CPU and memory, read when they are asked for |
//! | `body`, `packed` | bodies of answers |
//! | `assets` | the files that a browser gets: HTML and scripts beside this one, and those that `sampan_page` has for the page of a single node, too |

mod access;
mod assets;
mod board;
mod body;
mod detail;
mod devices;
mod follow;
mod jobs;
mod packed;
mod routes;
mod sessions;
mod stream;
mod usage;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use crate::accept::client::{Client, Held, held};
use crate::accept::{Busy, Gate};
use crate::bridge::{Bridge, PodsSeen};
use crate::https_port::HttpsPort;
use crate::info;
use crate::listen;
use crate::pki::authority::Authority;
use crate::pki::identity::Holder;
use apimachinery::flow::Flow;
use apimachinery::panics;
use apimachinery::user::UserInfo;
pub(crate) use board::own_version;
use body::{Body, typed};
use follow::Live;
use routes::Served;

/// How the page is served.
#[derive(Debug, Clone, Default, Args)]
pub struct PageFlags {
    /// Serve the page of all nodes over HTTPS at this address, to users who may list nodes. Absent: no page.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub page: Option<SocketAddr>,
    /// Name of the site in the page's header and title [default: the host in the browser's address].
    #[arg(long, value_name = "NAME", requires = "page")]
    pub page_title: Option<String>,
}

/// A page that is about to be served.
pub struct Page {
    listener: TcpListener,
    live: Arc<Live>,
    title: String,
}

impl PageFlags {
    /// The port, before anything else is begun. `replicated`: other bridges may serve nodes of the same API.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn bind(&self, replicated: bool) -> anyhow::Result<Option<Page>> {
        let Some(address) = self.page else { return Ok(None) };
        let title = self.page_title.clone().unwrap_or_default();
        Ok(Some(Page { listener: listen::bind(address).await?, live: Live::new(replicated), title }))
    }

    /// Names under which the port is reached.
    pub fn names(&self, advertise: &[String]) -> Vec<String> {
        info::addresses(self.page.as_slice(), advertise)
    }
}

impl Page {
    /// The receiver of the events of all pods.
    pub fn pods_seen(&self) -> Arc<PodsSeen> {
        let live = Arc::clone(&self.live);
        Arc::new(move |event| live.pods(event))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The socket cannot be asked.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// URL at which others reach it.
    ///
    /// # Errors
    /// Same as [`Self::address`].
    pub fn url(&self, advertise: &[String]) -> std::io::Result<String> {
        let address = self.address()?;
        Ok(info::url(address, &[info::host(address, advertise)]))
    }
}

/// Serves forever; does nothing without a page. `names`: the names under which browsers reach it.
///
/// # Errors
/// No certificate can be made.
pub async fn serve(
    page: Option<Page>,
    bridge: &Bridge,
    authority: &Arc<Authority>,
    names: Vec<String>,
    client: kube::Client,
    gate: Arc<Gate>,
) -> anyhow::Result<Infallible> {
    let Some(page) = page else { return std::future::pending().await };
    let port = HttpsPort::new(authority, names, &authority.trusted(), &[b"h2", b"http/1.1"])?;
    log::info!("the page with all nodes is at https://{}", page.address()?);
    let live = Arc::clone(&page.live);
    let served = Arc::new(Served::new(Arc::clone(&live), bridge.clone(), client.clone(), page.title));
    let answer = move |client, holder, request| answer(Arc::clone(&served), client, holder, request);
    tokio::select! {
        never = port.serve(page.listener, gate, "the page", answer) => match never {},
        () = panics::keep("the page's watch of nodes", || live.nodes(client.clone())) => std::future::pending().await,
        () = panics::keep("the page's look at links", || live.look_on(bridge)) => std::future::pending().await,
    }
}

async fn answer(
    served: Arc<Served>,
    client: Arc<Client>,
    holder: Option<Holder>,
    request: Request<Incoming>,
) -> Response<Held<Body, Option<Busy>>> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let packs = packed::accepted(&parts.headers);
    let work = async {
        let who = match served.known(holder.as_ref(), &parts, body, client.source()).await {
            Ok(who) => who,
            Err(answer) => return (answer, None),
        };
        let Some(busy) = client.proven(&Flow::of(&UserInfo::new(who.name(), [""; 0]))) else {
            let text = Bytes::from_static(b"too many connections are busy");
            return (typed(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text), None);
        };
        (served.answer(&who, &path, packs).await, Some(busy))
    };
    let mistake = || {
        let text = Bytes::from_static(b"the bridge has made a mistake");
        (typed(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", text), None)
    };
    let (answer, busy) = panics::isolate("a request for the page", work).await.unwrap_or_else(mistake);
    held(assets::guarded(answer), busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_the_flag_there_is_no_page() {
        assert!(PageFlags::default().bind(false).await.unwrap().is_none());
        let flags = PageFlags { page: Some(([127, 0, 0, 1], 0).into()), ..PageFlags::default() };
        let page = flags.bind(false).await.unwrap().unwrap();
        assert!(flags.bind(true).await.is_ok(), "each has a port of its own");
        let taken = PageFlags { page: Some(page.address().unwrap()), ..PageFlags::default() };
        assert!(taken.bind(false).await.is_err(), "a taken port is said at once");
    }
}
