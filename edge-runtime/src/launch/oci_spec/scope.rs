//! Annotations for the scope that the OCI runtime has systemd make: the container's values as properties of its unit.
//! Pure.
//!
//! Runtimes differ in which values they hand to systemd and which they write to files behind its back, where its next
//! `daemon-reload` undoes them. Those of a property's own annotation all hand over (`org.systemd.property.NAME`, the
//! value as GVariant text).

use std::collections::HashMap;

use super::input::Input;
use super::limits::values;
use crate::launch::spec_error::SpecError;
use crate::sys::cgroup::{self, CgroupValues};
use crate::sys::systemd::Value;

const PROPERTY: &str = "org.systemd.property.";
/// Annotation of crun: a cgroup below the scope for the container itself. Values and counters are those of the scope.
const SUBGROUP: &str = "run.oci.systemd.subgroup";

pub(super) fn annotations(input: &Input) -> Result<HashMap<String, String>, SpecError> {
    let values = values(input)?;
    let unsigned = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    // Overrides systemd's default, which is a part of the machine's maximum.
    let properties = cgroup::properties(&CgroupValues { pids_limit: Some(u64::MAX), ..values });
    let mut all: HashMap<String, String> = HashMap::new();
    for property in properties {
        if let Value::Number(number) = property.value {
            all.insert(format!("{PROPERTY}{}", property.name), format!("uint64 {number}"));
        }
    }
    let swap = input.swap_limit.filter(|_| input.host.swap_accounting);
    if let Some(swap) = unsigned(swap) {
        all.insert(format!("{PROPERTY}MemorySwapMax"), format!("uint64 {swap}"));
    }
    // A scope whose container was killed for memory has failed: systemd must not keep it for inspection.
    all.insert(format!("{PROPERTY}CollectMode"), "'inactive-or-failed'".to_owned());
    all.insert(SUBGROUP.to_owned(), String::new());
    Ok(all)
}
