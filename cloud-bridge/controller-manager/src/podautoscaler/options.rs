//! Options of the controller, named like the flags of kube-controller-manager
//! (pkg/controller/podautoscaler/config/v1alpha1/defaults.go).

use std::time::Duration;

/// How the controller works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Interval between two evaluations of an autoscaler.
    pub sync_period: Duration,
    /// Time for which the highest recommendation counts, unless a behavior sets another.
    pub downscale_stabilization: Duration,
    /// Tolerance: a ratio of usage to target within this distance from 1 changes nothing.
    pub tolerance: f64,
    /// Time after its start during which the CPU usage of a pod counts only while it is ready.
    pub cpu_initialization_period: Duration,
    /// A pod that is unready and changed that no later than this after its start has never been ready.
    pub initial_readiness_delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}
