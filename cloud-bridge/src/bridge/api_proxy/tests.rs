//! One request over a stream without a connection.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use edge_protocol::channel::OPENED;
use edge_protocol::message::ApiAnswer;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::{FutureExt, StreamExt};
use http::Request;
use http_body_util::{Full, StreamBody};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;
use crate::bridge::chunks::ChunkSender;

/// The node's end.
struct Node {
    bytes: ChunkSender,
    room: Arc<Semaphore>,
    commands: UnboundedReceiver<Command>,
    task: JoinHandle<()>,
}

impl Node {
    fn asks(upstream: Arc<Upstream>, request: ApiRequest) -> Self {
        Self::asks_with(&RequestMemory::default(), upstream, request)
    }

    fn asks_with(memory: &RequestMemory, upstream: Arc<Upstream>, request: ApiRequest) -> Self {
        let (bytes, chunks) = Chunks::new();
        let room = Arc::new(Semaphore::new(ROOM));
        let (sender, commands) = unbounded();
        let share = memory.take("n", "node").unwrap();
        let stream = PodStream::new(OpenStream { id: 1, chunks, room: Arc::clone(&room) }, sender, share);
        Self { bytes, room, commands, task: tokio::spawn(serve(upstream, request, stream)) }
    }

    /// All records until the stream ends, read at once.
    async fn records(mut self) -> Vec<(u8, Vec<u8>)> {
        let (mut records, mut all) = (Records::default(), Vec::new());
        while let Some(command) = self.commands.next().await {
            match command {
                Command::Send { data, .. } => {
                    self.room.add_permits(data.len());
                    records.push(&data);
                }
                Command::EndStream { .. } => break,
                _ => {}
            }
            while let Some(record) = records.next_record().unwrap() {
                all.push((record.channel, record.data));
            }
        }
        self.task.await.unwrap();
        all
    }
}

fn post(has_body: bool) -> ApiRequest {
    ApiRequest { method: "POST".into(), path: "/api/v1/pods".into(), headers: Vec::new(), has_body }
}

fn status(records: &[(u8, Vec<u8>)]) -> u16 {
    assert_eq!(records[0].0, OPENED);
    serde_json::from_slice::<ApiAnswer>(&records[0].1).unwrap().status
}

/// Answers with the body of the request.
fn echo() -> Arc<Upstream> {
    Arc::new(|request: Request<Bytes>| {
        let body = Full::new(request.into_body()).map_err(|never| match never {}).boxed_unsync();
        std::future::ready(Ok(Response::new(body))).boxed()
    })
}

#[tokio::test]
async fn body_and_answer_are_passed_on_whole() {
    let body: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let node = Node::asks(echo(), post(true));
    assert!(channel::records(STDIN, &body).chunks(1000).all(|chunk| node.bytes.send(chunk.to_vec())));
    assert!(node.bytes.send(channel::records(CLOSE, &[STDIN])));
    let records = node.records().await;
    assert_eq!(status(&records), 200);
    let (end, parts) = records[1..].split_last().unwrap();
    assert_eq!(end, &(STATUS, Vec::new()));
    assert!(parts.iter().all(|(channel, data)| *channel == STDOUT && data.len() <= PART));
    assert!(parts.iter().flat_map(|(_, data)| data).eq(&body), "in order");
}

#[tokio::test]
async fn bodies_that_are_no_bodies_are_refused() {
    let answer = async |bytes: &[u8], ends: bool| {
        let node = Node::asks(echo(), post(true));
        assert!(node.bytes.send(bytes.to_vec()));
        if ends {
            node.bytes.fail(kubelet_api::backend::BackendError::Internal("gone".into()));
        }
        status(&node.records().await)
    };
    assert_eq!(answer(&channel::records(STDIN, &vec![0; MAX_API_BODY + 1]), false).await, 413);
    assert_eq!(answer(&channel::records(STATUS, b"x"), false).await, 400);
    assert_eq!(answer(&[STDIN, 0xff, 0, 0, 0], false).await, 400);
    assert_eq!(answer(&channel::records(STDIN, b"half"), true).await, 400);
}

#[test]
fn body_that_trickles_comes_to_an_end() {
    let ends = |each: usize, pause: Duration| {
        let (mut bytes, mut passed) = (0, Duration::ZERO);
        while bytes < MAX_API_BODY && body_patience(bytes, passed) > pause {
            (bytes, passed) = (bytes + each, passed + pause);
        }
        (bytes, passed)
    };
    let second = Duration::from_secs(1);
    let (bytes, passed) = ends(1, 29 * second);
    assert!(bytes == 2 && passed <= WHOLE.0, "one byte each 29 s: {passed:?}");
    let (bytes, passed) = ends(2_000, second);
    assert!(bytes < MAX_API_BODY && passed < 80 * second, "less than it may: {passed:?}");
    let (bytes, passed) = ends(16 << 10, second);
    assert!(bytes == MAX_API_BODY && passed > WHOLE.0, "a whole body on a slow link: {passed:?}");
    assert_eq!(body_patience(0, Duration::ZERO), SILENCE);
    assert_eq!(body_patience(MAX_API_BODY, Duration::from_secs(3_600)), Duration::ZERO);
}

