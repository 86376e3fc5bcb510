//! The server as its users hold it: opened on a state file, asked in-process or over TLS.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::task::JoinSet;

use super::arrival;
use super::body::ApiBody;
use crate::auth::Authorizer;
use crate::cel::Cel;
use crate::controllers;
use crate::controllers::bootstrap;
use crate::http as front;
use crate::kinds;
use crate::kinds::service::held::Held;
use crate::resource::catalogue::Registry;
use crate::resource::status::ApiError;
use crate::state::documents::Documents;
use crate::state::large::LargeObjects;
use crate::state::limits::{ANSWER_COST, BODY_COST, Limits};
use crate::state::quota::Quotas;
use crate::state::samples::Samples;
use crate::state::{Config, Inner};
use crate::storage::{History, Store, StoreError};
use apimachinery::flow::Flow;
use apimachinery::panics;
use apimachinery::shares::Share;
use apimachinery::user::UserInfo;
use kubelet_api::backend::KubeletBackend;
use sampan_log::printable::printable;

/// Maximum size of the kept events in bytes; the oldest are deleted. Kubernetes does not limit their writers either,
/// but has large disks: this is an hour of ten events a second.
const EVENTS_MAX: u64 = 32 << 20;

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
    /// The file cannot be opened, is not a database, or is damaged and has no copy to restore; the error names it.
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
            held: Held::default(),
            large: LargeObjects::default(),
            limits: Limits::default(),
            documents: Documents::default(),
        });
        bootstrap::run(&inner)?;
        controllers::start(&inner);
        let weak = Arc::downgrade(&inner);
        tokio::spawn(panics::keep("the state file's upkeep", move || keep(Weak::clone(&weak))));
        Ok(Self { inner })
    }

    /// Sets the backend for nodes. Only the first call counts.
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
        LocalService { server: self.clone(), identity, agent: None }
    }

    /// Returns when the disk has failed to sync the state file. What a restart will find is then unknown, so the server
    /// answers nothing more: its owner must stop it and open it again.
    pub async fn lost_disk(&self) -> String {
        self.inner.durable.failed().await.to_string()
    }

    /// Writes the state of a regular end into the state file.
    ///
    /// # Errors
    /// The file cannot be written or synced.
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

    /// Identifies the user of a bearer token.
    ///
    /// # Errors
    /// 401 without a token or with an unknown one.
    pub fn bearer(&self, headers: &HeaderMap) -> Result<UserInfo, ApiError> {
        self.inner.bearer(headers)
    }

    /// Same as `handle` for a remote client: counts against the limit of concurrent requests.
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
        let flow = if limited { Flow::of(identity) } else { Flow::unlimited() };
        // Checked first: answers and refusals that a client does not read must not pile up.
        let Some(mut share) = self.inner.limits.answers.take(&flow, ANSWER_COST) else {
            let mut refusal = front::failure(&ApiError::busy());
            refusal.extensions_mut().insert(Overdrawn);
            return refusal;
        };
        // All controllers are one user.
        let agent = parts.headers.get(USER_AGENT).filter(|_| !limited).and_then(|agent| agent.to_str().ok());
        let who = agent.unwrap_or(&identity.name);
        let work = format!("request of {who}: {} {}", parts.method, printable(parts.uri.path()));
        let mistake = || (front::failure(&ApiError::internal("the server has made a mistake".to_owned())), None);
        let answer = self.answer_parts(identity, &flow, &parts, body, &mut share);
        let (response, place) = panics::isolate(work, answer).await.unwrap_or_else(mistake);
        let answers = Arc::clone(&self.inner.limits.answers);
        response.map(|body| body.counted(move |bytes| answers.take(&flow, bytes)).holding((share, place)))
    }

    /// The answer, and the place that it keeps until it is sent.
    async fn answer_parts<B>(
        &self,
        identity: &UserInfo,
        flow: &Flow,
        parts: &http::request::Parts,
        body: B,
        share: &mut Share,
    ) -> (Response<ApiBody>, Option<Share>)
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        let refused = |error: ApiError| (front::failure(&error), None);
        let permitted = match front::permit(&self.inner, identity, flow, parts) {
            Ok(permitted) => permitted,
            Err(error) => return refused(error),
        };
        let limits = &self.inner.limits;
        // A body that is slow to come costs its client's bytes, and no place that others need.
        let Some(mut arriving) = limits.bodies.take(flow, BODY_COST) else { return refused(ApiError::busy()) };
        let body = match permitted.has_body(&parts.method) {
            true => arrival::read(body, permitted.body_max(), &mut arriving).await,
            false => Ok(Bytes::new()),
        };
        let body = match body {
            Ok(body) => body,
            Err(error) => return refused(error),
        };
        let Some(place) = limits.enter(flow, permitted.attributes()) else { return refused(ApiError::busy()) };
        let step = limits.steps.next(flow).await;
        let answer = Box::pin(front::answer(&self.inner, &permitted, parts, (body, &mut arriving), share));
        (step.begin(answer).await, Some(place))
    }
}

/// Marks the answer to a client that leaves too many answers unread: its connection is best ended.
#[derive(Debug, Clone, Copy)]
pub struct Overdrawn;

/// Starts periodic work of the storage.
async fn keep(inner: Weak<Inner>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(10));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        while inner.store().tick() {
            tokio::task::yield_now().await;
        }
        inner.documents.tidy();
    }
}

/// A `tower::Service` that answers as `identity`. A request ends when its future is dropped.
#[derive(Clone)]
pub struct LocalService {
    server: Server,
    identity: UserInfo,
    agent: Option<&'static str>,
}

impl LocalService {
    /// The same with a `User-Agent` for requests that have none: it names the writer in `managedFields`.
    #[must_use]
    pub fn named(self, agent: &'static str) -> Self {
        Self { agent: Some(agent), ..self }
    }
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let this = self.clone();
        if let Some(agent) = this.agent {
            request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        }
        // A task: a caller that is busy elsewhere does not poll, and a turn that its request has would never end.
        let mut task = JoinSet::new();
        task.spawn(async move { this.server.handle(&this.identity, request).await });
        Box::pin(async move {
            let answer = task.join_next().await.and_then(Result::ok);
            Ok(answer.unwrap_or_else(|| front::failure(&ApiError::internal("the server is ending".to_owned()))))
        })
    }
}

#[cfg(test)]
mod tests;
