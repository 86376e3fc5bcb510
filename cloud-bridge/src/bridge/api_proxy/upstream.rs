//! The API as pods reach it through the bridge: without any credentials of the bridge.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{Body, ConfigExt};
use kube::config::{AuthInfo, Config};
use tower::Layer;

/// Maximum bytes of an answer that its connection reads ahead: 400 KiB by default.
const AHEAD: usize = 64 << 10;

/// Silence after which a connection is probed, the interval of probes, and their number. Otherwise a watch would wait for
/// ever for an API server that has gone without a word, and miss what happens.
const ALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, String>;

/// Sends a request of a pod to the API as it is. The API authenticates the pod by the request's own token. An error says
/// that the API was not reached.
pub type Upstream = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<AnswerBody>, String>> + Send + Sync;

/// Creates an [`Upstream`] to the API server of this configuration, with its address and authority and none of its
/// credentials. The client is made for the first request.
pub fn of_cluster(config: Config) -> Arc<Upstream> {
    let config = without_credentials(config);
    let made = OnceLock::new();
    Arc::new(move |request: Request<Bytes>| {
        let client: Result<Client, String> = made.get_or_init(|| client(&config)).clone();
        async move {
            let answer = client?.send(request.map(Body::from)).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(answer.map(|body| body.map_err(|error| error.to_string()).boxed_unsync()))
        }
        .boxed()
    })
}

/// The configuration without anything that tells the API who the bridge is.
fn without_credentials(mut config: Config) -> Config {
    config.auth_info = AuthInfo::default();
    config.headers = Vec::new();
    config
}

/// A client without kube's own layers: none of them adds credentials or repeats a request, which may be a write.
///
/// HTTP/1.1, so that each request has a connection. HTTP/2 would save sockets and cost the separation of nodes: answers
/// that a slow node does not read fill the window of the connection (RFC 9113, 5.2), behind which all others wait. The
/// pool of hyper-util keeps one such connection, at which a request beyond the server's limit of streams
/// (`--http2-max-streams-per-connection`) waits until a watch ends.
fn client(config: &Config) -> Result<Client, String> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(ALIVE.0));
    connector.set_keepalive_interval(Some(ALIVE.1));
    connector.set_keepalive_retries(Some(ALIVE.2));
    let connector = config.rustls_https_connector_with_connector(connector).map_err(|error| error.to_string())?;
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    let connected: legacy::Client<_, Body> = builder.http1_max_buf_size(AHEAD).build(connector);
    Ok(Client::new(config.base_uri_layer().layer(connected), config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A configuration with every kind of credentials that needs no file.
    async fn config(server: &str) -> Config {
        crate::pki::tls::install_provider();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
             users: [{{name: u, user: {{token: of-the-bridge, as: admin}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        let file = Kubeconfig::from_yaml(&text).unwrap();
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.headers.push(("x-remote-user".parse().unwrap(), "bridge".parse().unwrap()));
        config
    }

    /// A server that returns the head of one request as the body of its answer.
    async fn mirror() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
            while !text.windows(4).any(|window| window == b"\r\n\r\n") {
                let read = socket.read(&mut chunk).await.unwrap();
                text.extend_from_slice(&chunk[..read]);
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(&text).await.unwrap();
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn l1_request_has_the_pods_credentials_and_no_others() {
        let upstream = of_cluster(config(&mirror().await).await);
        let request = Request::get("/api/v1/pods?limit=1").header("authorization", "Bearer of-the-pod");
        let answer = upstream(request.body(Bytes::new()).unwrap()).await.unwrap();
        let seen = answer.into_body().collect().await.unwrap().to_bytes();
        let seen = String::from_utf8(seen.to_vec()).unwrap().to_ascii_lowercase();
        assert!(seen.starts_with("get /api/v1/pods?limit=1 http/1.1\r\n"), "{seen}");
        assert_eq!(seen.matches("authorization:").count(), 1, "{seen}");
        assert!(seen.contains("authorization: bearer of-the-pod\r\n"), "{seen}");
        for own in ["of-the-bridge", "impersonate", "x-remote-user"] {
            assert!(!seen.contains(own), "{seen}");
        }
    }

    #[tokio::test]
    async fn l1_request_without_credentials_stays_without() {
        let upstream = of_cluster(config(&mirror().await).await);
        let answer = upstream(Request::get("/api").body(Bytes::new()).unwrap()).await.unwrap();
        let seen = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(!String::from_utf8(seen.to_vec()).unwrap().to_ascii_lowercase().contains("authorization"));
    }

    #[tokio::test]
    async fn answer_is_not_read_far_ahead() {
        const LENGTH: usize = 8 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let read = socket.read(&mut [0; 4096]).await.unwrap();
            assert!(read > 0);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(&vec![7; LENGTH]).await.unwrap();
        });
        let upstream = of_cluster(config(&format!("http://{address}")).await);
        let mut body = upstream(Request::get("/api").body(Bytes::new()).unwrap()).await.unwrap().into_body();
        let (mut most, mut all) = (0, 0);
        while let Some(frame) = body.frame().await {
            let length = frame.unwrap().into_data().unwrap().len();
            (most, all) = (most.max(length), all + length);
        }
        assert_eq!(all, LENGTH);
        assert!(most <= 2 * AHEAD, "{most}");
    }

    #[tokio::test]
    async fn unreached_api_is_an_error() {
        let upstream = of_cluster(config("http://127.0.0.1:1").await);
        assert!(upstream(Request::get("/api").body(Bytes::new()).unwrap()).await.is_err());
    }
}
