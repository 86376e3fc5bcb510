//! One TCP connection to a port of a pod, as if from inside the pod.

use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;

use edge_protocol::channel::{CLOSE, OPENED, STDOUT};
use edge_protocol::message::StreamRequest;
use smol::Async;
use smol::future::try_zip;
use smol::io::AsyncWriteExt;

use super::channels::{Channels, Incoming, Outgoing, Over};
use super::input::Input;
use super::{Asked, Streams, target};
use crate::net::{NetError, dial};
use crate::pod::spec::host_network;

/// Owner of the port.
struct Target {
    namespace: Option<PathBuf>,
    port: u16,
    pod: String,
    uid: String,
}

impl Streams {
    pub(super) fn open_port_forward(&mut self, asked: &Asked<'_>) -> Result<(), String> {
        let (of, request) = (asked.of, asked.request);
        let StreamRequest::PortForward { namespace, pod, uid, port } = request else {
            return Err("no port-forward".into());
        };
        let entry = target::pod(of.cx, namespace, pod, uid)?;
        if !entry.sandbox_ready() {
            return Err(format!("pod {pod} is not running"));
        }
        let uid = entry.record.uid.clone();
        let namespace = (!host_network(&entry.pod)).then(|| of.cx.paths.namespaces(&uid).join("net"));
        let target = Target { namespace, port: *port, pod: pod.clone(), uid };
        self.serve(asked, "", |wires| serve(Channels::new(wires), target));
        Ok(())
    }
}

async fn serve(channels: Channels, target: Target) {
    match dial::localhost(target.namespace.as_deref(), target.port).await {
        Ok(connection) => pass(channels, connection).await,
        Err(error) => channels.to.end(Some(refusal(&target, &error))),
    }
}

/// Copies in both directions until both have ended.
pub(super) async fn pass(channels: Channels, connection: Async<TcpStream>) {
    let Channels { to, mut from } = channels;
    // A direction that breaks ends the other.
    let done = try_zip(move_down(&to, &connection), move_up(&mut from, &connection)).await;
    to.end(done.err().map(|Over| "the connection is broken".into()));
}

/// Copies from the port to the bridge, to the end.
async fn move_down(to: &Outgoing, connection: &Async<TcpStream>) -> Result<(), Over> {
    to.send(OPENED, &[]).await?;
    to.copy(STDOUT, connection).await?;
    to.send(CLOSE, &[STDOUT]).await
}

/// Copies from the bridge to the port, to the end.
async fn move_up(from: &mut Incoming, mut connection: &Async<TcpStream>) -> Result<(), Over> {
    loop {
        let record = from.next().await.map_err(|_| Over)?;
        match Input::of(&record) {
            Input::Bytes(data) => connection.write_all(data).await.map_err(|_| Over)?,
            Input::End => {
                // The port may have closed its side already.
                let _ = connection.get_ref().shutdown(Shutdown::Write);
                return Ok(());
            }
            Input::Size(_) | Input::Other => {}
        }
    }
}

/// The kubelet's words (K8s k8s.io/cri-streaming/pkg/streaming/portforward).
fn refusal(target: &Target, error: &NetError) -> String {
    let Target { port, pod, uid, .. } = target;
    let reason = match error {
        NetError::Namespace { source, .. } if source.kind() == std::io::ErrorKind::ConnectionRefused => {
            format!("failed to connect to localhost:{port} inside the pod: connection refused")
        }
        other => other.to_string(),
    };
    format!("error forwarding port {port} to pod {pod}, uid {uid}: {reason}")
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn client_is_told_which_port_refuses() {
        let target = Target { namespace: None, port: 80, pod: "web".into(), uid: "u".into() };
        let error = |kind: ErrorKind| NetError::Namespace { action: "connecting", source: Error::from(kind) };
        assert_eq!(
            refusal(&target, &error(ErrorKind::ConnectionRefused)),
            "error forwarding port 80 to pod web, uid u: failed to connect to localhost:80 inside the pod: connection \
             refused"
        );
        let other = refusal(&target, &error(ErrorKind::PermissionDenied));
        assert!(other.starts_with("error forwarding port 80 to pod web, uid u: ") && !other.contains("localhost"));
    }
}
