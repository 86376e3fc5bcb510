//! The capability sets of a container's first process. Pure.

use std::collections::HashSet;
use std::str::FromStr;

use crate::pod::spec::is_privileged;
use oci_spec::runtime::Capability;

use super::input::{Input, security};
use crate::launch::spec_error::SpecError;

/// What containerd and Docker give without being asked.
const DEFAULT: &str = "
    CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL
    AUDIT_WRITE";

/// All that the process can ever have.
pub(super) fn set(input: &Input) -> Result<HashSet<Capability>, SpecError> {
    let own: HashSet<Capability> = input.host.capabilities.iter().filter_map(|name| parse(name).ok()).collect();
    if is_privileged(input.container) { Ok(own) } else { asked_for(input, &own) }
}

/// `ALL` first, then the names: `drop: [ALL], add: [X]` leaves X. A name that is added although this node does not
/// have it stays in, so that the OCI runtime refuses it aloud.
fn asked_for(input: &Input, own: &HashSet<Capability>) -> Result<HashSet<Capability>, SpecError> {
    let wish = security(input.container).and_then(|s| s.capabilities.as_ref());
    let list = |names: Option<&Vec<String>>| names.cloned().unwrap_or_default();
    let (add, drop) = wish.map_or_else(Default::default, |w| (list(w.add.as_ref()), list(w.drop.as_ref())));
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    let given = DEFAULT.split_whitespace().filter_map(|name| parse(name).ok());
    let mut set: HashSet<Capability> = given.filter(|c| own.is_empty() || own.contains(c)).collect();
    if add.iter().any(is_all) {
        set.clone_from(own);
    }
    if drop.iter().any(is_all) {
        set.clear();
    }
    for name in add.iter().filter(|name| !is_all(name)) {
        set.insert(parse(name)?);
    }
    for name in drop.iter().filter(|name| !is_all(name)) {
        set.remove(&parse(name)?);
    }
    Ok(set)
}

/// Parses a name with or without `CAP_`, as Kubernetes does.
fn parse(name: &str) -> Result<Capability, SpecError> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
    Capability::from_str(short).map_err(|_| SpecError::UnknownCapability(name.to_owned()))
}
