//! podresources: the socket for clients that ask which pod has which device. The daemon has the answers; this adds NUMA
//! nodes and healthy devices.

use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_grpc::{Call, Code, Status};
use sampan_plugins_control::{Asked, Resources};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::messages::pod_resources::{allocatable, asked, pods};
use crate::rate::Rate;
use crate::serve::serve;
use crate::shared::Shared;

/// Calls a second, and at once: `DefaultPodResourcesMaxSize` and the limits of Kubernetes'
/// `pkg/kubelet/apis/podresources`.
const PER_SECOND: u32 = 100;
const BURST: u32 = 10;
/// Calls that wait for their turn.
const CALLS: usize = 8;
/// Timeout for the daemon: a call at our server ends after ten seconds.
const DEADLINE: Duration = Duration::from_secs(8);
/// Longest request, bytes.
const MAX_REQUEST: usize = 4 << 10;

/// Answers for as long as the process is.
pub(crate) fn start(shared: &Rc<Shared>) {
    let folder = shared.settings.root.join("pod-resources");
    let (calls, waiting) = mpsc::channel(CALLS);
    spawn_local(take(Rc::clone(shared), waiting));
    let shared = Rc::clone(shared);
    spawn_local(async move { serve(&shared, &folder, calls).await });
}

async fn take(shared: Rc<Shared>, mut waiting: mpsc::Receiver<Call>) {
    let mut rate = Rate::new(Instant::now(), PER_SECOND, BURST);
    while let Some(Call { path, message, reply, .. }) = waiting.recv().await {
        shared.count(|counters| counters.asked += 1);
        if !rate.take(Instant::now()) {
            shared.count(|counters| counters.over_limit += 1);
            // The kubelet's text.
            let _ = reply.send(Err(Status::new(Code::ResourceExhausted, "rejected by rate limit")));
            continue;
        }
        let shared = Rc::clone(&shared);
        spawn_local(async move {
            let answer = answer(&shared, &path, &message).await;
            // The client may have gone.
            let _ = reply.send(answer);
        });
    }
}

async fn answer(shared: &Shared, path: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
    if message.len() > MAX_REQUEST {
        return Err(Status::new(Code::ResourceExhausted, format!("the request has more than {MAX_REQUEST} bytes")));
    }
    let what = asked(path, message)
        .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?
        .ok_or_else(|| Status::new(Code::Unimplemented, "no method of v1.PodResourcesLister"))?;
    let late = |_| Status::new(Code::Unavailable, "the node does not answer");
    let resources = timeout(DEADLINE, shared.ask(what.clone())).await.map_err(late)?;
    let resources = resources.ok_or_else(|| Status::new(Code::Unavailable, "the node is restarting"))?;
    let plugins = shared.plugins.borrow();
    let numa = |resource: &str, id: &str| plugins.numa(resource, id);
    match (what, resources) {
        (Asked::List {}, Resources::Pods(all)) => Ok(pods(&all, &numa)),
        (Asked::Get { .. }, Resources::Pods(all)) if all.len() == 1 => Ok(pods(&all, &numa)),
        (Asked::Allocatable {}, Resources::Cpus(cpus)) => Ok(allocatable(plugins.healthy(), &cpus)),
        // The kubelet gives no code.
        (Asked::Get { .. }, Resources::Refused(why)) => Err(Status::new(Code::Unknown, why)),
        (_, Resources::Refused(why)) => Err(Status::new(Code::Unavailable, why)),
        _ => Err(Status::new(Code::Internal, "the node's answer is to another question")),
    }
}
