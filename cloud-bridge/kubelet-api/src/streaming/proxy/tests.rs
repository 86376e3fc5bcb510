//! A pod that a test plays, behind the records of a node.

use apimachinery::flow::Flow;
use edge_protocol::channel::CLOSE;
use futures::channel::mpsc;
use futures::{FutureExt, StreamExt, future};
use serde_json::Value;

use super::*;
use crate::backend::{BackendError, BoxFuture, LogOptions, LogStream, SessionOptions, StreamOver};

struct ToPod(mpsc::UnboundedSender<Record>);

impl RecordSender for ToPod {
    fn send<'a>(&'a self, channel: u8, data: &'a [u8]) -> BoxFuture<'a, Result<(), StreamOver>> {
        let sent = self.0.unbounded_send(Record { channel, data: data.to_vec() });
        future::ready(sent.map_err(|_| StreamOver)).boxed()
    }
}

/// Answers the head of a request with these records.
struct Pod(Vec<Result<Record, BackendError>>, mpsc::UnboundedSender<Vec<u8>>);

fn nothing<T: Send + 'static>() -> BoxFuture<'static, Result<T, BackendError>> {
    future::ready(Err(BackendError::Internal("not asked for".into()))).boxed()
}

impl KubeletBackend for Pod {
    fn logs(&self, _: PodOnNode, _: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>> {
        nothing()
    }
    fn exec(&self, _: PodOnNode, _: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        nothing()
    }
    fn attach(&self, _: PodOnNode, _: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        nothing()
    }
    fn port_forward(&self, _: PodOnNode, port: u16) -> BoxFuture<'_, Result<Channels, BackendError>> {
        assert_eq!(port, 80);
        let (to_pod, mut from_client) = mpsc::unbounded();
        let (to_client, records) = mpsc::unbounded();
        let (answer, seen) = (self.0.clone(), self.1.clone());
        tokio::spawn(async move {
            let mut head = Vec::new();
            while let Some(Record { channel, data }) = from_client.next().await {
                if channel == CLOSE {
                    let _ = seen.unbounded_send(b"closed".to_vec());
                    return;
                }
                head.extend(data);
                if head.ends_with(b"\r\n\r\n") {
                    let _ = seen.unbounded_send(std::mem::take(&mut head));
                    answer.iter().for_each(|record| to_client.unbounded_send(record.clone()).unwrap());
                }
            }
        });
        future::ready(Ok(Channels { records: records.boxed(), sender: Box::new(ToPod(to_pod)) })).boxed()
    }
    fn connected(&self, _: &str) -> Result<(), BackendError> {
        Ok(())
    }
    fn stats(&self, _: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        nothing()
    }
    fn pods(&self, _: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        nothing()
    }
}

fn out(text: &str) -> Result<Record, BackendError> {
    Ok(Record { channel: STDOUT, data: text.into() })
}

type Answered = Result<Response<Incoming>, String>;

async fn ask(answer: Vec<Result<Record, BackendError>>) -> (Answered, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (seen, heard) = mpsc::unbounded();
    let flow = Flow::unlimited();
    let place = PodOnNode { node: "n".into(), namespace: "a".into(), pod: "p".into(), uid: "u".into(), flow };
    let asked = Request::builder().uri("/x?y=1").header("host", "api").body(String::new()).unwrap();
    (request(Arc::new(Pod(answer, seen)), place, Port { number: 80, tls: false }, asked, None, ()).await, heard)
}

#[tokio::test]
async fn an_answer_comes_in_pieces_and_its_reader_ends_the_connection() {
    let pieces = ["HTTP/1.1 200 OK\r\ncontent-", "length: 4\r\n\r\nab", "cd"];
    let (answer, mut heard) = ask(pieces.map(out).into()).await;
    let mut body = Box::pin(answer.unwrap().into_body());
    assert_eq!(heard.next().await.unwrap(), b"GET /x?y=1 HTTP/1.1\r\nhost: api\r\n\r\n");
    let mut got = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        got.extend(frame.unwrap().into_data().unwrap());
    }
    assert_eq!(got, b"abcd");
    assert_eq!(heard.next().await.unwrap(), b"closed");
}

#[tokio::test]
async fn a_client_that_goes_leaves_nothing_behind() {
    let (answer, mut heard) = ask(vec![out("HTTP/1.1 200 OK\r\n\r\nwithout an end")]).await;
    heard.next().await.unwrap();
    drop(answer.unwrap());
    assert_eq!(heard.next().await.unwrap(), b"closed");
}

#[tokio::test]
async fn why_nobody_answers_is_told() {
    let (answer, _) = ask(vec![Err(BackendError::Internal("nothing listens".into()))]).await;
    assert_eq!(answer.unwrap_err(), "nothing listens");
    // A pod that upgrades what was not asked for.
    let (answer, _) = ask(vec![out("HTTP/1.1 101 X\r\nupgrade: y\r\nconnection: upgrade\r\n\r\n")]).await;
    assert_eq!(answer.unwrap_err(), "the pod switches protocols, unasked");
}
