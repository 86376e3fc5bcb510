//! `cloud-bridge csi-proxy`: a CSI driver's controller on a node, at a Unix socket for `external-provisioner` and other
//! sidecars. It passes calls to the bridge, and reads no message.
//!
//! | file | owns |
//! |---|---|
//! | `caller` | one call at the bridge |
//! | `answer` | what the bridge's answer means: no I/O |

mod answer;
mod caller;

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use clap::Args;
use sampan_grpc::{Call, Code, Status, serve_lasting};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::flags::{authorities, bridge_url};
use crate::kubelet::controller::{is_driver, is_path};
use crate::pki::identity::is_node_name;
use crate::signal;
use caller::Caller;

/// `csi-proxy`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of the CSI driver.
    #[arg(long, value_name = "NAME")]
    driver: String,
    /// Name of the node on which the driver's controller runs.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// Unix socket at which the sidecars of the driver call. A socket that is there is replaced.
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
    /// Address of the bridge's port for these calls (--csi-listen), https://HOST:PORT.
    #[arg(long, value_name = "URL", value_parser = bridge_url)]
    bridge: String,
    /// Authority of the bridge's certificate (PEM).
    #[arg(long, value_name = "FILE")]
    bridge_ca: PathBuf,
    /// File with the token of a service account that may call the controller. It is read for each call.
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token")]
    token_file: PathBuf,
}

/// Serves until a signal.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    anyhow::ensure!(is_driver(&options.driver), "--driver {:?} is not a name of a CSI driver", options.driver);
    anyhow::ensure!(is_node_name(&options.node), "--node {:?} is not a name of a node", options.node);
    let authorities = authorities("--bridge-ca", &options.bridge_ca)?;
    let place = format!("{}/csi/{}/{}", options.bridge, options.node, options.driver);
    let caller = Caller::new(authorities, place, options.token_file)?;
    let socket = options.socket.display().to_string();
    let listener = listen(&options.socket).with_context(|| format!("--socket {socket}"))?;
    log::info!("the CSI driver {} of node {} is served at {socket}", options.driver, options.node);
    LocalSet::new().run_until(serve(listener, Rc::new(caller))).await
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(socket) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(socket)?,
        // What else is there is not ours.
        _ => {}
    }
    UnixListener::bind(socket)
}

async fn serve(listener: UnixListener, caller: Rc<Caller>) -> anyhow::Result<()> {
    // Calls at once are limited by the server of gRPC.
    let (sender, mut calls) = mpsc::channel::<Call>(1);
    let answering = async {
        while let Some(call) = calls.recv().await {
            let caller = Rc::clone(&caller);
            spawn_local(answer(caller, call));
        }
    };
    tokio::select! {
        () = serve_lasting(listener, sender) => {}
        () = answering => {}
        signal = signal::wait() => log::info!("{} received, ending", signal?),
    }
    Ok(())
}

async fn answer(caller: Rc<Caller>, call: Call) {
    let Call { path, message, mut reply, .. } = call;
    let called = async {
        match is_path(&path) {
            true => caller.call(&path, &message).await,
            false => Err(Status::new(Code::Unimplemented, format!("{path} is not a method of a controller"))),
        }
    };
    let answer = tokio::select! {
        answer = called => answer,
        // The sidecar does not wait any more. Dropping the call closes its connection, so bridge and node end it too.
        () = reply.closed() => return,
    };
    // The client may have gone.
    let _ = reply.send(answer);
}
