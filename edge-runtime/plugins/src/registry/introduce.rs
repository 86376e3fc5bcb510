//! One socket of the folder: asks the plugin what it is, and hands it to the module for its type. Another type needs a
//! line in [`Registered`] and in [`take`].

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use sampan_grpc::Client;
use tokio::time::sleep;

use crate::connected::Place;
use crate::csi;
use crate::device_plugins::{register, rules};
use crate::folder;
use crate::messages::plugin_registration::{GET_INFO, Info, NOTIFY, status};
use crate::messages::registration::Options;
use crate::plugins::Registration;
use crate::shared::Shared;

/// Timeout for each call.
const DEADLINE: Duration = Duration::from_secs(10);
/// Until a plugin that was not taken is asked again; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(120);

/// A plugin that was taken.
#[derive(Debug)]
pub(super) enum Registered {
    DevicePlugin { resource: String, number: u64 },
    CsiDriver { name: String, number: u64 },
}

impl Registered {
    /// Its socket has gone.
    pub(super) fn end(self, shared: &Rc<Shared>) {
        match self {
            Self::DevicePlugin { resource, number } => shared.unregister(&resource, number),
            Self::CsiDriver { name, number } => csi::unregister(shared, &name, number),
        }
    }
}

/// Asks until the plugin is taken.
pub(super) async fn introduce(
    shared: Rc<Shared>,
    folder: PathBuf,
    name: String,
    registered: Rc<RefCell<Option<Registered>>>,
) {
    let what = folder.join(&name).display().to_string();
    let mut pause = PAUSE;
    while let Err(why) = ask(&shared, &folder, &name, &registered).await {
        shared.refuses(&what, why);
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_AT_MOST);
    }
    shared.accepts(&what);
}

async fn ask(
    shared: &Rc<Shared>,
    folder: &Path,
    name: &str,
    registered: &RefCell<Option<Registered>>,
) -> Result<(), String> {
    let opened = folder::open(folder, name).map_err(|status| status.to_string())?;
    let mut client = Client::new(opened.path());
    let answer = client.call(GET_INFO, &[], DEADLINE).await.map_err(|status| format!("GetInfo: {status}"))?;
    let info = Info::read(&answer).map_err(|why| format!("GetInfo: {why}"))?;
    let taken = take(shared, folder, name, info).await;
    if taken.is_err() {
        shared.count(|counters| counters.refused += 1);
    }
    // Known before anything else can happen: the socket may go while the plugin is told.
    let taken = taken.map(|plugin| drop(registered.replace(Some(plugin))));
    if let Err(status) = client.call(NOTIFY, &status(&taken), DEADLINE).await {
        log::warn!("{}: NotifyRegistrationStatus: {status}", folder.join(name).display());
    }
    taken
}

/// Hands the plugin to the module for its type.
async fn take(shared: &Rc<Shared>, folder: &Path, name: &str, info: Info) -> Result<Registered, String> {
    match info.kind.as_str() {
        "DevicePlugin" if shared.settings.device_plugins => device_plugin(shared, folder, name, info).await,
        "CSIPlugin" if shared.settings.csi => csi_driver(shared, folder, name, info).await,
        // The kubelet's text.
        kind => Err(format!(
            "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {}",
            folder.join(name).display()
        )),
    }
}

async fn device_plugin(shared: &Rc<Shared>, folder: &Path, name: &str, info: Info) -> Result<Registered, String> {
    let Info { name: resource, endpoint, versions, .. } = info;
    rules::check_found(&resource, &versions, &shared.settings.taken)?;
    let place = place(shared, folder, name, &endpoint)?;
    let registration = Registration { resource: resource.clone(), place, options: Options::default(), is_kept: false };
    let number = register(shared, registration).await?;
    Ok(Registered::DevicePlugin { resource, number })
}

async fn csi_driver(shared: &Rc<Shared>, folder: &Path, socket: &str, info: Info) -> Result<Registered, String> {
    let Info { name, endpoint, versions, .. } = info;
    let place = place(shared, folder, socket, &endpoint)?;
    let number = csi::register(shared, &name, &versions, place).await?;
    Ok(Registered::CsiDriver { name, number })
}

/// Where a plugin serves: at its endpoint, or at the socket `name` of this folder.
fn place(shared: &Shared, folder: &Path, name: &str, endpoint: &str) -> Result<Place, String> {
    let (folder, name) = match endpoint {
        "" => (folder.to_owned(), name.to_owned()),
        endpoint => folder::below(&shared.settings.root, endpoint)?,
    };
    Ok(Place::new(&folder, name))
}
