//! Where Google's gRPC for Python is.

use std::path::{Path, PathBuf};

/// Where `edge-runtime/grpc/tests/grpc_requirements.txt` is installed.
pub(crate) fn packages() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/grpcio");
    let packages = std::env::var_os("SAMPAN_GRPCIO").map_or(usual, PathBuf::from);
    assert!(packages.join("grpc").is_dir(), "grpcio is to be in {}: see grpc_requirements.txt", packages.display());
    packages
}
