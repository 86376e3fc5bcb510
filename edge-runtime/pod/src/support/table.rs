//! One table per type of the pod API, with its fields by support. The tests compare them with the types' own field
//! lists.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use super::Answer::{Refuse, Wait, Warn};
use super::Rule::{AtContainer, Built, Check, Elsewhere, In, No, Only};
use super::{Answer, EXTENDED, HUGE_PAGES, Table, UNSUPPORTED};

/// Event reason of a volume that cannot be had.
const MOUNT: Answer = Wait("FailedMount");

pub(super) const POD_SPEC: Table = &[
    (
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks
         hostAliases hostIPC hostNetwork hostPID hostname hostnameOverride imagePullSecrets nodeName nodeSelector
         overhead priority priorityClassName readinessGates restartPolicy serviceAccount serviceAccountName
         setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds",
        Built,
    ),
    ("containers", In(CONTAINER)),
    // Come after admission: each is looked at when it starts.
    ("ephemeralContainers", Built),
    // Where the kernel can: `launch/user_ns.rs`.
    ("hostUsers", Built),
    ("initContainers", In(INIT_CONTAINER)),
    ("os", In(POD_OS)),
    ("preemptionPolicy schedulerName schedulingGates schedulingGroup tolerations topologySpreadConstraints", Elsewhere),
    ("resourceClaims", Only(&[])),
    ("resources", In(RESOURCES)),
    // Whether there is such a handler, the node decides: `launch/runtimes.rs`.
    ("runtimeClassName", Built),
    ("securityContext", In(POD_SECURITY)),
    ("volumes", In(VOLUME)),
];

pub(super) const POD_OS: Table = &[("name", Check(|_, os| (os != "linux").then_some(Refuse("PodOSNotSupported"))))];

pub(super) const CONTAINER: Table = &[
    (
        "args command envFrom image imagePullPolicy name resizePolicy restartPolicy stdin stdinOnce
         terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir",
        Built,
    ),
    ("env", In(ENV)),
    ("lifecycle", In(LIFECYCLE)),
    ("livenessProbe readinessProbe startupProbe", In(PROBE)),
    ("ports", In(PORT)),
    ("resources", In(RESOURCES)),
    ("restartPolicyRules", Check(restart_rules)),
    ("securityContext", In(SECURITY)),
];
pub(super) const INIT_CONTAINER: Table = CONTAINER;

fn restart_rules(_: &PodSpec, rules: &Value) -> Option<Answer> {
    let plain = |rule: &Value| rule["action"] == "Restart";
    (!rules.as_array().is_some_and(|rules| rules.iter().all(plain))).then_some(Refuse(UNSUPPORTED))
}

/// Same as [`CONTAINER`], without the fields that an ephemeral container cannot have.
pub(super) const EPHEMERAL_CONTAINER: Table = &[
    (
        "args command envFrom image imagePullPolicy name stdin stdinOnce targetContainerName
         terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir",
        Built,
    ),
    ("env", In(ENV)),
    ("lifecycle resources", Only(&["{}"])),
    ("livenessProbe ports readinessProbe restartPolicy restartPolicyRules startupProbe", Only(&[])),
    ("resizePolicy", Elsewhere),
    ("securityContext", In(SECURITY)),
];

pub(super) const ENV: Table = &[("name value", Built), ("valueFrom", In(ENV_SOURCE))];

pub(super) const ENV_SOURCE: Table =
    &[("configMapKeyRef fieldRef resourceFieldRef secretKeyRef", Built), ("fileKeyRef", AtContainer)];

pub(super) const LIFECYCLE: Table = &[("postStart preStop", In(HOOK)), ("stopSignal", Built)];

/// `tcpSocket` has never been run by any kubelet: it is in the API for old objects only.
pub(super) const HOOK: Table = &[("exec httpGet sleep", Built), ("tcpSocket", Only(&[]))];

pub(super) const PROBE: Table = &[(
    "exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds successThreshold tcpSocket
         terminationGracePeriodSeconds timeoutSeconds",
    Built,
)];

pub(super) const PORT: Table = &[("containerPort hostIP hostPort name protocol", Built)];

pub(super) const RESOURCES: Table = &[("claims", Only(&[])), ("limits", In(LIMITS)), ("requests", In(REQUESTS))];

/// Rows by resource name. Whether the node has an extended resource is decided by `launch/devices`; it never has huge
/// pages: `admission.rs`.
const LIMITS: Table = &[("cpu memory ephemeral-storage", Built), (HUGE_PAGES, Built), (EXTENDED, Built)];
const REQUESTS: Table =
    &[("cpu memory", Built), ("ephemeral-storage", Elsewhere), (HUGE_PAGES, Built), (EXTENDED, Built)];

pub(super) const POD_SECURITY: Table = &[
    ("appArmorProfile seccompProfile", In(PROFILE)),
    (
        "fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser supplementalGroups
         supplementalGroupsPolicy",
        Built,
    ),
    ("seLinuxChangePolicy", Only(&["MountOption", "Recursive"])),
    ("seLinuxOptions", Check(selinux)),
    // Which ones, the node decides: `sysctls.rs`.
    ("sysctls", Built),
    ("windowsOptions", Only(&["{}"])),
];

/// Same as the API's validation.
fn proc_mount(spec: &PodSpec, kind: &Value) -> Option<Answer> {
    (kind != "Default" && spec.host_users != Some(false)).then_some(Refuse(UNSUPPORTED))
}

/// SELinux options have no effect on a kernel without SELinux, and kubelets ignore them there. A kernel with SELinux is
/// checked at admission (`launch::security::admit`).
fn selinux(_: &PodSpec, options: &Value) -> Option<Answer> {
    options.as_object().is_some_and(|fields| !fields.is_empty()).then_some(Warn)
}

pub(super) const SECURITY: Table = &[
    (
        "allowPrivilegeEscalation capabilities privileged readOnlyRootFilesystem runAsGroup runAsNonRoot
         runAsUser",
        Built,
    ),
    ("appArmorProfile seccompProfile", In(PROFILE)),
    ("procMount", Check(proc_mount)),
    ("seLinuxOptions", Check(selinux)),
    ("windowsOptions", Only(&["{}"])),
];

/// Seccomp and AppArmor alike. Whether the kernel has AppArmor, the node decides: `launch/security/apparmor.rs`.
pub(super) const PROFILE: Table = &[("localhostProfile type", Built)];

pub(super) const VOLUME: Table = &[
    (
        "awsElasticBlockStore azureDisk azureFile cephfs cinder fc flexVolume flocker
         gcePersistentDisk gitRepo glusterfs iscsi nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO
         storageos vsphereVolume",
        No(MOUNT),
    ),
    ("configMap downwardAPI hostPath image name persistentVolumeClaim secret", Built),
    // With `plugins.csi`, or bound to a volume of this node: `volume/plan.rs`.
    ("csi ephemeral", Built),
    ("emptyDir", Check(empty_dir)),
    ("projected", In(PROJECTED)),
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

pub(super) const VOLUME_PROJECTION: Table =
    &[("clusterTrustBundle podCertificate", No(MOUNT)), ("configMap downwardAPI secret serviceAccountToken", Built)];
