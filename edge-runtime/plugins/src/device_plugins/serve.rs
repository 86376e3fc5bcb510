//! The kubelet's socket, at which plugins register.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::unistd::geteuid;
use sampan_grpc::{Call, Code, Status};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::follow;
use super::rules::check;
use crate::connected::Place;
use crate::messages::registration::{REGISTER, Register};
use crate::plugins::Registration;
use crate::serve::{SOCKET, serve};
use crate::shared::Shared;
use crate::{folder, kept};

/// Registrations that wait for their turn; the server has its own limit of those under way.
const CALLS: usize = 8;
/// Longest registration, bytes.
const MAX_REGISTER: usize = 16 << 10;

/// Takes registrations for as long as the process is, and follows plugins that have registered with an earlier helper.
/// `is_new_boot`: these and sockets in the folder are from before the start of the machine.
pub(crate) fn start(shared: &Rc<Shared>, is_new_boot: bool) {
    let folder = shared.settings.root.join("device-plugins");
    let (calls, waiting) = mpsc::channel(CALLS);
    spawn_local(take(Rc::clone(shared), folder.clone(), waiting));
    if !is_new_boot {
        restore(shared, &folder);
    }
    let shared = Rc::clone(shared);
    spawn_local(async move {
        if is_new_boot {
            folder::remove_stale(&folder, SOCKET).await;
        }
        serve(&shared, &folder, calls).await;
    });
}

fn restore(shared: &Rc<Shared>, folder: &Path) {
    for register in kept::read(&shared.registrations) {
        // The settings may be others now.
        match check(&register, &shared.settings.taken) {
            Ok(()) => {
                follow::follow(shared, registration(folder, register), None);
            }
            Err(why) => log::info!("{}: {why}", register.resource),
        }
    }
}

fn registration(folder: &Path, register: Register) -> Registration {
    let Register { endpoint, resource, options, .. } = register;
    Registration { resource, place: Place::new(folder, endpoint), options, is_kept: true }
}

async fn take(shared: Rc<Shared>, folder: PathBuf, mut waiting: mpsc::Receiver<Call>) {
    while let Some(call) = waiting.recv().await {
        let (shared, folder) = (Rc::clone(&shared), folder.clone());
        // One that hangs holds up no other.
        spawn_local(async move {
            let Call { path, message, peer, reply } = call;
            let answer = answer(&shared, &folder, &path, &message, peer.uid).await;
            // The client may have gone.
            let _ = reply.send(answer.map(|()| Vec::new()));
        });
    }
}

async fn answer(shared: &Rc<Shared>, folder: &Path, path: &str, message: &[u8], uid: u32) -> Result<(), Status> {
    if path != REGISTER {
        return Err(Status::new(Code::Unimplemented, "no method of v1beta1.Registration"));
    }
    let registered = if uid == geteuid().as_raw() {
        registered(shared, folder, message).await
    } else {
        Err(Status::new(Code::PermissionDenied, format!("only root may register a plugin, not the user {uid}")))
    };
    let what = format!("a registration at {}", folder.join(SOCKET).display());
    match &registered {
        Ok(()) => shared.accepts(&what),
        Err(status) => {
            shared.count(|counters| counters.refused += 1);
            shared.refuses(&what, &status.message);
        }
    }
    registered
}

async fn registered(shared: &Rc<Shared>, folder: &Path, message: &[u8]) -> Result<(), Status> {
    let wrong = |why: String| Status::new(Code::InvalidArgument, why);
    if message.len() > MAX_REGISTER {
        return Err(wrong(format!("the registration has more than {MAX_REGISTER} bytes")));
    }
    let register = Register::read(message).map_err(|error| wrong(error.to_string()))?;
    // The kubelet gives no code.
    check(&register, &shared.settings.taken).map_err(|why| Status::new(Code::Unknown, why))?;
    let registered = follow::register(shared, registration(folder, register)).await;
    registered.map(drop).map_err(|why| Status::new(Code::Unavailable, why))
}
