//! What can be chosen of the controllers.

/// What can be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// So many pods that ended may stay before the oldest are removed; 0: all of them.
    pub terminated_pod_gc_threshold: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminated_pod_gc_threshold: 500 }
    }
}
