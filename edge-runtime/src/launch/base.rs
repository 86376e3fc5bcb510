//! What making and taking away share: the node's folders, configuration and cgroups.

use std::rc::Rc;

use serde_json::Value;

use crate::config::Config;
use crate::config::resources::CpuManager;
use crate::paths::Paths;
use crate::sys::cgroup::Cgroups;
use crate::sys::trash::Trash;

/// Looks up a ConfigMap or Secret the node holds: kind, namespace, name.
pub type Objects<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Value>;

pub struct Base {
    pub paths: Paths,
    pub config: Rc<Config>,
    pub cgroups: Cgroups,
    /// Large folders of pods that have gone.
    pub trash: Trash,
    /// Volumes that were provisioned here and have gone.
    pub volumes_trash: Trash,
}

impl Base {
    pub(super) fn new(paths: &Paths, config: Rc<Config>, cgroups: Cgroups) -> Rc<Self> {
        let (trash, volumes_trash) = (Trash::new(paths.trash()), Trash::new(paths.volumes_trash()));
        Rc::new(Self { paths: paths.clone(), config, cgroups, trash, volumes_trash })
    }

    /// Whether containers can have CPUs for themselves here.
    pub(super) fn has_exclusive_cpus(&self) -> bool {
        self.config.resources.cpu_manager == CpuManager::Static && self.cgroups.has_cpuset()
    }

    /// Whether memory limits can be enforced here.
    pub fn memory_controller(&self) -> bool {
        self.cgroups.controllers().memory
    }
}
