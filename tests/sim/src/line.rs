//! One connection with the faults of a network: frames under way in both directions.

use std::collections::VecDeque;

use edge_protocol::frame::{MAX_FRAME, PART};

/// Maximum number of frames in the buffers of one direction; a slow reader makes the writer wait.
const BUFFER: usize = 8;

#[derive(Debug, Default)]
pub struct Line {
    down: VecDeque<String>,
    up: VecDeque<String>,
    /// Whether frames are lost without an error.
    pub silent: bool,
    /// Whether the node has given it up; frames that it sent before may still arrive.
    pub left: bool,
    /// Bytes put on it, by direction.
    pub down_bytes: usize,
    pub up_bytes: usize,
    pub down_frames: usize,
}

impl Line {
    pub fn takes_down(&self) -> bool {
        self.down.len() < BUFFER
    }

    pub fn takes_up(&self) -> bool {
        self.up.len() < BUFFER
    }

    pub fn send_down(&mut self, frame: String) {
        check(&frame);
        self.down_bytes += frame.len();
        self.down_frames += 1;
        if !self.silent && !self.left {
            self.down.push_back(frame);
        }
    }

    pub fn send_up(&mut self, frame: String) {
        check(&frame);
        self.up_bytes += frame.len();
        if !self.silent {
            self.up.push_back(frame);
        }
    }

    pub fn receive_down(&mut self) -> Option<String> {
        self.down.pop_front()
    }

    pub fn receive_up(&mut self) -> Option<String> {
        self.up.pop_front()
    }

    pub fn has_up(&self) -> bool {
        !self.up.is_empty()
    }
}

/// G19: no frame is over the limit, and none delays a heartbeat too long.
fn check(frame: &str) {
    assert!(frame.len() <= MAX_FRAME && frame.len() <= 3 * PART, "a frame of {} bytes", frame.len());
}
