//! DMI's two ends: calls of mappers come in at `dmi.sock`, and calls to mappers go out to their sockets. Decides
//! nothing: parses and passes on requests, sends calls.
//!
//! | file | owns |
//! |---|---|
//! | `folder` | the folder, our socket in it, and the way to those of mappers |
//! | `request` | parses calls, from untrusted bytes |
//! | `pod` | whose process calls |

mod folder;
mod pod;
pub(crate) mod request;

use std::path::PathBuf;
use std::time::Duration;

use sampan_grpc::{Call, Client, Status};
use sampan_sys::vec_map::VecMap;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep};

use crate::twins::{Request, SOCKET};

/// Timeout for a mapper's answer, including connecting. KubeEdge's edge has the same.
const DEADLINE: Duration = Duration::from_secs(10);
/// Until the folder is tried again: doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(60);

type Reply = oneshot::Sender<Result<Vec<u8>, Status>>;

/// How a call of a mapper went.
#[derive(Debug)]
pub struct Answered {
    pub call: u64,
    pub answer: Result<(), Status>,
}

/// Both ends.
#[derive(Debug)]
pub struct Dmi {
    folder: PathBuf,
    /// Mappers that wait for an answer of ours, by number.
    replies: VecMap<u64, Reply>,
    number: u64,
    /// The call that is under way to each mapper.
    under_way: VecMap<u64, AbortHandle>,
    answered: mpsc::Sender<Answered>,
}

impl Dmi {
    /// Serves in this folder from now on, in tasks of the current `LocalSet`.
    pub fn start(folder: PathBuf, calls: mpsc::Sender<Call>, answered: mpsc::Sender<Answered>) -> Self {
        spawn_local(serve(folder.clone(), calls));
        Self { folder, replies: VecMap::new(), number: 0, under_way: VecMap::new(), answered }
    }

    /// Parses a call. Returns the request, the number to [`answer`](Self::answer) it with, and the pod uid of its
    /// caller. For reports the uid is looked up in procfs only if `minds`, because that is slow. Answers a malformed
    /// call and returns `None`.
    pub fn called(&mut self, call: Call, minds: bool) -> Option<(u64, Request, String)> {
        let Call { path, message, peer, reply } = call;
        let request = match request::read(&path, &message) {
            Ok(request) => request,
            Err(status) => {
                // The client may have left.
                let _ = reply.send(Err(status));
                return None;
            }
        };
        let pod = match (&request, peer.pid) {
            (Request::Register(_), Some(pid)) => pod::of(pid),
            (_, Some(pid)) if minds => pod::of(pid),
            _ => String::new(),
        };
        // Removes calls whose clients have left: registrations that wait for the daemon.
        self.replies.retain(|_, reply| !reply.is_closed());
        self.number += 1;
        self.replies.insert(self.number, reply);
        Some((self.number, request, pod))
    }

    pub fn answer(&mut self, number: u64, answer: Result<Vec<u8>, Status>) {
        if let Some(reply) = self.replies.remove(&number) {
            let _ = reply.send(answer);
        }
    }

    /// Calls a mapper at this socket of the folder.
    pub fn call(&mut self, mapper: u64, socket: String, call: u64, path: &'static str, message: Vec<u8>) {
        let (folder, answered) = (self.folder.clone(), self.answered.clone());
        let task = spawn_local(async move {
            let answer = match folder::open(&folder, &socket) {
                Ok(opened) => Client::new(opened.path())
                    .call(path, &message, DEADLINE)
                    .await
                    .map(drop)
                    .map_err(|status| Status { message: format!("{socket}: {}", status.message), ..status }),
                Err(status) => Err(status),
            };
            // The loop is gone only when the process ends.
            let _ = answered.send(Answered { call, answer }).await;
        });
        if let Some(before) = self.under_way.insert(mapper, task.abort_handle()) {
            before.abort();
        }
    }

    /// The socket goes with the helper; the next one makes its own.
    pub fn close(self) {
        let socket = self.folder.join(SOCKET);
        if let Err(error) = std::fs::remove_file(&socket)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            log::warn!("{}: {error}", socket.display());
        }
    }

    /// Cancels a call of this mapper whose result is no longer needed.
    pub fn hangup(&mut self, mapper: u64) {
        if let Some(task) = self.under_way.remove(&mapper) {
            task.abort();
        }
    }
}

/// Nothing else waits for the folder.
async fn serve(folder: PathBuf, calls: mpsc::Sender<Call>) {
    let mut pause = PAUSE;
    loop {
        match folder::listen(&folder) {
            Ok(listener) => {
                log::info!("mappers may register in {}", folder.display());
                let (taken, since) = (folder::is_taken_away(&folder), Instant::now());
                tokio::select! {
                    () = sampan_grpc::serve(listener, calls.clone()) => {}
                    () = taken => log::warn!("{} is taken away, and is made again", folder.join(SOCKET).display()),
                }
                pause = if since.elapsed() > PAUSE_AT_MOST { PAUSE } else { pause };
            }
            Err(error) => log::error!("no mapper can register, tried again in {} s: {error}", pause.as_secs()),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_AT_MOST);
    }
}
