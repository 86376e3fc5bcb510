//! One HTTP request to a port of a pod: HTTP/1.1 over what the node forwards to it, as the `proxy` subresource needs it.
//! The node connects within the pod's network, where Kubernetes' API server dials the pod's address.

mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edge_protocol::channel::{CLOSE, Record, STDIN, STDOUT};
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

use crate::backend::{Channels, KubeletBackend, PodOnNode, RecordSender, RecordStream};

/// Bytes that wait in each direction, and are sent at once.
const WINDOW: usize = 16 << 10;
/// How long the pod may be silent after nothing more can come from here.
const QUIET: Duration = Duration::from_secs(60);

/// Where a pod listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    pub number: u16,
    /// It speaks TLS.
    pub tls: bool,
}

/// Asks and gives the answer, whose body comes as it is read. A request that upgrades its connection names the
/// client's; once the pod agrees, bytes go both ways until one side closes, and `place` is kept until then.
///
/// # Errors
/// The port does not answer; the text is for the client.
pub async fn request<B>(
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    port: Port,
    request: Request<B>,
    client: Option<OnUpgrade>,
    place: impl Send + 'static,
) -> Result<Response<Incoming>, String>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let name = format!("{}/{}:{}", pod.namespace, pod.pod, port.number);
    let Channels { records, sender } =
        backend.port_forward(pod, port.number).await.map_err(|error| error.to_string())?;
    let (near, far) = tokio::io::duplex(WINDOW);
    let (tell, mut told) = oneshot::channel();
    tokio::spawn(pump(far, records, sender, tell));
    let mut asker = match port.tls {
        false => converse(near, name).await,
        true => match tls::connect(near).await {
            Ok(near) => converse(near, name).await,
            Err(error) => Err(told.try_recv().unwrap_or(error)),
        },
    }?;
    // Why the node broke off says more than that it did.
    let sent = asker.send_request(request).await;
    let mut answer = sent.map_err(|error| told.try_recv().unwrap_or_else(|_| error.to_string()))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let client = client.ok_or("the pod switches protocols, unasked")?;
        let pod = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            join(client, pod).await;
            drop(place);
        });
    }
    Ok(answer)
}

/// Speaks HTTP/1.1 over these bytes.
async fn converse<B, S>(near: S, name: String) -> Result<http1::SendRequest<B>, String>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (asker, connection) = http1::handshake(TokioIo::new(near)).await.map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            log::debug!("proxy to {name}: {error}");
        }
    });
    Ok(asker)
}

/// Both upgraded connections as one.
async fn join(client: OnUpgrade, pod: OnUpgrade) {
    match futures::future::try_join(client, pod).await {
        Ok((client, pod)) => {
            let copied = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(pod)).await;
            log::trace!("an upgraded connection to a pod is over: {copied:?}");
        }
        Err(error) => log::debug!("an upgraded connection to a pod: {error}"),
    }
}

/// Bytes to the node and back, until the node or both users of this end have closed.
async fn pump(far: DuplexStream, records: RecordStream, sender: Box<dyn RecordSender>, tell: oneshot::Sender<String>) {
    let (read, write) = tokio::io::split(far);
    let (ended, over) = oneshot::channel();
    let up = async {
        send(read, sender.as_ref()).await;
        let _ = ended.send(());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = up => {}
        () = receive(write, records, over, tell) => {}
    }
}

async fn send(mut read: ReadHalf<DuplexStream>, sender: &dyn RecordSender) {
    let mut buffer = vec![0; WINDOW];
    while let Ok(length @ 1..) = read.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..length) else { break };
        if sender.send(STDIN, bytes).await.is_err() {
            return;
        }
    }
    let _ = sender.send(CLOSE, &[STDIN]).await;
}

async fn receive(
    mut write: WriteHalf<DuplexStream>,
    mut records: RecordStream,
    mut over: oneshot::Receiver<()>,
    tell: oneshot::Sender<String>,
) {
    let mut last = false;
    loop {
        let next = tokio::select! {
            next = records.next() => next,
            _ = &mut over, if !last => { last = true; continue }
            () = tokio::time::sleep(QUIET), if last => break,
        };
        match next {
            Some(Ok(Record { channel: STDOUT, data })) => {
                if write.write_all(&data).await.is_err() {
                    return;
                }
            }
            Some(Ok(Record { channel: CLOSE, data })) if data == [STDOUT] => break,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let _ = tell.send(error.to_string());
                break;
            }
            None => break,
        }
    }
    let _ = write.shutdown().await;
}

#[cfg(test)]
mod tests;
