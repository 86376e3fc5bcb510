//! The OCI runtimes of this node by handler name (`runtimeClassName`): which program starts a pod's containers, and
//! which one started a given container. [`said`] parses their version output.

mod said;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::base::Objects;
use crate::config::Config;
use crate::config::devices::Handler;
use crate::monitor::exec::Runtime;
use crate::paths::Paths;
use crate::sys::cgroup::Driver;
pub use said::Said;

/// In a bundle, and in a pod's folder: name of the handler that runs it; absent for the node's default one.
const MARK: &str = "handler";

/// In a bundle: the folder in which its processes begin; absent for `/`.
const CWD: &str = "cwd";

/// Has an OCI runtime ask systemd for a container's cgroup. All that take runc's arguments know it.
const SYSTEMD: &str = "--systemd-cgroup";

/// Kind of the objects that give handlers their names.
const CLASS: &str = "RuntimeClass";

/// Begins the names of the state folders of other handlers, beside the default one's.
const STATE: &str = "runtime-";

/// Handlers by name; the default one has the empty name, as in the Node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtimes {
    default: Handler,
    handlers: BTreeMap<String, Handler>,
}

/// A pod asks for a handler that is not here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no runtime for {handler:?} is configured on this node (config key runtimes; it has: {known})")]
pub struct NoRuntime {
    handler: String,
    known: String,
}

impl Runtimes {
    /// Those of the configuration, for its cgroup driver.
    pub fn new(config: &Config) -> Self {
        let mut runtimes = Self::of(config.runtime.command(), &config.runtimes);
        if config.cgroup_driver == Driver::Systemd {
            for handler in runtimes.handlers.values_mut().chain([&mut runtimes.default]) {
                handler.args.push(SYSTEMD.to_owned());
            }
        }
        runtimes
    }

    /// `default` can be named as a class too, by the name of its file.
    fn of(default: &Path, handlers: &BTreeMap<String, Handler>) -> Self {
        let default = Handler { program: default.to_path_buf(), args: Vec::new() };
        Self { default, handlers: handlers.clone() }
    }

    /// Handler of `pod`: empty for the default one. A class says its handler in its object; without one, as for a
    /// static pod, its name is that of the handler.
    ///
    /// # Errors
    /// The handler does not exist: the waiting pod shows the message.
    pub fn handler_of(&self, pod: &Pod, objects: Objects<'_>) -> Result<String, NoRuntime> {
        let class = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).unwrap_or_default();
        if class.is_empty() {
            return Ok(String::new());
        }
        let object = objects(CLASS, "", class);
        let handler = object.as_ref().and_then(|object| object["handler"].as_str()).unwrap_or(class);
        if self.handlers.contains_key(handler) {
            return Ok(handler.to_owned());
        }
        if self.default.program.file_name().is_some_and(|name| name == handler) {
            return Ok(String::new());
        }
        let known: Vec<&str> = self.handlers.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(NoRuntime { handler: handler.to_owned(), known })
    }

    /// Program and state folder of a handler.
    pub fn of_handler(&self, handler: &str, paths: &Paths) -> Runtime {
        let Handler { program, args } =
            self.handlers.get(handler).filter(|_| !handler.is_empty()).unwrap_or(&self.default).clone();
        let root = paths.runtime_root();
        // Each kind of runtime has its own form of state.
        let root = if handler.is_empty() { root } else { root.with_file_name(format!("{STATE}{handler}")) };
        Runtime { program, root, args, cwd: None, bundle: PathBuf::new() }
    }

    /// Whether `path` in the run folder is the state of a handler.
    pub fn is_state(path: &Path) -> bool {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(STATE))
    }

    /// Returns the runtime of container `id`.
    pub fn of_container(&self, id: &str, paths: &Paths) -> Runtime {
        let bundle = paths.bundle(id);
        let runtime = self.of_handler(&Self::marked(&bundle).unwrap_or_default(), paths);
        Runtime { cwd: std::fs::read_to_string(bundle.join(CWD)).ok(), bundle, ..runtime }
    }

    /// Remembers in the bundle who runs it, and the folder in which its processes begin.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn mark(bundle: &Path, handler: &str, cwd: &str) -> std::io::Result<()> {
        if cwd != "/" {
            std::fs::write(bundle.join(CWD), cwd)?;
        }
        if handler.is_empty() { Ok(()) } else { Self::remember(bundle, handler) }
    }

    /// Same as [`Runtimes::mark`], also for the default one: a pod with a class keeps the handler that the class had at
    /// first.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remember(folder: &Path, handler: &str) -> std::io::Result<()> {
        std::fs::write(folder.join(MARK), handler)
    }

    fn marked(folder: &Path) -> Option<String> {
        std::fs::read_to_string(folder.join(MARK)).ok()
    }

    /// The handler of a pod with this folder. Its class may have gone since it was prepared.
    ///
    /// # Errors
    /// Same as [`Runtimes::handler_of`], for a pod prepared by a build that did not store it.
    pub fn of_prepared(&self, folder: &Path, pod: &Pod, objects: Objects<'_>) -> Result<String, NoRuntime> {
        Self::marked(folder).map_or_else(|| self.handler_of(pod, objects), Ok)
    }

    /// Runs every program and returns its facts, the default one first. Limited in time: call it once.
    pub fn ask_all(&self) -> Vec<(String, Said)> {
        let default = std::iter::once((String::new(), &self.default));
        let named = self.handlers.iter().map(|(name, handler)| (name.clone(), handler));
        default.chain(named).map(|(name, handler)| (name, Said::by(&handler.program))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn handlers() {
        let others = BTreeMap::from([("crun".to_owned(), Handler { program: "/opt/crun".into(), args: Vec::new() })]);
        let runtimes = Runtimes::of(Path::new("/usr/bin/runc"), &others);
        let of = |class: Value| {
            let pod: Pod =
                serde_json::from_value(json!({"spec": {"containers": [], "runtimeClassName": class}})).unwrap();
            let quick = |kind: &str, namespace: &str, name: &str| {
                let found = (kind, namespace, name) == ("RuntimeClass", "", "quick");
                found.then(|| json!({"handler": "crun"}))
            };
            runtimes.handler_of(&pod, &quick).map_err(|error| error.to_string())
        };
        assert_eq!(of(Value::Null), Ok(String::new()));
        assert_eq!(of(json!("runc")), Ok(String::new()));
        assert_eq!(of(json!("crun")), Ok("crun".to_owned()));
        assert_eq!(of(json!("quick")), Ok("crun".to_owned()));
        assert_eq!(
            of(json!("kata")),
            Err("no runtime for \"kata\" is configured on this node (config key runtimes; it has: crun)".to_owned())
        );
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        std::fs::create_dir_all(paths.bundle("a")).unwrap();
        assert_eq!(runtimes.of_container("a", &paths).program, Path::new("/usr/bin/runc"));
        Runtimes::mark(&paths.bundle("a"), "crun", "/srv").unwrap();
        let kept = runtimes.of_container("a", &paths);
        assert_eq!(kept.cwd.as_deref(), Some("/srv"));
        assert_eq!(
            (kept.program.as_path(), kept.root.file_name().unwrap().to_str()),
            (Path::new("/opt/crun"), Some("runtime-crun"))
        );
    }
}
