//! What the controller is told by whoever starts it, called as the flags of kube-controller-manager are
//! (pkg/controller/podautoscaler/config/v1alpha1/defaults.go).

use std::time::Duration;

/// How the controller works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// From one look at an autoscaler to the next.
    pub sync_period: Duration,
    /// So long the highest recommendation counts, where a behavior says nothing else.
    pub downscale_stabilization: Duration,
    /// A ratio of use to target that is no further from one than this changes nothing.
    pub tolerance: f64,
    /// So long after its start the use of CPU of a pod counts only while it is ready.
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
