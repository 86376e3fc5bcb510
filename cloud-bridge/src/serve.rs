//! `cloud-bridge serve`: the bridge on a Kubernetes API that is there already. Wiring only.

use crate::cli::Serve;

/// Runs until a signal.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    anyhow::bail!("serve is not built yet (listen {})", options.listen)
}
