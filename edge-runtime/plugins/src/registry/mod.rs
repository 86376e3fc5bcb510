//! The folder in which plugins of any type are found by their socket (`plugins_registry`), as Kubernetes'
//! `pkg/kubelet/pluginmanager` has it: who they are is asked there, and they are told whether they are taken.
//!
//! | file | owns |
//! |---|---|
//! | `watch` | changes of the folder |
//! | `introduce` | one socket: what it is, and who takes it |

mod introduce;
mod watch;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use sampan_sys::vec_map::VecMap;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use self::introduce::{Registered, introduce};
use self::watch::Watch;
use crate::folder::{self, Identity};
use crate::shared::Shared;

/// Most plugins in the folder.
const MAX_PLUGINS: usize = 128;
/// Between two looks without a change.
const LOOK: Duration = Duration::from_secs(60);
/// After a change: others follow.
const MOMENT: Duration = Duration::from_millis(100);
/// Until a folder that cannot be watched is tried again.
const PAUSE: Duration = Duration::from_secs(10);

/// A socket of the folder. Another one under its name is another plugin.
#[derive(Debug)]
struct Plugin {
    identity: Identity,
    task: AbortHandle,
    registered: Rc<RefCell<Option<Registered>>>,
}

/// Follows the folder for as long as the process is. `is_new_boot`: sockets in it are from before the start of the machine.
pub(crate) fn start(shared: &Rc<Shared>, is_new_boot: bool) {
    let (shared, folder) = (Rc::clone(shared), shared.settings.root.join("plugins_registry"));
    spawn_local(async move {
        if is_new_boot {
            folder::remove_stale(&folder, "").await;
        }
        follow(shared, folder).await;
    });
}

async fn follow(shared: Rc<Shared>, folder: PathBuf) {
    let what = folder.display().to_string();
    let mut known = VecMap::new();
    loop {
        // A new one each time: the folder may be another one.
        let watch = folder::make(&folder).and_then(|()| Watch::new(&folder));
        let looked = watch.and_then(|watch| look(&shared, &folder, &mut known).map(|()| watch));
        match looked {
            Ok(watch) => {
                shared.accepts(&what);
                tokio::select! {
                    () = watch.changed() => {}
                    () = sleep(LOOK) => {}
                }
                sleep(MOMENT).await;
            }
            Err(error) => {
                shared.refuses(&what, error);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Compares the folder with what is known of it.
fn look(shared: &Rc<Shared>, folder: &Path, known: &mut VecMap<String, Plugin>) -> std::io::Result<()> {
    let found = folder::sockets(folder)?;
    known.retain(|name, plugin| {
        let stays = found.iter().any(|(other, identity)| other == name && *identity == plugin.identity);
        if !stays {
            plugin.end(shared);
            shared.accepts(&folder.join(name).display().to_string());
        }
        stays
    });
    for (name, identity) in found {
        if known.contains_key(&name) {
            continue;
        }
        if known.len() >= MAX_PLUGINS {
            return Err(std::io::Error::other(format!("there are more than {MAX_PLUGINS} sockets")));
        }
        let registered = Rc::default();
        let introducing = introduce(Rc::clone(shared), folder.to_owned(), name.clone(), Rc::clone(&registered));
        known.insert(name, Plugin { identity, task: spawn_local(introducing).abort_handle(), registered });
    }
    Ok(())
}

impl Plugin {
    fn end(&self, shared: &Rc<Shared>) {
        self.task.abort();
        if let Some(registered) = self.registered.take() {
            registered.end(shared);
        }
    }
}
