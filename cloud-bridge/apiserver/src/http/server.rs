//! The server as its users hold it: opened on a state file, asked in-process or over TLS.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Limited};

use super::body::ApiBody;
use crate::auth::Authorizer;
use crate::cel::Cel;
use crate::controllers;
use crate::controllers::bootstrap;
use crate::http as front;
use crate::kinds;
use crate::resource::catalogue::Registry;
use crate::resource::status::ApiError;
use crate::state::inflight::Inflight;
use crate::state::quota::Quotas;
use crate::state::samples::Samples;
use crate::state::{Config, Inner};
use crate::storage::{History, Store, StoreError};
use apimachinery::panics;
use apimachinery::user::UserInfo;
use kubelet_api::backend::KubeletBackend;
use sampan_log::printable::printable;

/// How many bytes of events are kept, the newest ones. In Kubernetes, too, nothing limits who writes them, but there the disk
/// is large: this is an hour of ten events a second.
const EVENTS_MAX: u64 = 32 << 20;

/// How long a request's body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// The embedded API. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

impl Server {
    /// Opens the state file, creates the standing namespaces and starts the controllers on the current tokio
    /// runtime.
    ///
    /// # Errors
    /// The file cannot be opened, is no database, or is damaged and its copy not wanted; the error names it.
    pub fn open(config: Config) -> Result<Self, StoreError> {
        let history = History {
            age: config.history,
            rows: config.history_rows,
            bytes: config.history_bytes,
            expiring: EVENTS_MAX,
        };
        let store = Store::open(&config.file, history, config.restore)?;
        Self::on(config, store)
    }

    fn on(config: Config, store: Store) -> Result<Self, StoreError> {
        let registry = Registry::new(kinds::resources());
        let inner = Arc::new(Inner {
            cel: Cel::new(config.cel_helper.clone()),
            config,
            durable: store.durable(),
            quotas: Quotas::default(),
            store: Mutex::new(store),
            registry,
            backend: OnceLock::new(),
            samples: Samples::default(),
            authorizer: Authorizer::default(),
            inflight: Inflight::default(),
        });
        bootstrap::run(&inner)?;
        controllers::start(&inner);
        let weak = Arc::downgrade(&inner);
        tokio::spawn(panics::keep("the state file's upkeep", move || keep(Weak::clone(&weak))));
        Ok(Self { inner })
    }

    /// Says who answers for the nodes. The first call counts.
    pub fn set_backend(&self, backend: Arc<dyn KubeletBackend>) {
        if self.inner.backend.set(backend).is_err() {
            log::warn!("the kubelet backend was set twice; the first stays");
        }
    }

    /// Process id of the helper that judges validation rules, while there is one.
    pub fn cel_helper(&self) -> Option<u32> {
        self.inner.cel.helper()
    }

    /// The API without sockets, for this identity: `kube::Client::new(server.service(user), "default")`.
    pub fn service(&self, identity: UserInfo) -> LocalService {
        LocalService { server: self.clone(), identity }
    }

    /// Returns when the disk has refused to sync the state file. What a restart will find is then known to nobody, so
    /// nothing more is shown: whoever runs the server ends it and has it opened again.
    pub async fn lost_disk(&self) -> String {
        self.inner.durable.failed().await.to_string()
    }

    /// Writes what an orderly end should leave in the state file.
    ///
    /// # Errors
    /// The file cannot be written, or the disk does not take it.
    pub async fn close(&self) -> Result<(), StoreError> {
        let written = {
            let mut store = self.inner.store();
            store.settle()?;
            store.written()
        };
        self.inner.durable.reached(written).await.map_err(|unsynced| self.inner.store().unsynced(&unsynced))
    }

    /// Answers one request of an identified user.
    pub async fn handle<B>(&self, identity: &UserInfo, request: Request<B>) -> Response<ApiBody>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        self.answer(identity, request, false).await
    }

    /// Who has the bearer token of a request.
    ///
    /// # Errors
    /// 401: there is none, or nobody has it.
    pub fn bearer(&self, headers: &HeaderMap) -> Result<UserInfo, ApiError> {
        self.inner.bearer(headers)
    }

    /// As `handle`, of somebody at the other end of a connection: within the limit of requests under way.
    pub async fn handle_stranger<B>(&self, identity: &UserInfo, request: Request<B>) -> Response<ApiBody>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        self.answer(identity, request, true).await
    }

    async fn answer<B>(&self, identity: &UserInfo, request: Request<B>, limited: bool) -> Response<ApiBody>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let work = format!("request of {}: {} {}", identity.name, parts.method, printable(parts.uri.path()));
        let mistake = || front::failure(&ApiError::internal("the server has made a mistake".to_owned()));
        let answer = self.answer_parts(identity, &parts, body, limited);
        panics::isolate(work, answer).await.unwrap_or_else(mistake)
    }

    async fn answer_parts<B>(
        &self,
        identity: &UserInfo,
        parts: &http::request::Parts,
        body: B,
        limited: bool,
    ) -> Response<ApiBody>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        let permitted = match front::permit(&self.inner, identity, parts) {
            Ok(permitted) => permitted,
            Err(error) => return front::failure(&error),
        };
        let place = if limited { self.inner.inflight.enter(identity, permitted.attributes()) } else { None };
        if limited && place.is_none() {
            return front::failure(&ApiError::busy());
        }
        let most = permitted.body_max();
        let body = Limited::new(BodyOf(Box::pin(body)), most).collect();
        let Ok(body) = tokio::time::timeout(BODY_PATIENCE, body).await else {
            return front::failure(&ApiError::bad_request("the body of the request took too long"));
        };
        match body {
            Ok(body) => front::answer(&self.inner, &permitted, parts, body.to_bytes()).await,
            Err(error) if error.is::<http_body_util::LengthLimitError>() => front::failure(&ApiError::too_large(most)),
            Err(error) => front::failure(&ApiError::bad_request(format!("error reading the body: {error}"))),
        }
    }
}

/// Has the storage begin what is due now and then.
async fn keep(inner: Weak<Inner>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(10));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        inner.store().tick();
    }
}

/// A body whose error is boxed, so that `Limited` takes it.
struct BodyOf<B>(Pin<Box<B>>);

impl<B> http_body::Body for BodyOf<B>
where
    B: http_body::Body,
    B::Error: std::fmt::Display,
{
    type Data = B::Data;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        self.0.as_mut().poll_frame(cx).map(|frame| frame.map(|r| r.map_err(|e| e.to_string().into())))
    }
}

/// A `tower::Service` that answers as `identity`.
#[derive(Clone)]
pub struct LocalService {
    server: Server,
    identity: UserInfo,
}

impl<B> tower::Service<Request<B>> for LocalService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display + Send,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.server.handle(&this.identity, request).await) })
    }
}

#[cfg(test)]
mod tests;
