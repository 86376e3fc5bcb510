//! Where the cgroups of the node, its classes, pods and containers lie, for either driver, and how they are called
//! there. The one place that makes these paths; pure.
//!
//! | | cgroupfs | systemd |
//! |---|---|---|
//! | parent | `/sampan` | `/sampan.slice` |
//! | burstable pod | `.../burstable/podUID` | `.../sampan-burstable.slice/sampan-burstable-podUID.slice` |
//! | container | `.../ID` | `.../sampan-ID.scope` |
//!
//! Names of slices are those of the kubelet (K8s pkg/kubelet/cm/cgroup_manager_linux.go, `ToSystemd`): a `-` separates
//! the levels of a slice, so one inside a name is written `_`.

use super::types::PodCgroupClass;

/// What makes cgroups and writes their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// This node itself.
    #[default]
    Cgroupfs,
    /// systemd, asked by this node and by the OCI runtime.
    Systemd,
}

/// Begins the names of containers' scopes.
const SCOPE: &str = "sampan";
const SLICE_END: &str = ".slice";

#[derive(Clone, Debug)]
pub(super) struct Names {
    driver: Driver,
    /// Absolute, as configured.
    parent: String,
}

impl Names {
    pub(super) fn new(driver: Driver, parent: &str) -> Self {
        Self { driver, parent: parent.to_owned() }
    }

    /// Path of the cgroup of all pods.
    pub(super) fn parent(&self) -> String {
        self.path(&[])
    }

    /// Path of the cgroup of a class; guaranteed pods are in the parent.
    pub(super) fn class(&self, class: PodCgroupClass) -> String {
        self.path(folder(class).as_slice())
    }

    pub(super) fn pod(&self, class: PodCgroupClass, uid: &str) -> String {
        let pod = format!("pod{uid}");
        match folder(class) {
            Some(folder) => self.path(&[folder, &pod]),
            None => self.path(&[&pod]),
        }
    }

    pub(super) fn container(&self, class: PodCgroupClass, uid: &str, id: &str) -> String {
        let pod = self.pod(class, uid);
        match self.driver {
            Driver::Cgroupfs => format!("{pod}/{id}"),
            Driver::Systemd => format!("{pod}/{SCOPE}-{id}.scope"),
        }
    }

    /// `linux.cgroupsPath` of a container: for systemd slice, prefix and name of the scope that the runtime makes.
    pub(super) fn for_runtime(&self, class: PodCgroupClass, uid: &str, id: &str) -> String {
        match self.driver {
            Driver::Cgroupfs => self.container(class, uid, id),
            Driver::Systemd => format!("{}:{SCOPE}:{id}", unit(&self.pod(class, uid))),
        }
    }

    /// The pod whose cgroup has this name, the last part of its path.
    pub(super) fn uid_of(&self, name: &str) -> Option<String> {
        match self.driver {
            Driver::Cgroupfs => name.strip_prefix("pod").map(str::to_owned),
            Driver::Systemd => {
                let (_, last) = name.strip_suffix(SLICE_END)?.rsplit_once('-')?;
                last.strip_prefix("pod").map(|uid| uid.replace('_', "-"))
            }
        }
    }

    fn path(&self, below: &[&str]) -> String {
        match self.driver {
            Driver::Cgroupfs => {
                std::iter::once(self.parent.as_str()).chain(below.iter().copied()).collect::<Vec<_>>().join("/")
            }
            Driver::Systemd => {
                slices(self.parent.split('/').filter(|part| !part.is_empty()).chain(below.iter().copied()))
            }
        }
    }
}

/// The unit at a path.
pub(super) fn unit(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, unit)| unit)
}

fn folder(class: PodCgroupClass) -> Option<&'static str> {
    match class {
        PodCgroupClass::Guaranteed => None,
        PodCgroupClass::Burstable => Some("burstable"),
        PodCgroupClass::BestEffort => Some("besteffort"),
    }
}

/// `/a.slice/a-b.slice` for `a` and `b`.
fn slices<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let (mut path, mut name) = (String::new(), String::new());
    for part in parts {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.replace('-', "_"));
        path.push('/');
        path.push_str(&name);
        path.push_str(SLICE_END);
    }
    path
}

/// Whether slices can be named after `parent`, and if not why. Characters of systemd.unit(5), less those of its own
/// escapes.
pub fn check_slice_parent(parent: &str) -> Result<(), String> {
    let wrong = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/'));
    match parent.chars().find(wrong) {
        Some(c) => Err(format!("'{parent}' cannot name a slice of systemd: it has the character {c:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::PodCgroupClass::{BestEffort, Burstable, Guaranteed};
    use super::*;

    const UID: &str = "0a1b-22";

    #[test]
    fn folders() {
        let names = Names::new(Driver::Cgroupfs, "/sampan-x/y");
        assert_eq!(names.parent(), "/sampan-x/y");
        assert_eq!(
            (names.class(Guaranteed), names.class(BestEffort)),
            (names.parent(), "/sampan-x/y/besteffort".into())
        );
        assert_eq!(names.pod(Guaranteed, UID), "/sampan-x/y/pod0a1b-22");
        assert_eq!(names.container(Burstable, UID, "c"), "/sampan-x/y/burstable/pod0a1b-22/c");
        assert_eq!(names.for_runtime(Burstable, UID, "c"), names.container(Burstable, UID, "c"));
        assert_eq!(names.uid_of("pod0a1b-22").as_deref(), Some(UID));
        assert_eq!(names.uid_of("burstable"), None);
    }

    #[test]
    fn slices_and_scopes() {
        let names = Names::new(Driver::Systemd, "/sampan");
        assert_eq!(names.parent(), "/sampan.slice");
        assert_eq!(names.class(Burstable), "/sampan.slice/sampan-burstable.slice");
        assert_eq!(names.pod(Guaranteed, UID), "/sampan.slice/sampan-pod0a1b_22.slice");
        let pod = "/sampan.slice/sampan-besteffort.slice/sampan-besteffort-pod0a1b_22.slice";
        assert_eq!(names.pod(BestEffort, UID), pod);
        assert_eq!(names.container(BestEffort, UID, "c"), format!("{pod}/sampan-c.scope"));
        assert_eq!(names.for_runtime(BestEffort, UID, "c"), "sampan-besteffort-pod0a1b_22.slice:sampan:c");
    }

    #[test]
    fn a_slices_levels_are_parted_by_dashes_alone() {
        let names = Names::new(Driver::Systemd, "/sampan-1f/b");
        assert_eq!(names.parent(), "/sampan_1f.slice/sampan_1f-b.slice");
        assert_eq!(unit(&names.class(Burstable)), "sampan_1f-b-burstable.slice");
    }

    #[test]
    fn pods_are_known_by_their_slices() {
        let names = Names::new(Driver::Systemd, "/sampan");
        for class in [Guaranteed, Burstable, BestEffort] {
            assert_eq!(names.uid_of(unit(&names.pod(class, UID))).as_deref(), Some(UID));
        }
        for other in ["sampan-burstable.slice", "sampan.slice", "sampan-c.scope", "podx"] {
            assert_eq!(names.uid_of(other), None, "{other}");
        }
    }

    #[test]
    fn malformed_parents_are_reported() {
        assert_eq!(check_slice_parent("/sampan-a/b_c.d:e"), Ok(()));
        assert!(check_slice_parent("/a b").unwrap_err().contains("' '"));
        assert!(check_slice_parent("/a@b").is_err());
    }
}
