//! Limit of the memory of streams to nodes: a pod or a client that never reads leaves buffers full as long as its
//! stream is open. A stream counts from its start with all that it can hold, because nothing can be taken back from it
//! later. Pure but for the count.

use std::sync::Arc;

use apimachinery::flow::Flow;
use apimachinery::shares::{Share, Shares};
use edge_protocol::message::StreamRequest;
use edge_protocol::stream::INITIAL_CREDIT;
use kubelet_api::backend::BackendError;

/// Memory for the streams of all users, and of one, in bytes. One may have as many port-forwards as one node has
/// streams.
const STREAMS: (usize, usize) = (48 << 20, 12 << 20);
/// Maximum bytes that may wait for a node's credit, per stream: as much as the node takes at once.
pub(super) const ROOM: usize = CREDIT;
/// Bytes on the way in one direction before they are read.
pub(super) const CREDIT: usize = 64 << 10;
const _: () = assert!(CREDIT as u64 == INITIAL_CREDIT);

/// Bytes that a stream can hold at the bridge, beside the piece or record (32 KiB) that is being passed on.
fn cost(request: &StreamRequest) -> usize {
    let sends = match request {
        // With a terminal, the client sends its sizes.
        StreamRequest::Exec { stdin, tty, .. } | StreamRequest::Attach { stdin, tty, .. } => *stdin || *tty,
        StreamRequest::PortForward { .. } | StreamRequest::Csi { .. } => true,
        _ => false,
    };
    // What the node has credit for waits for a slow line, and the rest for credit.
    let up = if sends { CREDIT + ROOM } else { 0 };
    CREDIT + up
}

/// Memory of all streams.
#[derive(Debug)]
pub(super) struct StreamMemory(Arc<Shares>);

impl Default for StreamMemory {
    fn default() -> Self {
        Self(Shares::new(STREAMS.0, STREAMS.1))
    }
}

impl StreamMemory {
    /// Takes the share of a stream, which is returned when it is dropped.
    ///
    /// # Errors
    /// The open streams of this client, or of all clients, take the memory.
    pub(super) fn take(&self, flow: &Flow, request: &StreamRequest) -> Result<Share, BackendError> {
        self.0.take(flow, cost(request)).ok_or_else(|| {
            BackendError::Busy(format!(
                "too many streams to nodes are open: their buffers may take {} MiB for one user or namespace and {} MiB \
                 for all; close some, or try again later",
                STREAMS.1 >> 20,
                STREAMS.0 >> 20
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::user::UserInfo;
    use edge_protocol::stream::MAX_STREAMS;

    fn forward() -> StreamRequest {
        StreamRequest::PortForward { namespace: "a".into(), pod: "p".into(), uid: "u".into(), port: 80 }
    }

    fn attach(stdin: bool, tty: bool) -> StreamRequest {
        let [namespace, pod, uid, container] = ["a", "p", "u", "c"].map(str::to_owned);
        StreamRequest::Attach { namespace, pod, uid, container, stdin, stdout: true, stderr: false, tty }
    }

    fn flow(user: &str) -> Flow {
        Flow::of(&UserInfo::new(user, ["people"]))
    }

    fn all(memory: &StreamMemory, flow: &Flow, request: &StreamRequest) -> Vec<Share> {
        std::iter::from_fn(|| memory.take(flow, request).ok()).collect()
    }

    #[test]
    fn open_streams_of_a_user_share_one_budget() {
        let memory = StreamMemory::default();
        let eve = flow("eve");
        let taken = all(&memory, &eve, &forward());
        assert_eq!(taken.len(), MAX_STREAMS);
        let refused = memory.take(&eve, &StreamRequest::Stats {}).map(drop);
        assert!(matches!(&refused, Err(BackendError::Busy(why)) if why.contains("12 MiB")), "{refused:?}");
        assert!(memory.take(&flow("bob"), &forward()).is_ok());
        drop(taken);
        assert_eq!(all(&memory, &eve, &attach(true, false)).len(), MAX_STREAMS);
        assert_eq!(all(&memory, &eve, &attach(false, false)).len(), 3 * MAX_STREAMS, "what only reads holds less");
        assert_eq!(cost(&attach(false, true)), cost(&forward()));
    }

    #[test]
    fn open_streams_of_all_users_share_one_budget() {
        let memory = StreamMemory::default();
        let taken: Vec<Vec<Share>> = (0..9).map(|n| all(&memory, &flow(&format!("user-{n}")), &forward())).collect();
        let streams = taken.iter().map(Vec::len).sum::<usize>();
        assert!(streams * cost(&forward()) <= STREAMS.0 && streams >= 3 * MAX_STREAMS, "{streams}");
        assert!(memory.take(&Flow::of_namespace("a"), &forward()).is_err());
        assert!(memory.take(&Flow::of_namespace("kube-system"), &forward()).is_ok(), "a part is kept for the cluster");
        assert!(memory.take(&Flow::of(&UserInfo::master("admin")), &forward()).is_ok());
    }
}
