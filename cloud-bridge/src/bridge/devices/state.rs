//! What the tasks of devices share.

use std::sync::Arc;

use super::silent::Silent;
use super::turns::Turns;
use super::watch::DeviceWatch;
use crate::bridge::followed::present::Present;

/// State of all devices.
#[derive(Default)]
pub(in crate::bridge) struct DeviceState {
    pub(in crate::bridge) watch: Present<DeviceWatch>,
    /// Limits of checks and writes of statuses.
    pub(in crate::bridge) turns: Arc<Turns>,
    /// Nodes whose statuses are stale, or will be.
    pub(in crate::bridge) silent: Silent,
}
