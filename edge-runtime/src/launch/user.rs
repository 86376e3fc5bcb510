//! The user of a container: from its security context and the image's USER, with names looked up in the image's own
//! files.
//!
//! Rules of the kubelet (pkg/kubelet/kuberuntime/security_context_others.go) and, for the image's `USER`, of containerd
//! (pkg/oci, `WithUser`: digits are a number). The image is untrusted: its files are opened beneath its root and read
//! up to a limit.

mod files;
#[cfg(test)]
mod tests;

use crate::pod::spec::pod_ref;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use thiserror::Error;

use files::{Group, Passwd};

/// Numeric identity of the container's first process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Supplemental groups, in rising order, without duplicates.
    pub groups: Vec<u32>,
}

impl User {
    /// The primary group, then the others: a process that drops its primary group must not escape a file's
    /// "group: no".
    pub fn all_groups(&self) -> Vec<u32> {
        let others = self.groups.iter().copied().filter(|gid| *gid != self.gid);
        std::iter::once(self.gid).chain(others).collect()
    }
}

/// Each is a `CreateContainerConfigError` to the pod; texts as the kubelet's where it has them.
#[derive(Debug, Error)]
pub enum UserError {
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    ImageRunsAsRoot { pod: String, container: String },
    #[error("container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})")]
    RunAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    CannotVerify { user: String, pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive (pod: \"{pod}\", container: {container})"
    )]
    InvalidImageUser { uid: i64, pod: String, container: String },
    #[error("unable to find user {0}: no matching entries in passwd file")]
    UnknownUser(String),
    #[error("unable to find group {0}: no matching entries in group file")]
    UnknownGroup(String),
    #[error("{name} {value} is out of range")]
    OutOfRange { name: &'static str, value: i64 },
    #[error("reading {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
}

/// User and groups of pod and container; the container has priority.
#[derive(Debug, Default)]
struct Wish {
    user: Option<u32>,
    group: Option<u32>,
    non_root: bool,
    /// `supplementalGroups` and `fsGroup`.
    groups: BTreeSet<u32>,
    /// `supplementalGroupsPolicy: Strict`: the image's group file adds nothing.
    strict: bool,
}

/// The identity of `container`, from the pod's and its own security context, else from the image's `USER`.
/// `rootfs` is the mounted root; its `/etc/passwd` and `/etc/group` are read without leaving it.
///
/// # Errors
/// The policy forbids it, or a name is not known to the image.
pub fn resolve(pod: &Pod, container: &Container, image_user: &str, rootfs: &Path) -> Result<User, UserError> {
    let wish = wish(pod, container)?;
    let (image_name, image_group) = match image_user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|g| !g.is_empty())),
        None => (image_user, None),
    };
    if wish.non_root {
        check_non_root(&wish, image_name, pod, container)?;
    }
    let passwd = files::passwd(rootfs)?;
    let group_file = files::group(rootfs)?;

    let (uid, entry) = match wish.user {
        Some(uid) => (uid, passwd.iter().find(|p| p.uid == uid)),
        None => image_uid(image_name, &passwd)?,
    };
    // Checks the final uid again: the policy holds whatever the image's files say.
    if wish.non_root && uid == 0 {
        return Err(UserError::ImageRunsAsRoot { pod: pod_ref(pod), container: container.name.clone() });
    }
    // The image's group goes with the image's user only.
    let from_image = image_group.filter(|_| wish.user.is_none());
    let gid = match (wish.group, from_image) {
        (Some(gid), _) => gid,
        (None, Some(group)) => image_gid(group, &group_file)?,
        (None, None) => entry.map_or(0, |p| p.gid),
    };
    let mut groups = wish.groups;
    if !wish.strict
        && let Some(entry) = entry
    {
        groups.extend(group_file.iter().filter(|g| g.members.contains(&entry.name)).map(|g| g.gid));
    }
    groups.remove(&gid);
    Ok(User { uid, gid, groups: groups.into_iter().collect() })
}

/// A number is never looked up as a name: the image would decide then which user a number is, after the policy was
/// checked against the number.
fn image_uid<'a>(name: &str, passwd: &'a [Passwd]) -> Result<(u32, Option<&'a Passwd>), UserError> {
    match name.parse::<i64>() {
        Ok(uid) => {
            let uid = number("user of the image", uid)?;
            Ok((uid, passwd.iter().find(|p| p.uid == uid)))
        }
        Err(_) if name.is_empty() => Ok((0, passwd.iter().find(|p| p.uid == 0))),
        Err(_) => match passwd.iter().find(|p| p.name == name) {
            Some(entry) => Ok((entry.uid, Some(entry))),
            None => Err(UserError::UnknownUser(name.to_owned())),
        },
    }
}

fn image_gid(name: &str, groups: &[Group]) -> Result<u32, UserError> {
    if let Ok(gid) = name.parse() {
        return number("group of the image", gid);
    }
    let group = groups.iter().find(|g| g.name == name);
    group.map(|group| group.gid).ok_or_else(|| UserError::UnknownGroup(name.to_owned()))
}

fn wish(pod: &Pod, container: &Container) -> Result<Wish, UserError> {
    let own = container.security_context.as_ref();
    let pods = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let user = own.and_then(|s| s.run_as_user).or(pods.and_then(|s| s.run_as_user));
    let group = own.and_then(|s| s.run_as_group).or(pods.and_then(|s| s.run_as_group));
    let non_root = own.and_then(|s| s.run_as_non_root).or(pods.and_then(|s| s.run_as_non_root));
    let mut groups = BTreeSet::new();
    for gid in pods.and_then(|s| s.supplemental_groups.as_ref()).into_iter().flatten() {
        groups.insert(number("supplementalGroups", *gid)?);
    }
    if let Some(gid) = pods.and_then(|s| s.fs_group) {
        groups.insert(number("fsGroup", gid)?);
    }
    let policy = pods.and_then(|s| s.supplemental_groups_policy.as_deref());
    Ok(Wish {
        user: user.map(|v| number("runAsUser", v)).transpose()?,
        group: group.map(|v| number("runAsGroup", v)).transpose()?,
        non_root: non_root.unwrap_or(false),
        groups,
        strict: policy == Some("Strict"),
    })
}

fn number(name: &'static str, value: i64) -> Result<u32, UserError> {
    // The kernel's -1 is not an id; Kubernetes allows what fits into 31 bits.
    i32::try_from(value).ok().and_then(|v| u32::try_from(v).ok()).ok_or(UserError::OutOfRange { name, value })
}

fn check_non_root(wish: &Wish, image_name: &str, pod: &Pod, container: &Container) -> Result<(), UserError> {
    let (pod, container) = (pod_ref(pod), container.name.clone());
    match (wish.user, image_name.parse::<i64>()) {
        (Some(0), _) => Err(UserError::RunAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, Ok(0)) => Err(UserError::ImageRunsAsRoot { pod, container }),
        (None, Ok(uid)) if i32::try_from(uid).is_err() || uid < 0 => {
            Err(UserError::InvalidImageUser { uid, pod, container })
        }
        (None, Ok(_)) => Ok(()),
        (None, Err(_)) if image_name.is_empty() => Err(UserError::ImageRunsAsRoot { pod, container }),
        (None, Err(_)) => Err(UserError::CannotVerify { user: image_name.to_owned(), pod, container }),
    }
}
