//! Streams to and from clients through the bridge: one task each, as fast as its credit allows.
//!
//! | file | serves |
//! |---|---|
//! | `logs` | output that a container has written |
//! | `exec` | a command in a container |
//! | `attach` | standard streams of a container's own process |
//! | `port_forward` | one connection to a port of a pod |
//! | `delete_volume` | deletion of a volume that was provisioned here |
//! | `csi` | one call of the controller of a CSI driver |
//! | `stats` | usage of the node and its pods |
//! | `input` | meaning of a record from a client |
//! | `channels` | records in both directions, for streams with several flows of bytes |
//! | `target` | the pod and container of a request |
//! | `outcome` | result of a command, in Kubernetes' words |

mod attach;
mod channels;
mod csi;
mod delete_volume;
mod exec;
mod input;
mod logs;
mod outcome;
mod port_forward;
pub(super) mod stats;
mod target;

use std::cell::RefCell;
use std::rc::Rc;

use edge_protocol::message::{StreamId, StreamRequest};
use edge_protocol::stream::StreamEvent;
use smol::Task;
use smol::channel::{Receiver, Sender, bounded, unbounded};

use self::stats::disk::Cache;
use self::stats::rates::Rates;
use super::context::Context;
use crate::launch::runtimes::Runtimes;
use crate::link::LinkHandle;
use crate::monitor::client::MonitorClient;
use crate::sys::cgroup::Cgroups;
use crate::sys::trash::Trash;
use crate::sys::vec_map::VecMap;

/// The streams being served. Dropping one ends its task, and with it whatever that has started.
#[derive(Default)]
pub(super) struct Streams {
    open: VecMap<StreamId, Serving>,
    /// State of `stats` between two requests: a few numbers per container.
    rates: Rc<RefCell<Rates>>,
    disk: Cache,
}

/// Sources for serving streams.
pub(super) struct Backend<'a> {
    pub(super) cx: &'a Context,
    pub(super) cgroups: &'a Cgroups,
    pub(super) runtimes: &'a Runtimes,
    pub(super) volumes_trash: &'a Trash,
    pub(super) monitor: &'a MonitorClient,
}

/// A stream to open.
struct Asked<'a> {
    of: &'a Backend<'a>,
    stream: StreamId,
    request: &'a StreamRequest,
}

struct Serving {
    task: Task<()>,
    /// There is room again.
    room: Sender<()>,
    /// Bytes from the bridge, no more than its credit.
    input: Sender<Vec<u8>>,
    /// Container whose end ends a followed log.
    container: String,
    ended: Sender<()>,
}

/// Inputs of a task that serves one stream.
struct Wires {
    link: LinkHandle,
    stream: StreamId,
    room: Receiver<()>,
    /// Bytes from the bridge; closed by what takes nothing in.
    input: Receiver<Vec<u8>>,
    /// The container has ended.
    ended: Receiver<()>,
}

impl Streams {
    pub(super) fn take(&mut self, of: &Backend<'_>, event: StreamEvent) {
        match event {
            StreamEvent::Opened { stream, request } => self.open(of, stream, &request),
            StreamEvent::Room { stream } => {
                if let Some(serving) = self.open.get(&stream) {
                    // Full means that the task knows already.
                    let _ = serving.room.try_send(());
                }
            }
            StreamEvent::Closed { stream, .. } => drop(self.open.remove(&stream)),
            StreamEvent::Data { stream, data } => self.data(of.cx, stream, data),
        }
    }

    fn data(&self, cx: &Context, stream: StreamId, data: Vec<u8>) {
        let length = data.len();
        let taken = self.open.get(&stream).is_some_and(|serving| serving.input.try_send(data).is_ok());
        if let (false, Some(link)) = (taken, &cx.link) {
            link.stream_consumed(stream, length);
        }
    }

    fn open(&mut self, of: &Backend<'_>, stream: StreamId, request: &StreamRequest) {
        let Some(link) = of.cx.link.clone() else { return };
        // Those that have ended from this side.
        self.open.retain(|_, serving| !serving.task.is_finished());
        let asked = Asked { of, stream, request };
        let opened = match request {
            StreamRequest::Logs { .. } => self.open_logs(&asked),
            StreamRequest::Exec { .. } => self.open_exec(&asked),
            StreamRequest::Attach { .. } => self.open_attach(&asked),
            StreamRequest::PortForward { .. } => self.open_port_forward(&asked),
            StreamRequest::Stats {} => self.open_stats(&asked),
            StreamRequest::DeleteVolume { .. } => Self::open_delete_volume(&asked),
            StreamRequest::Csi { .. } => self.open_csi(&asked),
            _ => Err("this node does not know the request; upgrade edge-runtime".into()),
        };
        if let Err(error) = opened {
            link.stream_end(stream, Some(error));
        }
    }

