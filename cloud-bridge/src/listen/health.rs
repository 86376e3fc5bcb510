//! `GET /livez`, `/healthz` and `/readyz`: for supervisors and load balancers, which have no certificate and get no
//! other data.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::bridge::Bridge;

/// An answer proves that the main thread runs.
pub(super) fn live() -> Response<Full<Bytes>> {
    answer(StatusCode::OK, "ok\n".to_owned())
}

/// Readiness in the format of an API server's `/readyz?verbose`.
pub(super) async fn ready(bridge: &Bridge) -> Response<Full<Bytes>> {
    match bridge.api_answers().await {
        Ok(()) => answer(StatusCode::OK, "[+]listener ok\n[+]api ok\nreadyz check passed\n".to_owned()),
        Err(why) => {
            // The error names hosts of the cloud, which the client must not see.
            log::warn!("not ready: the API does not answer: {why}");
            let body = "[+]listener ok\n[-]api failed: the API server does not answer\nreadyz check failed\n";
            answer(StatusCode::SERVICE_UNAVAILABLE, body.to_owned())
        }
    }
}

fn answer(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
