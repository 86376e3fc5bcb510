//! Routes of the page: the files are public, everything else is for authorized users. Read-only. `views` reads what the API is asked
//! for.

mod views;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::access::{Access, Who};
use super::assets;
use super::body::{Body, full, typed};
use super::devices::Devices;
use super::follow::Live;
use super::jobs::Jobs;
use super::packed;
use super::stream::{self, News, Seats, TICK};
use super::usage::Usage;
use crate::accept::Source;
use crate::bridge::Bridge;
use crate::kubelet::auth::Denied;
use crate::pki::identity::Holder;

const JSON: &str = "application/json";
/// Limits of a form with a token in it.
const FORM: (usize, Duration) = (16 << 10, Duration::from_secs(10));
/// Bytes of rows in one answer, about.
const ROWS: usize = 1 << 20;
/// Pages of single nodes that are read from the API at a time.
const DETAILS: usize = 4;
/// Searches in all pods at a time.
const SEARCHES: usize = 2;

pub(super) struct Served {
    live: Arc<Live>,
    bridge: Bridge,
    client: kube::Client,
    access: Arc<Access>,
    seats: Arc<Seats>,
    details: Semaphore,
    searches: Semaphore,
    /// Users whose searches and pages of single nodes are made, or wait.
    asking: Arc<Seats>,
    jobs: Jobs,
    devices: Devices,
    usage: Usage,
    title: String,
}

/// Status and reason of a refused request.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Self(code(&denied), denied.to_string())
    }
}

impl Served {
    /// `title` is the name of the site; may be empty.
    pub(super) fn new(live: Arc<Live>, bridge: Bridge, client: kube::Client, title: String) -> Self {
        let access = Arc::new(Access::new(client.clone()));
        Self {
            live,
            bridge,
            client,
            access,
            seats: Arc::default(),
            details: Semaphore::new(DETAILS),
            searches: Semaphore::new(SEARCHES),
            asking: Arc::default(),
            jobs: Jobs::default(),
            devices: Devices::default(),
            usage: Usage::default(),
            title,
        }
    }

    /// The user of a request, if it needs one. `Err`: the answer for every client.
    pub(super) async fn known<B>(
        &self,
        holder: Option<&Holder>,
        parts: &Parts,
        body: B,
        from: Source,
    ) -> Result<Who, Response<Body>>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = parts.uri.path();
        if foreign(&parts.headers, path) {
            return Err(refused(&Refusal(StatusCode::FORBIDDEN, "asked from another site".to_owned())));
        }
        match (&parts.method, path) {
            (&Method::POST, "/login") => return Err(self.log_in(body, from).await),
            (&Method::POST, "/logout") => return Err(to_start(&self.access.log_out(&parts.headers))),
            (&Method::GET, path) => {
                if let Some(file) = assets::file(path) {
                    return Err(file);
                }
            }
            _ => {
                let text = "this page only shows: the method is not allowed".to_owned();
                return Err(refused(&Refusal(StatusCode::METHOD_NOT_ALLOWED, text)));
            }
        }
        self.access.check(holder, &parts.headers, from).await.map_err(|denied| match path {
            "/" => assets::login(code(&denied), why(&denied, has_token(&parts.headers))),
            _ => refused(&denied.into()),
        })
    }

    /// Answers an authorized user; `path` may have a query. `packs`: the client accepts compression.
    pub(super) async fn answer(&self, who: &Who, path: &str, packs: bool) -> Response<Body> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let answer = match path {
            "/" => Ok(assets::index(&self.title, who.name())),
            "/api/nodes" => Ok(json_of(self.rows_behind(query).into(), packs).await),
            "/api/stream" => self.stream(who, packs).await,
            "/api/jobs" => self.jobs(packs).await,
            "/api/pods" => self.pods(who, query, packs).await,
            "/api/devices" => self.devices(who, packs).await,
            _ => self.of_nodes(who, path, packs).await,
        };
        answer.unwrap_or_else(|refusal| refused(&refusal))
    }

    /// Rows of nodes by name, as many as an answer has room for: those behind the name `after` of the query.
    fn rows_behind(&self, query: &str) -> String {
        let board = self.live.board();
        board.part(&mut board.names(&value(query.as_bytes(), "after")), ROWS, SystemTime::now())
    }

    async fn stream(&self, who: &Who, packs: bool) -> Result<Response<Body>, Refusal> {
        let seat = self.seats.take(who.name()).ok_or_else(|| {
            Refusal(StatusCode::TOO_MANY_REQUESTS, "too many pages are open: close one of them".to_owned())
        })?;
        let (left, news) = self.live.subscribe();
        let first = Arc::clone(&self.live).rows(left, packs);
        let (access, who) = (Arc::clone(&self.access), who.clone());
        let holds = move || {
            let (access, who) = (Arc::clone(&access), who.clone());
            async move { access.holds(&who).await }
        };
        let news = News { news, shape: if packs { packed::more } else { Bytes::clone } };
        let mut response = Response::new(StreamBody::new(stream::body(first, news, seat, TICK, holds)).boxed_unsync());
        say_packed(&mut response, packs);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(response)
    }

    async fn log_in<B>(&self, body: B, from: Source) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let form = match timeout(FORM.1, Limited::new(body, FORM.0).collect()).await {
            Ok(Ok(form)) => form.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return assets::login(StatusCode::PAYLOAD_TOO_LARGE, "That is too long for a token.");
            }
            _ => return assets::login(StatusCode::BAD_REQUEST, "The form did not come as a whole."),
        };
        match self.access.log_in(&value(&form, "token"), from).await {
            Ok(cookie) => to_start(&cookie),
            Err(denied) => assets::login(code(&denied), why(&denied, true)),
        }
    }
}

