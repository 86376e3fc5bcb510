//! A client of the API whose requests the test sees first: it may delay or answer them, or run something before them.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::Value;

/// One request, and its body, if that is JSON.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: http::Method,
    pub path: String,
    pub query: String,
    pub body: Value,
}

/// Code of the answer to give instead of the API's.
pub type Instead = Option<u16>;

/// The client, whose requests wait until `look` has returned.
pub fn interpose(
    client: kube::Client,
    look: impl Fn(Seen) -> BoxFuture<'static, Instead> + Send + Sync + 'static,
) -> kube::Client {
    let look = Arc::new(look);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, look) = (client.clone(), Arc::clone(&look));
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let seen = Seen {
                method: parts.method.clone(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&bytes).unwrap_or_default(),
            };
            let body = |bytes: Bytes| Full::from(bytes).map_err(|never| match never {}).boxed_unsync();
            if let Some(code) = look(seen).await {
                return Ok(Response::builder().status(code).body(body(Bytes::new())).unwrap());
            }
            let response = client.send(Request::from_parts(parts, Body::from(bytes.to_vec()))).await?;
            Ok::<Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>(
                response.map(|body| body.map_err(|error| kube::Error::Service(error.into())).boxed_unsync()),
            )
        }
    });
    kube::Client::new(service, "default")
}