#[tokio::test]
async fn body_that_takes_too_long_is_408() {
    for part in [&b"x"[..], b""] {
        let (bytes, chunks) = Chunks::new();
        let (commands, _held) = unbounded();
        let stream = OpenStream { id: 1, chunks, room: Arc::new(Semaphore::new(ROOM)) };
        let share = RequestMemory::default().take("n", "node").unwrap();
        let mut stream = PodStream::new(stream, commands, share);
        let trickle = tokio::spawn(async move {
            while bytes.send(channel::records(STDIN, part)) {
                sleep(Duration::from_millis(2)).await;
            }
        });
        let within = |_: usize, passed: Duration| Duration::from_millis(50).saturating_sub(passed);
        let body = timeout(Duration::from_secs(5), stream.body(within)).await.expect("it comes to an end");
        assert_eq!(body.unwrap_err().code, 408);
        drop(stream);
        trickle.await.unwrap();
    }
}

#[tokio::test]
async fn unreached_api_is_503_with_a_status() {
    let broken: Arc<Upstream> = Arc::new(|_| std::future::ready(Err("no route".to_owned())).boxed());
    let records = Node::asks(broken, post(false)).records().await;
    assert_eq!(status(&records), 503);
    let told: Value = serde_json::from_slice(&records[1].1).unwrap();
    assert!(told["message"].as_str().unwrap().ends_with("no route"), "{told}");
}

#[tokio::test]
async fn answer_that_breaks_off_says_so() {
    let half: Arc<Upstream> = Arc::new(|_| {
        let frames = [Ok(Frame::data(Bytes::from("half"))), Err("the API has gone".to_owned())];
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        std::future::ready(Ok(Response::new(body))).boxed()
    });
    let records = Node::asks(half, post(false)).records().await;
    assert_eq!(records[1..], [(STDOUT, b"half".to_vec()), (STATUS, b"the API has gone".to_vec())]);
}

#[tokio::test]
async fn answer_waits_for_a_node_that_does_not_read() {
    let read = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(Mutex::new(()));
    let (counted, held) = (Arc::clone(&read), Arc::clone(&dropped));
    let endless: Arc<Upstream> = Arc::new(move |_| {
        let (counted, held) = (Arc::clone(&counted), Arc::clone(&held));
        let frames = futures::stream::repeat_with(move || {
            let _ = &held;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Frame::data(Bytes::from_static(&[7; 1000])))
        });
        std::future::ready(Ok(Response::new(StreamBody::new(frames).boxed_unsync()))).boxed()
    });
    let node = Node::asks(endless, post(false));
    sleep(Duration::from_millis(100)).await;
    let stood = read.load(Ordering::SeqCst);
    assert!(stood <= ROOM / 1000 + 1, "{stood} parts were read for a node that reads none");
    sleep(Duration::from_millis(50)).await;
    assert_eq!(read.load(Ordering::SeqCst), stood);

    // The end of the stream cancels the request.
    node.task.abort();
    assert!(node.task.await.unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&dropped), 1, "only the test holds it");
}

#[tokio::test]
async fn silent_answer_holds_nothing() {
    let (told, frames) = unbounded();
    let frames = Mutex::new(Some(frames));
    let watch: Arc<Upstream> = Arc::new(move |_| {
        let frames = frames.lock().unwrap().take().unwrap();
        std::future::ready(Ok(Response::new(StreamBody::new(frames).boxed_unsync()))).boxed()
    });
    let memory = RequestMemory::default();
    let mut node = Node::asks_with(&memory, watch, post(false));
    // All that a node may hold.
    let is_free = || memory.take("n", "node").unwrap().hold(12 << 20);
    told.unbounded_send(Ok::<_, String>(Frame::data(Bytes::from_static(b"event")))).unwrap();
    sleep(Duration::from_millis(50)).await;
    assert!(!is_free(), "the node has not taken it yet");
    while let Some(Some(Command::Send { data, .. })) = node.commands.next().now_or_never() {
        node.room.add_permits(data.len());
    }
    sleep(Duration::from_millis(50)).await;
    assert!(is_free() && !node.task.is_finished());
}

#[tokio::test]
async fn bytes_after_the_request_are_not_kept() {
    let hangs: Arc<Upstream> = Arc::new(|_| std::future::pending().boxed());
    let node = Node::asks(Arc::clone(&hangs), post(false));
    sleep(Duration::from_millis(20)).await;
    assert!(!node.bytes.send(vec![0; 1000]), "a request without a body");
    let node = Node::asks(hangs, post(true));
    sleep(Duration::from_millis(20)).await;
    assert!(node.bytes.send(channel::records(CLOSE, &[STDIN])));
    sleep(Duration::from_millis(20)).await;
    assert!(!node.bytes.send(vec![0; 1000]), "its body is complete");
}

#[tokio::test]
async fn head_has_no_body() {
    let request = ApiRequest { method: "HEAD".into(), ..post(false) };
    let records = Node::asks(echo(), request).records().await;
    assert_eq!(records.iter().map(|(channel, _)| *channel).collect::<Vec<_>>(), [OPENED, STATUS]);
}
