//! One table per type of the pod API, one row per field. The tests hold them against the types' own field lists.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use super::Answer::{Refuse, Wait, Warn};
use super::Rule::{AtContainer, Built, Check, Elsewhere, In, No, Only};
use super::{Answer, EXTENDED, HUGE_PAGES, Table, UNSUPPORTED};

/// Event reason of a volume that cannot be had.
const MOUNT: Answer = Wait("FailedMount");

pub(super) const POD_SPEC: Table = &[
    ("activeDeadlineSeconds", Built),
    ("affinity", Built),
    ("automountServiceAccountToken", Built),
    ("containers", In(CONTAINER)),
    ("dnsConfig", Built),
    ("dnsPolicy", Built),
    ("enableServiceLinks", Built),
    // Come after admission: each is looked at when it starts.
    ("ephemeralContainers", Built),
    ("hostAliases", Built),
    ("hostIPC", Built),
    ("hostNetwork", Built),
    ("hostPID", Built),
    // Where the kernel can: `launch/user_ns.rs`.
    ("hostUsers", Built),
    ("hostname", Built),
    ("hostnameOverride", Built),
    ("imagePullSecrets", Built),
    ("initContainers", In(INIT_CONTAINER)),
    ("nodeName", Built),
    ("nodeSelector", Built),
    ("os", In(POD_OS)),
    ("overhead", Built),
    ("preemptionPolicy", Elsewhere),
    ("priority", Built),
    ("priorityClassName", Built),
    ("readinessGates", Built),
    ("resourceClaims", Only(&[])),
    ("resources", In(RESOURCES)),
    ("restartPolicy", Built),
    // Whether there is such a handler, the node decides: `launch/runtimes.rs`.
    ("runtimeClassName", Built),
    ("schedulerName", Elsewhere),
    ("schedulingGates", Elsewhere),
    ("schedulingGroup", Elsewhere),
    ("securityContext", In(POD_SECURITY)),
    ("serviceAccount", Built),
    ("serviceAccountName", Built),
    ("setHostnameAsFQDN", Built),
    ("shareProcessNamespace", Built),
    ("subdomain", Built),
    ("terminationGracePeriodSeconds", Built),
    ("tolerations", Elsewhere),
    ("topologySpreadConstraints", Elsewhere),
    ("volumes", In(VOLUME)),
];

pub(super) const POD_OS: Table = &[("name", Check(|_, os| (os != "linux").then_some(Refuse("PodOSNotSupported"))))];

pub(super) const CONTAINER: Table = &[
    ("args", Built),
    ("command", Built),
    ("env", In(ENV)),
    ("envFrom", Built),
    ("image", Built),
    ("imagePullPolicy", Built),
    ("lifecycle", In(LIFECYCLE)),
    ("livenessProbe", In(PROBE)),
    ("name", Built),
    ("ports", In(PORT)),
    ("readinessProbe", In(PROBE)),
    ("resizePolicy", Built),
    ("resources", In(RESOURCES)),
    ("restartPolicy", Built),
    ("restartPolicyRules", Check(restart_rules)),
    ("securityContext", In(SECURITY)),
    ("startupProbe", In(PROBE)),
    ("stdin", Built),
    ("stdinOnce", Built),
    ("terminationMessagePath", Built),
    ("terminationMessagePolicy", Built),
    ("tty", Built),
    ("volumeDevices", No(Wait("FailedMapVolume"))),
    ("volumeMounts", Built),
    ("workingDir", Built),
];
pub(super) const INIT_CONTAINER: Table = CONTAINER;

fn restart_rules(_: &PodSpec, rules: &Value) -> Option<Answer> {
    let plain = |rule: &Value| rule["action"] == "Restart";
    (!rules.as_array().is_some_and(|rules| rules.iter().all(plain))).then_some(Refuse(UNSUPPORTED))
}

/// As [`CONTAINER`], without what a container that came later cannot have.
pub(super) const EPHEMERAL_CONTAINER: Table = &[
    ("args", Built),
    ("command", Built),
    ("env", In(ENV)),
    ("envFrom", Built),
    ("image", Built),
    ("imagePullPolicy", Built),
    ("lifecycle", Only(&["{}"])),
    ("livenessProbe", Only(&[])),
    ("name", Built),
    ("ports", Only(&[])),
    ("readinessProbe", Only(&[])),
    ("resizePolicy", Elsewhere),
    ("resources", Only(&["{}"])),
    ("restartPolicy", Only(&[])),
    ("restartPolicyRules", Only(&[])),
    ("securityContext", In(SECURITY)),
    ("startupProbe", Only(&[])),
    ("stdin", Built),
    ("stdinOnce", Built),
    ("targetContainerName", Built),
    ("terminationMessagePath", Built),
    ("terminationMessagePolicy", Built),
    ("tty", Built),
    ("volumeDevices", No(Wait("FailedMapVolume"))),
    ("volumeMounts", Built),
    ("workingDir", Built),
];

pub(super) const ENV: Table = &[("name", Built), ("value", Built), ("valueFrom", In(ENV_SOURCE))];

pub(super) const ENV_SOURCE: Table = &[
    ("configMapKeyRef", Built),
    ("fieldRef", Built),
    ("fileKeyRef", AtContainer),
    ("resourceFieldRef", Built),
    ("secretKeyRef", Built),
];

pub(super) const LIFECYCLE: Table = &[("postStart", In(HOOK)), ("preStop", In(HOOK)), ("stopSignal", Built)];