/// The value of this name in a query or form; empty without one.
fn value<'a>(form: &'a [u8], name: &str) -> Cow<'a, str> {
    let mut pairs = form_urlencoded::parse(form);
    pairs.find(|(other, _)| other == name).map(|(_, value)| value).unwrap_or_default()
}

/// JSON as an answer, packed where that is worth it.
async fn json_of(text: Bytes, packs: bool) -> Response<Body> {
    let short =
        if packs && text.len() >= packed::LEAST { packed::aside(text.clone(), packed::whole).await } else { None };
    let is_packed = short.is_some();
    let mut response = typed(StatusCode::OK, JSON, short.unwrap_or(text));
    say_packed(&mut response, is_packed);
    response
}

fn say_packed(response: &mut Response<Body>, is_packed: bool) {
    if is_packed {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// Whether another site makes a browser send this (Fetch Metadata). A link to the page itself does not count.
fn foreign(headers: &HeaderMap, path: &str) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    path != "/" && site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

fn has_token(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION)
}

fn code(denied: &Denied) -> StatusCode {
    match denied {
        Denied::Unauthorized => StatusCode::UNAUTHORIZED,
        Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
        Denied::Api(_) => StatusCode::BAD_GATEWAY,
    }
}

fn why(denied: &Denied, shown: bool) -> &'static str {
    match denied {
        Denied::Unauthorized if shown => "The API does not know this token, or no longer.",
        Denied::Unauthorized => "",
        Denied::Forbidden { .. } => "The user of this token may not list nodes.",
        Denied::Api(_) => "The API could not be asked about the token: try again.",
    }
}

fn away(error: &kube::Error) -> Refusal {
    Refusal(StatusCode::BAD_GATEWAY, format!("asking the API: {error}"))
}

fn to_start(cookie: &str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    // Letters, digits and what we put between them.
    response.headers_mut().extend(HeaderValue::from_str(cookie).ok().map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

fn refused(Refusal(code, message): &Refusal) -> Response<Body> {
    typed(*code, JSON, json!({"code": code.as_u16(), "message": message}).to_string().into())
}

#[cfg(test)]
mod tests;
