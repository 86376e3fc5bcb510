//! The `metrics` section: where metrics and health can be asked for beside the socket.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Address as typed. It is served without TLS or a password: any client that reaches it may read the metrics.
    listen: Option<String>,
}

impl MetricsConfig {
    /// `None`: nowhere but at the socket.
    pub fn listen(&self) -> Option<SocketAddr> {
        self.listen.as_ref()?.parse().ok()
    }

    pub(super) fn check(self) -> Result<Self, Wrong> {
        let right = |address: SocketAddr| address.port() > 0;
        match &self.listen {
            Some(text) if !text.parse().is_ok_and(right) => Err(wrong(
                "metrics.listen",
                format!("{text:?} is no ADDRESS:PORT, such as 127.0.0.1:10255 or [::]:10255"),
            )),
            _ => Ok(self),
        }
    }
}
