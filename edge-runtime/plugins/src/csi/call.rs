//! One call to a driver, and work that may wait for the disk.

use std::io;
use std::path::Path;
use std::time::Duration;

use sampan_grpc::{Client, Status};
use tokio::task::spawn_blocking;

use super::drivers::Driver;
use super::failure::Failure;
use crate::connected::{Place, text};
use crate::folder;
use crate::shared::Shared;

/// Timeout for each call: the kubelet's `csiTimeout`.
const DEADLINE: Duration = Duration::from_secs(120);

/// Calls a method at a socket. A connection for each call, as the kubelet has it: the driver may make its socket again
/// at any time.
///
/// # Errors
/// The driver's status, or UNAVAILABLE.
pub(super) async fn call_at(place: &Place, method: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
    let opened = folder::open(&place.folder, &place.name)?;
    Client::new(opened.path()).call(method, message, DEADLINE).await
}

/// Calls a method of a driver when it has room for one more.
///
/// # Errors
/// The errors of [`call_at`].
pub(super) async fn call(driver: &Driver, method: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
    let _permit = driver.calls.acquire().await;
    call_at(&driver.place, method, message).await
}

/// How a call has failed, as the kubelet prints it.
pub(super) fn failed(method: &str, status: &Status) -> Failure {
    let name = method.rsplit('/').next().unwrap_or_default();
    format!("{name}: {}", text(status)).into()
}

/// Work on the disk, which may take its time. Gets the root.
///
/// # Errors
/// Those of the work.
pub(super) async fn on_disk<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let root = shared.settings.root.clone();
    spawn_blocking(move || work(&root)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
