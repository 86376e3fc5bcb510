//! What a container has written, read from its log files.

use std::path::PathBuf;

use edge_protocol::message::{StreamId, StreamRequest};
use smol::channel::Receiver;
use smol::future::FutureExt;

use super::{Wires, target};
use crate::link::LinkHandle;
use crate::logs::read::{Chunk, LogOptions, LogReader};
use crate::node::Node;
use crate::pod::record::ContainerState;

/// Most bytes read at once.
const CHUNK: usize = 16 << 10;

/// A log to read.
struct Found {
    directory: PathBuf,
    attempt: u32,
    id: String,
    running: bool,
}

impl Node {
    pub(super) fn open_logs(&mut self, stream: StreamId, request: &StreamRequest) -> Result<(), String> {
        let (found, options) = self.log_asked_for(request)?;
        let mut reader =
            LogReader::open(&found.directory, found.attempt, options).map_err(|error| error.to_string())?;
        if !found.running {
            reader.container_ended();
        }
        self.serve(stream, &found.id, |wires| serve(wires, reader));
        Ok(())
    }

    fn log_asked_for(&self, request: &StreamRequest) -> Result<(Found, LogOptions), String> {
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
        let entry = self.target(namespace, pod, uid)?;
        let record = target::container(entry, container)?;
        let attempt = match (previous, &record.state) {
            (true, _) if record.attempt == 0 => {
                return Err(format!("previous terminated container \"{container}\" in pod \"{pod}\" not found"));
            }
            (true, _) => record.attempt - 1,
            // Waiting for the next attempt: what can be read is the one before.
            (
                false,
                ContainerState::Waiting { .. } | ContainerState::Pulling { .. } | ContainerState::ImageReady { .. },
            ) if record.last.is_some() && record.attempt > 0 => record.attempt - 1,
            (
                false,
                ContainerState::Waiting { .. } | ContainerState::Pulling { .. } | ContainerState::ImageReady { .. },
            ) => {
                return Err(format!("container \"{container}\" in pod \"{pod}\" is waiting to start"));
            }
            (false, _) => record.attempt,
        };
        let id = crate::pod::id::container_id(&entry.record.uid, container, attempt);
        let running = record.state.live_id() == Some(id.as_str());
        let now = self.wall();
        let since_seconds = since_seconds.and_then(|seconds| i64::try_from(seconds).ok());
        let since = match (since_seconds, since_time) {
            (Some(seconds), _) => now.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok(),
            (None, Some(text)) => Some(text.parse().map_err(|_| format!("sinceTime {text} is not RFC 3339"))?),
            (None, None) => None,
        };
        let record = &entry.record;
        let directory = self.paths.pod_logs(&record.namespace, &record.name, &record.uid).join(container);
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
}

/// Moves a log into a stream until its end.
async fn serve(wires: Wires, mut reader: LogReader) {
    let Wires { link, stream, room, ended } = wires;
    loop {
        match reader.next_chunk(CHUNK) {
            Ok(Chunk::Data(data)) => {
                if !send_all(&link, stream, &data, &room).await {
                    return;
                }
            }
            Ok(Chunk::Wait) => {
                let changed = async { reader.changed().await.is_ok() };
                let over = async {
                    // The sender lives as long as the stream.
                    let _ = ended.recv().await;
                    false
                };
                let more = changed.or(over).await;
                if !more {
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
