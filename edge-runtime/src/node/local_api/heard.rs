//! Events of the helper: that it is up or down, its certificate and its counters.

use std::path::Path;

use sampan_api_control::FromHelper;
use serde_json::Value;

use crate::helper::client::Heard;
use crate::node::Node;
use crate::pod::event::PodEvent;
use crate::store::StoreError;
use crate::sys::files::replace;

impl Node {
    /// Processes an event of the helper.
    pub(in crate::node) fn take_local_api(&mut self, heard: Heard<FromHelper>) -> Result<(), StoreError> {
        match heard {
            Heard::Up(connection) => self.local_api.up(&self.cx, &self.tokens, connection),
            Heard::Down(_) => self.local_api.down(),
            Heard::Room => {}
            Heard::Line(FromHelper::Ready { certificate, refused }) => {
                for why in refused {
                    let message = format!("the local API does not listen: {why}");
                    log::error!("{message}");
                    self.cx.node_event(true, "LocalAPINotListening", &message)?;
                }
                self.trust(certificate);
            }
            Heard::Line(FromHelper::Counters { counters }) => counted(&self.cx.paths.api_counters(), &counters),
            Heard::Line(FromHelper::Hello { .. } | FromHelper::Pong {}) => {}
        }
        Ok(())
    }

    /// Gives pods the helper's certificate, if it is another one than before.
    fn trust(&mut self, certificate: String) {
        let certificate = Some(Value::String(certificate));
        if self.cx.api_certificate == certificate {
            return;
        }
        self.cx.api_certificate = certificate;
        let config = self.cx.config.local_api;
        for uid in self.cx.pods.uids(|entry| config.is_used_by(&entry.pod)) {
            self.cx.tell(&uid, PodEvent::DependencyChanged);
            self.refresh_volumes(&uid);
        }
    }
}

/// Writes the counters for `edge-runtime status`, on a file system in memory.
fn counted(file: &Path, counters: &Value) {
    if let Err(error) = replace(file, counters.to_string().as_bytes(), false) {
        log::warn!("{}: {error}", file.display());
    }
}
