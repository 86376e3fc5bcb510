//! `cloud-bridge standalone`: the embedded API, and the bridge on it, in one process. Wiring only.

use crate::cli::Standalone;

/// Runs until a signal.
pub async fn run(options: Standalone) -> anyhow::Result<()> {
    anyhow::bail!("standalone is not built yet (state {})", options.state.display())
}
