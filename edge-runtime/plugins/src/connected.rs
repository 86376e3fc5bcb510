//! A plugin that can be called: its socket stays the one that it registered with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_grpc::{Client, Code, Status, Streaming};
use tokio::sync::Mutex;

use crate::folder::{self, Opened};
use crate::messages::device_plugin::{LIST_AND_WATCH, OPTIONS};
use crate::messages::registration::Options;

/// Timeout for the options: a registration waits for them and for the socket, and a call at our server ends after ten
/// seconds.
const DEADLINE: Duration = Duration::from_secs(6);
/// Timeout for the first list of devices. The kubelet has none: a plugin may look for its hardware first.
const FIRST_LIST: Duration = Duration::from_secs(3_600);

/// Where a plugin serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    /// Name of its socket.
    pub(crate) name: String,
}

impl Place {
    /// Follows links to the folder now: so it is the same place by whatever path it was registered.
    pub(crate) fn new(folder: &Path, name: String) -> Self {
        Self { folder: folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), name }
    }
}

#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) options: Options,
    /// A plugin has one call at a time, beside its list of devices: it may not expect two.
    pub(crate) client: Mutex<Client>,
    opened: Opened,
}

impl Connected {
    /// Opens the socket, and asks for the options. `registered`: those of the registration, for a plugin that does not
    /// answer this.
    ///
    /// # Errors
    /// The plugin's status, or UNAVAILABLE.
    pub(crate) async fn new(place: &Place, registered: Options) -> Result<Self, Status> {
        let opened = folder::open(&place.folder, &place.name)?;
        let mut client = Client::new(opened.path());
        let options = match client.call(OPTIONS, &[], DEADLINE).await {
            Ok(answer) => {
                Options::read(&answer).map_err(|error| Status::new(Code::Internal, format!("{OPTIONS}: {error}")))?
            }
            Err(status) if status.code == Code::Unimplemented => registered,
            Err(status) => return Err(status),
        };
        Ok(Self { options, client: Mutex::new(client), opened })
    }

    /// Lists of its devices, from now on.
    pub(crate) fn lists(&self) -> Streaming {
        Client::new(self.opened.path()).stream(LIST_AND_WATCH, &[], FIRST_LIST)
    }
}

/// A status as Kubernetes prints it.
pub(crate) fn text(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code, status.message)
}
