//! The node's end of DMI: calls to `dmi.sock`. Knows no device.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use sampan_dmi::Message;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Timeout for an answer, including connecting. A node that starts answers only once it knows its devices.
const DEADLINE: Duration = Duration::from_secs(10);
/// A registration brings all devices.
const LONGEST: usize = 8 << 20;

/// Connects for the first message, and again after a failure.
#[derive(Clone, Debug)]
pub struct Edge {
    socket: PathBuf,
    channel: Channel,
}

/// Which socket it is: another one is there when the node's helper was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity((u64, u64, i64, i64));

impl Edge {
    /// Must be called in a runtime; does not connect yet.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        let path = socket.clone();
        let connect = tower::service_fn(move |_: http::Uri| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect);
        Self { socket, channel }
    }

    /// # Errors
    /// The socket does not exist.
    pub fn identity(&self) -> io::Result<Identity> {
        let held = std::fs::symlink_metadata(&self.socket)?;
        Ok(Identity((held.dev(), held.ino(), held.ctime(), held.ctime_nsec())))
    }

    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `path`: path of the method.
    ///
    /// # Errors
    /// The node's status, or UNAVAILABLE, or DEADLINE_EXCEEDED.
    pub async fn call<Q, R>(&self, path: &'static str, request: Q) -> Result<R, Status>
    where
        Q: Message + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        let calling = async {
            let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(LONGEST);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let mut request = Request::new(request);
            request.set_timeout(DEADLINE);
            let codec = ProstCodec::<Q, R>::default();
            grpc.unary(request, PathAndQuery::from_static(path), codec).await.map(tonic::Response::into_inner)
        };
        match timeout(DEADLINE, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded(format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }
}

/// Text of an answer for users.
#[must_use]
pub fn why(status: &Status) -> String {
    let text: String = status.message().chars().take(512).collect();
    match status.code() {
        Code::Unavailable => format!("the node cannot be reached: {text}"),
        code => format!("{code:?}: {text}"),
    }
}
