//! Conditions of the board itself, which a kubelet does not have: clock, storage, power, heat, and the memory
//! controller that some kernels leave off. Pure.

use k8s_openapi::api::core::v1::NodeCondition;

use super::conditions::condition;

/// What the board's sensors say; `None` where there is no sensor, and then no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// Memory limits can be enforced.
    pub memory_controller: bool,
    pub clock_synchronized: Option<bool>,
    /// What is wrong with the medium, if something is.
    pub storage_trouble: Option<String>,
    pub under_voltage: Option<bool>,
    pub hot: Option<bool>,
}

/// Raspberry Pi OS leaves the controller off; the words are those to add.
const MEMORY_CONTROLLER_HINT: &str = "the kernel has no memory cgroup controller: memory limits are not enforced; \
    add 'cgroup_enable=cpuset cgroup_enable=memory cgroup_memory=1' to the kernel command line \
    (Raspberry Pi OS: /boot/firmware/cmdline.txt) and reboot";

impl Board {
    pub(super) fn conditions(&self) -> Vec<NodeCondition> {
        let mut all = vec![if self.memory_controller {
            condition("CgroupMemory", true, "MemoryControllerPresent", "memory limits are enforced")
        } else {
            condition("CgroupMemory", false, "MemoryControllerMissing", MEMORY_CONTROLLER_HINT)
        }];
        if let Some(synchronized) = self.clock_synchronized {
            all.push(if synchronized {
                condition("ClockSynchronized", true, "ClockSynchronized", "the clock follows a time source")
            } else {
                let message = "the kernel does not know the clock to be right: times in status, events and logs may \
                    be wrong; check chrony, ntpd or systemd-timesyncd";
                condition("ClockSynchronized", false, "ClockNotSynchronized", message)
            });
        }
        all.push(match &self.storage_trouble {
            None => condition("StorageHealthy", true, "StorageWritable", "no trouble with the node's storage is known"),
            Some(trouble) => condition("StorageHealthy", false, "StorageTrouble", trouble),
        });
        if let Some(low) = self.under_voltage {
            all.push(if low {
                let message = "the supply voltage is below what the board needs: use a stronger power supply or cable";
                condition("UnderVoltage", true, "UnderVoltage", message)
            } else {
                condition("UnderVoltage", false, "VoltageSufficient", "the supply voltage is sufficient")
            });
        }
        if let Some(hot) = self.hot {
            all.push(if hot {
                let message = "the board is so hot that it slows down or will: see to its cooling";
                condition("HighTemperature", true, "TemperatureHigh", message)
            } else {
                condition("HighTemperature", false, "TemperatureNormal", "the board is within its temperature range")
            });
        }
        all
    }
}

/// Of these conditions `True` is the bad news.
pub(super) fn is_bad_when_true(type_: &str) -> bool {
    matches!(type_, "UnderVoltage" | "HighTemperature")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_memory_controller_names_its_cure() {
        let all = Board::default().conditions();
        let one = all.iter().find(|one| one.type_ == "CgroupMemory").unwrap();
        assert_eq!(one.status, "False");
        let message = one.message.as_deref().unwrap();
        assert!(message.contains("cgroup_enable=cpuset cgroup_enable=memory cgroup_memory=1"), "{message}");
        assert_eq!(all.len(), 2, "no condition without a sensor, but for the storage");
    }

    #[test]
    fn troubles_are_shown() {
        let board = Board {
            memory_controller: true,
            clock_synchronized: Some(false),
            storage_trouble: Some("read-only".into()),
            under_voltage: Some(true),
            hot: Some(false),
        };
        let all = board.conditions();
        let statuses: Vec<_> = all.iter().map(|one| (one.type_.as_str(), one.status.as_str())).collect();
        assert_eq!(
            statuses,
            [
                ("CgroupMemory", "True"),
                ("ClockSynchronized", "False"),
                ("StorageHealthy", "False"),
                ("UnderVoltage", "True"),
                ("HighTemperature", "False")
            ]
        );
        assert_eq!(all[2].message.as_deref(), Some("read-only"));
    }
}
