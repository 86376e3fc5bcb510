//! A call of the controller of a CSI driver on a node: bytes of the request's body to the node, and those of its answer back.
//! Does not read messages. Who may call is decided before.

use std::time::Duration;

use bytes::Bytes;
use edge_protocol::channel::{CLOSE, HEADER, Record, STDIN, STDOUT};
use futures::{StreamExt, TryStreamExt};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use kubelet_api::backend::{BackendError, Channels, RecordSender, RecordStream};
use kubelet_api::streaming::ErrorResponse;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::body::{Body, text, with_type};
use crate::bridge::Bridge;
use crate::pki::identity::is_node_name;
use apimachinery::flow::Flow;
use apimachinery::user::UserInfo;

/// Timeout of a call.
pub(crate) const DEADLINE: Duration = Duration::from_secs(125);
/// Most bytes of a call in each direction: a message of 4 MiB with what is before it, in records.
const MOST: usize = (4 << 20) + (64 << 10);
/// Services of a controller.
const SERVICES: [&str; 3] = ["csi.v1.Identity", "csi.v1.Controller", "csi.v1.GroupController"];
/// Content type of messages whose content is not looked at.
const BYTES: &str = "application/octet-stream";

/// What is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) node: String,
    pub(crate) driver: String,
    /// Of gRPC, such as `/csi.v1.Identity/Probe`.
    pub(crate) path: String,
}

impl Asked {
    /// Reads `POST /csi/NODE/DRIVER/SERVICE/METHOD`. `None`: it is something else, or no service of a controller.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let mut words = uri.path().strip_prefix("/csi/")?.split('/');
        let [node, driver, service, name] = [words.next()?, words.next()?, words.next()?, words.next()?];
        let is_whole = words.next().is_none() && uri.query().is_none() && *method == Method::POST;
        let path = format!("/{service}/{name}");
        let is_called = is_whole && is_node_name(node) && is_driver(driver) && is_path(&path);
        is_called.then(|| Self { node: node.to_owned(), driver: driver.to_owned(), path })
    }

    /// For which client a call counts that another bridge passes on without its user: the calls of a driver must not
    /// exclude others.
    pub(crate) fn flow(&self) -> Flow {
        Flow::of(&UserInfo::new(&format!("csi:{}", self.driver), [""; 0]))
    }
}

/// Whether it may be the name of a CSI driver (K8s pkg/apis/core/validation `ValidateCSIDriverName`).
pub(crate) fn is_driver(name: &str) -> bool {
    name.len() <= 63 && is_node_name(&name.to_ascii_lowercase())
}

/// Whether gRPC's path is one of a controller.
pub(crate) fn is_path(path: &str) -> bool {
    let words = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    words.is_some_and(|(service, method)| {
        let is_method = (1..=64).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_alphanumeric());
        SERVICES.contains(&service) && is_method
    })
}

/// Makes the call, and answers with the node's bytes.
pub(crate) async fn call(bridge: &Bridge, asked: Asked, flow: &Flow, body: Incoming) -> Response<Body> {
    let until = Instant::now() + DEADLINE;
    match timeout_at(until, begin(bridge, asked, flow, body)).await {
        Ok(Ok((first, rest))) => {
            let first = futures::stream::once(std::future::ready(Ok(first)));
            let rest = futures::stream::try_unfold(rest, Answer::next).take_until(sleep_until(until));
            let bytes = first.chain(rest).map_ok(Frame::data);
            with_type(StatusCode::OK, BYTES, BodyExt::boxed_unsync(StreamBody::new(bytes)))
        }
        Ok(Err(error)) => refused(error),
        Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "no answer in time"),
    }
}

/// The answer to a call that was not made, or of which nothing came back.
pub(crate) fn refused(error: BackendError) -> Response<Body> {
    let ErrorResponse { code, text: why, .. } = ErrorResponse::from(error);
    text(code, why)
}

/// Sends the request, and waits for the first bytes of the answer.
async fn begin(bridge: &Bridge, asked: Asked, flow: &Flow, body: Incoming) -> Result<(Bytes, Answer), BackendError> {
    let Asked { node, driver, path } = asked;
    let Channels { records, sender } = bridge.call_controller(&node, flow, (driver, path)).await?;
    send(body, &*sender).await?;
    let answer = Answer { node, records, _sender: sender, left: MOST };
    let cut = || BackendError::Internal("the node ended a call without an answer".to_owned());
    answer.next().await?.ok_or_else(cut)
}

async fn send(mut body: Incoming, sender: &dyn RecordSender) -> Result<(), BackendError> {
    let mut left = MOST;
    while let Some(frame) = body.frame().await {
        let cut = |_| BackendError::BadRequest("the message is incomplete".to_owned());
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
        let long = || BackendError::BadRequest(format!("the message is longer than {MOST} bytes"));
        left = left.checked_sub(data.len()).ok_or_else(long)?;
        if !data.is_empty() && sender.send(STDIN, &data).await.is_err() {
            // The records say why.
            return Ok(());
        }
    }
    let _ = sender.send(CLOSE, &[STDIN]).await;
    Ok(())
}

