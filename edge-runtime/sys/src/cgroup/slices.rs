//! The systemd driver: asks systemd to set what cgroupfs writes to files. systemd owns the values of its units and
//! writes them again whenever it reloads its configuration (`systemctl daemon-reload`), so none of them is written to a
//! file here.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use super::names::{Names, unit};
use super::types::{CgroupError, CgroupValues, CgroupVersion, PodCgroupClass};
use super::{Cgroups, tree, units};
use crate::systemd::{self, BusError, Pending, Property, Units, Value, Work};
use crate::vec_map::VecMap;

/// Values by unit of a pod, as last asked for.
type Given = Rc<RefCell<VecMap<String, CgroupValues>>>;

#[derive(Debug, Default)]
pub(super) struct Slices {
    units: Units,
    /// Setting what is set costs systemd a file for each value.
    given: Given,
}

impl Slices {
    pub(super) fn detect(version: CgroupVersion) -> Result<Self, CgroupError> {
        if !systemd::is_init() {
            return Err(CgroupError::NoSystemd);
        }
        // systemd 258 has given v1 up, and there the counts of a container's end would go with its unit.
        match version {
            CgroupVersion::V1 => Err(CgroupError::SystemdOnV1),
            CgroupVersion::V2 => Ok(Self::default()),
        }
    }

    pub(super) fn prepare(&self, names: &Names, besteffort: &CgroupValues) -> Result<(), CgroupError> {
        let none = CgroupValues::default();
        let (burstable, besteffort_path) =
            (names.class(PodCgroupClass::Burstable), names.class(PodCgroupClass::BestEffort));
        let work = [
            units::slice(unit(&names.parent()), "Pods of edge-runtime", &none),
            units::slice(unit(&burstable), "Burstable pods of edge-runtime", &none),
            units::slice(unit(&besteffort_path), "Best-effort pods of edge-runtime", besteffort),
        ];
        Ok(self.units.now(&work)?)
    }

    /// The pod's slice, unless it is there and as it is wanted.
    pub(super) fn pod(&self, path: &str, uid: &str, values: &CgroupValues, exists: bool) -> Option<Pending> {
        let unit = unit(path);
        let before = self.given.borrow_mut().insert(unit.to_owned(), *values);
        if exists && before == Some(*values) {
            return None;
        }
        // The spec is the whole truth: what it has no longer is lifted.
        let values = CgroupValues {
            cpu_quota_us: values.cpu_quota_us.or(Some(-1)),
            memory_limit_bytes: values.memory_limit_bytes.or(Some(u64::MAX)),
            ..*values
        };
        Some(self.units.order(units::slice(unit, &format!("Pod {uid}"), &values)))
    }

    pub(super) fn set(&self, path: &str, values: &CgroupValues) -> Option<Pending> {
        let properties = units::properties(values);
        (!properties.is_empty()).then(|| self.units.order(Work::Set(unit(path).to_owned(), properties)))
    }

    /// `bits`: one for each CPU, that of CPU 0 first.
    pub(super) fn allow_cpus(&self, path: &str, bits: Vec<u8>) -> Pending {
        let property = Property { name: "AllowedCPUs", value: Value::Bytes(bits) };
        self.units.order(Work::Set(unit(path).to_owned(), vec![property]))
    }

    pub(super) fn stop(&self, path: &str) -> Pending {
        let unit = unit(path);
        self.given.borrow_mut().remove(unit);
        self.units.order(Work::Stop(unit.to_owned()))
    }

    /// Slices take all with them that is in them.
    pub(super) fn teardown(&self, parent: &str) -> Result<(), BusError> {
        self.units.now(&[Work::Stop(unit(parent).to_owned())])
    }
}

impl Cgroups {
    /// Restores, with systemd's driver, that the OOM killer ends a container as a whole. systemd has no property for
    /// this value before version 253: the OCI runtime writes it, and a reload of systemd or another value of the unit
    /// undoes it.
    pub fn keep_oom_group(&self, path: &str) {
        let (Some(_), Some(mount)) = (&self.slices, self.hierarchies.of("memory")) else { return };
        let file = self.below(mount, path).join("memory.oom.group");
        if std::fs::read_to_string(&file).is_ok_and(|value| value.trim() == "0")
            && let Err(error) = tree::write(&file, "1")
        {
            log::debug!("{}: {error}", file.display());
        }
    }

    /// Executes queued requests to systemd; `None` with the other driver. Spawn it once.
    pub fn worker(&self) -> Option<impl Future<Output = ()> + use<> + 'static> {
        let slices = self.slices.as_ref()?;
        let given = Rc::clone(&slices.given);
        Some(slices.units.worker(move |unit| {
            given.borrow_mut().remove(unit);
        }))
    }
}