    /// Has a task serve the stream; `work` makes it from the stream's ends.
    fn serve<W>(&mut self, &Asked { of, stream, .. }: &Asked<'_>, container: &str, work: impl FnOnce(Wires) -> W)
    where
        W: Future<Output = ()> + 'static,
    {
        let Some(link) = of.cx.link.clone() else { return };
        let (room, room_again) = bounded(1);
        // As much as the bridge's credit allows, so it has a bound.
        let (input, bytes) = unbounded();
        let (ended, has_ended) = bounded(1);
        let wires = Wires { link, stream, room: room_again, input: bytes, ended: has_ended };
        let task = of.cx.tasks.spawn(work(wires));
        let container = container.to_owned();
        self.open.insert(stream, Serving { task, room, input, container, ended });
    }

    /// A container has ended: clients that follow its log get the remaining lines and the end.
    pub(super) fn container_ended(&mut self, id: &str) {
        for serving in self.open.values().filter(|serving| serving.container == id) {
            let _ = serving.ended.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::{ToCloud, ToEdge};
    use edge_protocol::stream::INITIAL_CREDIT;

    use super::*;
    use crate::link::LinkEvent;
    use crate::node::bench::{Bench, running};

    fn connected() -> (Bench, LinkHandle) {
        let mut bench = Bench::new();
        let link = LinkHandle::for_tests(&bench.node.cx.paths, &[]);
        bench.node.cx.link = Some(link.clone());
        link.says();
        (bench, link)
    }

    fn exec(container: &str, command: &[&str]) -> StreamRequest {
        StreamRequest::Exec {
            namespace: "ns".into(),
            pod: "u".into(),
            uid: "u".into(),
            container: container.into(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            stdin: false,
            stdout: true,
            stderr: true,
            tty: false,
        }
    }

    #[test]
    fn refused_request_ends_its_stream_with_the_reason() {
        let (mut bench, link) = connected();
        bench.add("u");
        bench.container("u", running("u", 1));
        let forward = |pod: &str| StreamRequest::PortForward {
            namespace: "ns".into(),
            pod: pod.into(),
            uid: String::new(),
            port: 80,
        };
        let delete = |volume: &str| StreamRequest::DeleteVolume { volume: volume.into() };
        let csi = StreamRequest::Csi { driver: "d.x".into(), path: "/csi.v1.Identity/Probe".into() };
        for (stream, (request, reason)) in (1..).zip([
            (StreamRequest::Unknown, "does not know the request"),
            (exec("c", &[]), "at least one command"),
            (exec("other", &["true"]), "container not found (\"other\")"),
            (forward("other"), "pod ns/other is not on this node"),
            (forward("u"), "pod u is not running"),
            (delete("../volumes"), "bad request"),
            (delete(""), "bad request"),
            (csi, "no controller of the CSI driver d.x"),
        ]) {
            link.hears(&ToEdge::StreamOpen { stream, request: request.clone(), credit: 1000 });
            bench.node.take_link(LinkEvent::Stream(StreamEvent::Opened { stream, request })).unwrap();
            let said = link.says();
            let [ToCloud::StreamEnd { stream: ended, error: Some(why) }] = said.as_slice() else { panic!("{said:?}") };
            assert!(*ended == stream && why.contains(reason), "{why}");
        }
        assert!(bench.node.streams.open.is_empty());
    }

    #[test]
    fn input_that_no_task_takes_gives_its_credit_back() {
        let (mut bench, link) = connected();
        link.hears(&ToEdge::StreamOpen { stream: 1, request: StreamRequest::Stats {}, credit: 1000 });
        let data = vec![0; usize::try_from(INITIAL_CREDIT).unwrap()];
        link.hears(&ToEdge::StreamData { stream: 1, data: data.clone() });
        link.says();
        bench.node.take_link(LinkEvent::Stream(StreamEvent::Data { stream: 1, data })).unwrap();
        assert_eq!(link.says(), [ToCloud::StreamCredit { stream: 1, bytes: INITIAL_CREDIT }]);
    }
}
