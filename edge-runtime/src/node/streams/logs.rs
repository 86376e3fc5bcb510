//! Output of a container, read from its log files.

use std::path::PathBuf;

use edge_protocol::message::{StreamId, StreamRequest};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use smol::channel::Receiver;
use smol::future::FutureExt;

use super::{Asked, Streams, Wires, target};
use crate::link::LinkHandle;
use crate::logs::read::{Chunk, LogOptions, LogReader};
use crate::node::context::Context;
use crate::pod::record::{ContainerRecord, ContainerState};

/// Most bytes read at once.
const CHUNK: usize = 16 << 10;

/// A log to read.
struct Found {
    directory: PathBuf,
    attempt: u32,
    id: String,
    running: bool,
}

impl Streams {
    pub(super) fn open_logs(&mut self, asked: &Asked<'_>) -> Result<(), String> {
        let (found, options) = asked_for(asked.of.cx, asked.request)?;
        let mut reader =
            LogReader::open(&found.directory, found.attempt, options).map_err(|error| error.to_string())?;
        if !found.running {
            reader.container_ended();
        }
        self.serve(asked, &found.id, |wires| {
            wires.input.close();
            serve(wires, reader)
        });
        Ok(())
    }
}

fn asked_for(cx: &Context, request: &StreamRequest) -> Result<(Found, LogOptions), String> {
    let StreamRequest::Logs {
        namespace,
        pod,
        uid,
        container,
        follow,
        previous,
        timestamps,
        tail_lines,
        since_seconds,
        since_time,
        limit_bytes,
    } = request
    else {
        return Err("this node does not know the request; upgrade edge-runtime".into());
    };
    let entry = target::pod(cx, namespace, pod, uid)?;
    let record = target::container(entry, container)?;
    let attempt = match readable_attempt(record, *previous) {
        Some(attempt) => attempt,
        None if *previous => {
            return Err(format!("previous terminated container \"{container}\" in pod \"{pod}\" not found"));
        }
        None => {
            let why = waiting_for(&entry.reported, container);
            return Err(format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {why}"));
        }
    };
    let id = crate::pod::id::container_id(&entry.record.uid, container, attempt);
    let running = record.state.live_id() == Some(id.as_str());
    let since = first_time(cx.wall(), *since_seconds, since_time.as_deref())?;
    let record = &entry.record;
    let directory = cx.paths.pod_logs(&record.namespace, &record.name, &record.uid).join(container);
    let options = LogOptions {
        follow: *follow,
        timestamps: *timestamps,
        tail_lines: *tail_lines,
        since,
        limit_bytes: *limit_bytes,
        stream: None,
    };
    Ok((Found { directory, attempt, id, running }, options))
}

/// Time of the oldest wanted line; `None` for all. A time before the calendar's begin is `None`, too.
fn first_time(now: Timestamp, seconds: Option<u64>, time: Option<&str>) -> Result<Option<Timestamp>, String> {
    let seconds = seconds.and_then(|seconds| i64::try_from(seconds).ok());
    match (seconds, time) {
        (Some(seconds), _) => Ok(now.checked_sub(SignedDuration::from_secs(seconds)).ok()),
        (None, Some(text)) => text.parse().map(Some).map_err(|_| format!("sinceTime {text} is not RFC 3339")),
        (None, None) => Ok(None),
    }
}

/// The attempt whose log is meant (K8s pkg/kubelet/kubelet_pods.go `validateContainerLogStatus`): with `previous` the
/// last that has ended before the present one, else the present one, or the last while the next has not started.
fn readable_attempt(record: &ContainerRecord, previous: bool) -> Option<u32> {
    let last = record.last.as_ref().map(|ended| ended.attempt);
    match &record.state {
        _ if previous => last,
        ContainerState::Waiting { .. } | ContainerState::Pulling { .. } | ContainerState::ImageReady { .. } => last,
        _ => Some(record.attempt),
    }
}

/// Why a container waits, by its reported status; in the kubelet's words for the usual reasons.
fn waiting_for(status: &Value, container: &str) -> String {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let mut all = lists.iter().filter_map(|list| status[list].as_array()).flatten();
    let found = all.find(|one| one["name"] == container);
    match found.and_then(|one| one["state"]["waiting"]["reason"].as_str()) {
        Some("ErrImagePull") => "image can't be pulled".into(),
        Some("ImagePullBackOff") => "trying and failing to pull image".into(),
        Some(reason) => reason.into(),
        None => "ContainerCreating".into(),
    }
}

/// Moves a log into a stream until its end.
async fn serve(wires: Wires, mut reader: LogReader) {
    let Wires { link, stream, room, ended, .. } = wires;
    loop {
        match reader.next_chunk(CHUNK) {
            Ok(Chunk::Data(data)) => {
                if !send_all(&link, stream, &data, &room).await {
                    return;
                }
            }
            Ok(Chunk::Wait) => {
                let changed = async { reader.changed().await.is_ok() };
                // The sender lives as long as the stream.
                let over = async { ended.recv().await.is_err() };
                if !changed.or(over).await {
                    reader.container_ended();
                }
            }
            Ok(Chunk::End) => return link.stream_end(stream, None),
            Err(error) => return link.stream_end(stream, Some(error.to_string())),
        }
    }
}

/// False when the stream is over.
pub(super) async fn send_all(link: &LinkHandle, stream: StreamId, mut data: &[u8], room: &Receiver<()>) -> bool {
    while !data.is_empty() {
        let (now, later) = data.split_at(link.stream_room(stream).min(data.len()));
        if now.is_empty() {
            if room.recv().await.is_err() {
                return false;
            }
            continue;
        }
        if link.stream_send(stream, now).is_err() {
            return false;
        }
        data = later;
        smol::future::yield_now().await;
    }
    true
}

#[cfg(test)]
mod tests;
