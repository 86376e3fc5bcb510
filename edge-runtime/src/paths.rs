//! Paths below `--root`. Owns names of files and folders; does not create them.

use std::path::{Path, PathBuf};

use edge_protocol::names::shorten;
use sampan_monitor::files;

/// Longest name of a file, in bytes (Linux `NAME_MAX`).
const FILE_NAME: usize = 255;

/// Extension of the file beside an order's own that marks a user's confirmation.
pub const CONFIRMED: &str = "confirmed";

/// All paths of one node. Several nodes share a host by having different roots.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// `root` is `/` on a device and any absolute folder elsewhere.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What must survive a power cut: store, layers, volumes, certificates.
    pub fn state(&self) -> PathBuf {
        self.root.join("var/lib/edge-runtime")
    }

    /// Data that a reboot may delete: sockets, bundles, mounts, pinned namespaces. A tmpfs on a device.
    pub fn run(&self) -> PathBuf {
        self.root.join("run/edge-runtime")
    }

    /// Where the daemon answers how it is.
    pub fn health(&self) -> PathBuf {
        self.run().join("health.sock")
    }

    /// Events of this boot, newest last, one a line; those before them are in [`old_events`](Self::old_events).
    pub fn events(&self) -> PathBuf {
        self.run().join("events")
    }

    pub fn old_events(&self) -> PathBuf {
        self.run().join("events.old")
    }

    /// Where the daemon tells the DNS helper of the cluster.
    pub fn dns(&self) -> PathBuf {
        self.run().join("dns.sock")
    }

    /// Socket of the helper for devices.
    pub fn devices(&self) -> PathBuf {
        self.run().join("devices.sock")
    }

    /// What that helper notes of drivers of devices that run.
    pub fn device_mappers(&self) -> PathBuf {
        self.run().join("devices.sock.mappers")
    }

    /// What the helper for devices has counted, for `status`.
    pub fn device_counters(&self) -> PathBuf {
        self.run().join("devices.json")
    }

    /// Socket of the helper for requests of pods to the API.
    pub fn api_socket(&self) -> PathBuf {
        self.run().join("api.sock")
    }

    /// What that helper has counted, for `status`.
    pub fn api_counters(&self) -> PathBuf {
        self.run().join("api.json")
    }

    /// Socket of the helper for device plugins.
    pub fn plugins_socket(&self) -> PathBuf {
        self.run().join("device-plugins.sock")
    }

    /// Where that helper takes calls of controllers of CSI drivers.
    pub fn csi_socket(&self) -> PathBuf {
        self.plugins_socket().with_extension(sampan_plugins_control::CSI_SOCKET)
    }

    /// What that helper has counted, for `status`.
    pub fn plugins_counters(&self) -> PathBuf {
        self.run().join("device-plugins.json")
    }

    /// Devices of plugins that a pod's containers have.
    pub fn plugin_devices(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("plugin-devices.json")
    }

    /// Volumes of CSI drivers that a pod has.
    pub fn csi_volumes(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("csi-volumes.json")
    }

    /// Names of resources that plugins have had, one a line.
    pub fn plugin_resources(&self) -> PathBuf {
        self.state().join("plugin-resources")
    }

    /// Certificate, key and cache of the helper for requests of pods; only with `local-api`.
    pub fn api(&self) -> PathBuf {
        self.state().join("api")
    }

    /// Its certificate, and behind it that of the authority, which pods trust.
    pub fn api_certificate(&self) -> PathBuf {
        self.api().join("cert.pem")
    }

    /// Written by the administrator: `config.yaml`, static pods.
    pub fn config(&self) -> PathBuf {
        self.root.join("etc/edge-runtime")
    }

    pub fn config_file(&self) -> PathBuf {
        self.config().join("config.yaml")
    }

    /// Seccomp profiles that a pod may name as `Localhost` (the kubelet's `seccomp` folder below its root).
    pub fn seccomp(&self) -> PathBuf {
        self.state().join("seccomp")
    }

    /// Pod manifests that run without any cloud (the kubelet's `staticPodPath`).
    pub fn static_pods(&self) -> PathBuf {
        self.config().join("manifests")
    }

    pub fn store(&self) -> PathBuf {
        self.state().join("store.db")
    }

    /// CPUs that containers have for themselves, in the kubelet's form; only with `resources.cpu-manager`.
    pub fn cpus(&self) -> PathBuf {
        self.state().join("cpu_manager_state")
    }

    /// Node certificate, key and the cluster's CA, made by `join`.
    pub fn identity(&self) -> PathBuf {
        self.state().join("identity")
    }

    /// Unpacked layers, one folder per diff id, shared by all images.
    pub fn layers(&self) -> PathBuf {
        self.state().join("layers")
    }

    /// Partial downloads and half-made layers.
    pub fn incoming(&self) -> PathBuf {
        self.state().join("incoming")
    }

    /// Pods' folders on their way out, until a helper has deleted them.
    pub fn trash(&self) -> PathBuf {
        self.state().join("trash")
    }

    /// Where the launcher notes which process the daemon is.
    pub fn launcher(&self) -> PathBuf {
        self.root.join("run/edge-runtime.launcher")
    }

    /// Where the launcher counts starts of the daemon that soon crashed.
    pub fn starts(&self) -> PathBuf {
        self.launcher().join("starts.json")
    }

    /// Versions of the programs beside the package's: the launcher's.
    pub fn versions(&self) -> PathBuf {
        self.state().join("versions")
    }

    /// State of orders of fleet jobs.
    pub fn orders(&self) -> PathBuf {
        self.state().join("orders")
    }

    /// A file of the order with this uid. The uid comes from the API: only its letters, digits and dashes are used.
    pub fn order(&self, uid: &str, extension: &str) -> PathBuf {
        let name: String = uid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
        self.orders().join(format!("{name}.{extension}"))
    }

    /// Volumes that were provisioned here for PersistentVolumes: they outlive pods. The cluster calls this folder
    /// [`volume::PROVISIONED`](crate::volume::PROVISIONED) on every node.
    pub fn volumes(&self) -> PathBuf {
        self.state().join("volumes")
    }

    /// Those that are deleted, until a helper has freed their room: beside them, for they may have a disk of their own.
    pub fn volumes_trash(&self) -> PathBuf {
        self.volumes().join(".trash")
    }

    /// Volumes and writable layers of one pod: gone when the pod is gone.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// `hosts`, `hostname` and `resolv.conf` of one pod, which it can write.
    pub fn pod_files(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("etc")
    }

    /// Mark of the verb `release` for a pod whose first start is held.
    pub fn released(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("released")
    }

    /// One folder per pod.
    pub fn pods(&self) -> PathBuf {
        self.state().join("pods")
    }

    /// Room kept for the node itself.
    pub fn reserve(&self) -> PathBuf {
        Self::reserve_beside(&self.store())
    }

    /// Path of the reserve, for a caller that knows only the store.
    pub(crate) fn reserve_beside(store: &Path) -> PathBuf {
        store.with_file_name("reserve")
    }

    /// Exit records, written by the monitor before it tells anyone; see [`sampan_monitor::exit`].
    pub fn exits(&self) -> PathBuf {
        files::exits(&self.run())
    }

    /// Files of one container attempt on the disk: its writable layer and its termination log.
    pub fn attempt(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod(uid).join("containers").join(container).join(attempt.to_string())
    }

    /// The OCI bundle of one container attempt.
    pub fn bundle(&self, container_id: &str) -> PathBuf {
        files::bundles(&self.run()).join(container_id)
    }

    /// `--root` of the OCI runtime.
    pub fn runtime_root(&self) -> PathBuf {
        self.run().join("runc")
    }

    pub fn monitor_socket(&self) -> PathBuf {
        files::socket(&self.run())
    }

    /// Pinned namespaces (`net`, `ipc`, `uts`) of one pod.
    pub fn namespaces(&self, uid: &str) -> PathBuf {
        self.run().join("ns").join(uid)
    }

    /// One folder per pod.
    pub fn all_pod_logs(&self) -> PathBuf {
        self.root.join("var/log/pods")
    }

    /// Log files of one pod, in the layout kubectl's ecosystem expects: `NAMESPACE_NAME_UID`. A name that would make it too
    /// long for a file system is shortened; readers find the pod by its uid.
    pub fn pod_logs(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        let name = shorten(name, FILE_NAME.saturating_sub(namespace.len() + uid.len() + 2));
        self.all_pod_logs().join(format!("{namespace}_{name}_{uid}"))
    }

    /// Log file of one container attempt: `CONTAINER/N.log`.
    pub fn container_log(&self, namespace: &str, name: &str, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod_logs(namespace, name, uid).join(container).join(format!("{attempt}.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_folder_of_a_long_pod_name_fits() {
        let paths = Paths::new(Path::new("/"));
        let (namespace, uid) = ("n".repeat(63), "01234567-89ab-cdef-0123-456789abcdef");
        let folder = paths.pod_logs("default", "web-0", uid);
        assert_eq!(folder, Path::new("/var/log/pods").join(format!("default_web-0_{uid}")));
        for name in ["x".repeat(153), "x".repeat(154), "x".repeat(253)] {
            let folder = paths.pod_logs(&namespace, &name, uid);
            let file = folder.file_name().and_then(|file| file.to_str()).expect("a name");
            assert!(file.len() <= FILE_NAME && file.ends_with(&format!("_{uid}")), "{file}");
        }
    }
}