/// The answer of a node.
struct Answer {
    node: String,
    records: RecordStream,
    /// The stream is open as long as it has both ends.
    _sender: Box<dyn RecordSender>,
    /// Bytes that may still come.
    left: usize,
}

impl Answer {
    /// The next bytes, and what comes after them; `None` at the end that the node has named.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, BackendError> {
        loop {
            let Some(record) = self.records.next().await else {
                return Err(BackendError::Internal(format!("node {} sent an incomplete answer", self.node)));
            };
            let Record { channel, data } = record?;
            let long = || BackendError::Internal(format!("node {} sent more than {MOST} bytes", self.node));
            self.left = self.left.checked_sub(data.len() + HEADER).ok_or_else(long)?;
            match channel {
                STDOUT if !data.is_empty() => return Ok(Some((Bytes::from(data), self))),
                CLOSE => return Ok(None),
                // A newer node may send more.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kubelet_api::backend::{BoxFuture, StreamOver};

    use super::*;

    struct Nowhere;

    impl RecordSender for Nowhere {
        fn send<'a>(&'a self, _: u8, _: &'a [u8]) -> BoxFuture<'a, Result<(), StreamOver>> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    fn answer(records: impl futures::Stream<Item = Result<Record, BackendError>> + Send + 'static) -> Answer {
        Answer { node: "a".to_owned(), records: Box::pin(records), _sender: Box::new(Nowhere), left: MOST }
    }

    fn record(channel: u8, data: &[u8]) -> Result<Record, BackendError> {
        Ok(Record { channel, data: data.to_vec() })
    }

    async fn all(answer: Answer) -> Result<Vec<u8>, BackendError> {
        let parts = futures::stream::try_unfold(answer, Answer::next);
        parts.try_fold(Vec::new(), |all, part| std::future::ready(Ok([all, part.to_vec()].concat()))).await
    }

    #[test]
    fn node_driver_and_method_are_in_the_path() {
        let of = |method: Method, uri: &str| Asked::of(&method, &uri.parse().unwrap());
        let [node, driver] = ["edge-1", "Hostpath.csi.k8s.io"].map(str::to_owned);
        let asked = Asked { node, driver, path: "/csi.v1.Controller/CreateVolume".to_owned() };
        let good = "/csi/edge-1/Hostpath.csi.k8s.io/csi.v1.Controller/CreateVolume";
        assert_eq!(of(Method::POST, good), Some(asked));
        assert_eq!(of(Method::GET, good), None);
        for bad in [
            "/csi/edge-1/d.x/csi.v1.Node/NodePublishVolume",
            "/csi/edge-1/d.x/csi.v1.SnapshotMetadata/GetMetadataAllocated",
            "/csi/edge-1/d.x/csi.v1.Controller/",
            "/csi/edge-1/d.x/csi.v1.Controller/A/B",
            "/csi/edge-1/d.x/csi.v1.Controller/A?b=c",
            "/csi/edge-1/d.x/csi.v1.Controller/A%20B",
            "/csi/edge-1/../csi.v1.Controller/A",
            "/csi/Edge/d.x/csi.v1.Controller/A",
            "/csi//d.x/csi.v1.Controller/A",
            "/csi/edge-1/d.x/csi.v1.Controller",
            "/exec/edge-1/d.x/csi.v1.Controller/A",
        ] {
            assert_eq!(of(Method::POST, bad), None, "{bad}");
        }
        let long = format!("/csi/edge-1/d.x/csi.v1.Controller/{}", "a".repeat(65));
        assert_eq!(of(Method::POST, &long), None);
    }

    #[test]
    fn forwarded_calls_count_by_their_driver() {
        let flow = |driver: &str| {
            let uri = format!("/csi/edge-1/{driver}/csi.v1.Identity/Probe").parse().unwrap();
            Asked::of(&Method::POST, &uri).unwrap().flow()
        };
        assert_eq!(flow("d.x"), flow("d.x"));
        assert_ne!(flow("d.x"), flow("d.y"));
        assert!(flow("system").name().is_some() && !flow("system").is_system());
    }

    #[tokio::test]
    async fn answer_is_whole_or_an_error() {
        let whole = [record(STDOUT, b"a"), record(9, b"?"), record(STDOUT, b"b"), record(CLOSE, &[STDOUT])];
        assert_eq!(all(answer(futures::stream::iter(whole))).await.unwrap(), b"ab");
        let cut = all(answer(futures::stream::iter([record(STDOUT, b"a")]))).await.unwrap_err();
        assert!(cut.to_string().contains("incomplete answer"), "{cut}");
    }

    #[tokio::test]
    async fn endless_answer_is_cut() {
        static LONG: [u8; 30_000] = [0; 30_000];
        for data in [&LONG[..], &[]] {
            let endless = futures::stream::repeat_with(move || record(STDOUT, data));
            let long = all(answer(endless)).await.unwrap_err();
            assert!(long.to_string().contains("more than"), "{long}");
        }
    }
}
