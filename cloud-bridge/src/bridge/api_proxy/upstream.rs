//! The API as pods reach it through the bridge: without any credentials of the bridge.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, Config};

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

/// The configuration without anything that tells the API who the bridge is. A request is never repeated: it may be a write.
fn without_credentials(mut config: Config) -> Config {
    config.auth_info = AuthInfo::default();
    config.headers = Vec::new();
    config.default_retry = false;
    config
}

fn client(config: &Config) -> Result<Client, String> {
    ClientBuilder::try_from(config.clone()).map(|builder| builder.build()).map_err(|error| error.to_string())
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
    async fn unreached_api_is_an_error() {
        let upstream = of_cluster(config("http://127.0.0.1:1").await);
        assert!(upstream(Request::get("/api").body(Bytes::new()).unwrap()).await.is_err());
    }
}
