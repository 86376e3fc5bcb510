//! Settings of the controllers.

/// Settings of the controllers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Maximum number of terminated pods to keep; the oldest of more are deleted. 0 keeps all.
    pub terminated_pod_gc_threshold: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminated_pod_gc_threshold: 500 }
    }
}