/// `tcpSocket` has never been run by any kubelet: it is in the API for old objects only.
pub(super) const HOOK: Table = &[("exec", Built), ("httpGet", Built), ("sleep", Built), ("tcpSocket", Only(&[]))];

pub(super) const PROBE: Table = &[
    ("exec", Built),
    ("failureThreshold", Built),
    ("grpc", Built),
    ("httpGet", Built),
    ("initialDelaySeconds", Built),
    ("periodSeconds", Built),
    ("successThreshold", Built),
    ("tcpSocket", Built),
    ("terminationGracePeriodSeconds", Built),
    ("timeoutSeconds", Built),
];

pub(super) const PORT: Table =
    &[("containerPort", Built), ("hostIP", Built), ("hostPort", Built), ("name", Built), ("protocol", Built)];

pub(super) const RESOURCES: Table = &[("claims", Only(&[])), ("limits", In(LIMITS)), ("requests", In(REQUESTS))];

/// Rows by resource name. Whether the node has an extended resource is decided by `launch/devices`; it never has huge
/// pages: `pod/admission.rs`.
const LIMITS: Table =
    &[("cpu", Built), ("memory", Built), ("ephemeral-storage", Built), (HUGE_PAGES, Built), (EXTENDED, Built)];
const REQUESTS: Table =
    &[("cpu", Built), ("memory", Built), ("ephemeral-storage", Elsewhere), (HUGE_PAGES, Built), (EXTENDED, Built)];

pub(super) const POD_SECURITY: Table = &[
    ("appArmorProfile", In(PROFILE)),
    ("fsGroup", Built),
    ("fsGroupChangePolicy", Built),
    ("runAsGroup", Built),
    ("runAsNonRoot", Built),
    ("runAsUser", Built),
    ("seLinuxChangePolicy", Only(&["MountOption", "Recursive"])),
    ("seLinuxOptions", Check(selinux)),
    ("seccompProfile", In(PROFILE)),
    ("supplementalGroups", Built),
    ("supplementalGroupsPolicy", Built),
    // Which ones, the node decides: `pod/sysctls.rs`.
    ("sysctls", Built),
    ("windowsOptions", Only(&["{}"])),
];

/// Labels mean nothing where the kernel has no SELinux, and no kubelet minds them there; one that has it is
/// asked when the pod is admitted (`launch::security::admit`).
/// As the API's validation.
fn proc_mount(spec: &PodSpec, kind: &Value) -> Option<Answer> {
    (kind != "Default" && spec.host_users != Some(false)).then_some(Refuse(UNSUPPORTED))
}

fn selinux(_: &PodSpec, options: &Value) -> Option<Answer> {
    options.as_object().is_some_and(|fields| !fields.is_empty()).then_some(Warn)
}

pub(super) const SECURITY: Table = &[
    ("allowPrivilegeEscalation", Built),
    ("appArmorProfile", In(PROFILE)),
    ("capabilities", Built),
    ("privileged", Built),
    ("procMount", Check(proc_mount)),
    ("readOnlyRootFilesystem", Built),
    ("runAsGroup", Built),
    ("runAsNonRoot", Built),
    ("runAsUser", Built),
    ("seLinuxOptions", Check(selinux)),
    ("seccompProfile", In(PROFILE)),
    ("windowsOptions", Only(&["{}"])),
];

/// Seccomp and AppArmor alike. Whether the kernel has AppArmor, the node decides: `launch/security/apparmor.rs`.
pub(super) const PROFILE: Table = &[("localhostProfile", Built), ("type", Built)];

pub(super) const VOLUME: Table = &[
    ("awsElasticBlockStore", No(MOUNT)),
    ("azureDisk", No(MOUNT)),
    ("azureFile", No(MOUNT)),
    ("cephfs", No(MOUNT)),
    ("cinder", No(MOUNT)),
    ("configMap", Built),
    ("csi", No(MOUNT)),
    ("downwardAPI", Built),
    ("emptyDir", Check(empty_dir)),
    ("ephemeral", No(MOUNT)),
    ("fc", No(MOUNT)),
    ("flexVolume", No(MOUNT)),
    ("flocker", No(MOUNT)),
    ("gcePersistentDisk", No(MOUNT)),
    ("gitRepo", No(MOUNT)),
    ("glusterfs", No(MOUNT)),
    ("hostPath", Built),
    ("image", Built),
    ("iscsi", No(MOUNT)),
    ("name", Built),
    ("nfs", No(MOUNT)),
    ("persistentVolumeClaim", Built),
    ("photonPersistentDisk", No(MOUNT)),
    ("portworxVolume", No(MOUNT)),
    ("projected", In(PROJECTED)),
    ("quobyte", No(MOUNT)),
    ("rbd", No(MOUNT)),
    ("scaleIO", No(MOUNT)),
    ("secret", Built),
    ("storageos", No(MOUNT)),
    ("vsphereVolume", No(MOUNT)),
];

/// The kernel bounds a memory volume; one on disk is measured, and its pod evicted.
fn empty_dir(_: &PodSpec, value: &Value) -> Option<Answer> {
    let medium = value.get("medium").and_then(Value::as_str).unwrap_or_default();
    match medium {
        "Memory" | "" => None,
        _ => Some(MOUNT),
    }
}

pub(super) const PROJECTED: Table = &[("defaultMode", Built), ("sources", In(VOLUME_PROJECTION))];

pub(super) const VOLUME_PROJECTION: Table = &[
    ("clusterTrustBundle", No(MOUNT)),
    ("configMap", Built),
    ("downwardAPI", Built),
    ("podCertificate", No(MOUNT)),
    ("secret", Built),
    ("serviceAccountToken", Built),
];
