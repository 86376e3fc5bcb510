//! Conditions of the board itself, which a kubelet does not have: clock, storage, power, heat, and the memory
//! controller that some kernels leave off. Pure.

use k8s_openapi::api::core::v1::NodeCondition;

use super::conditions::either;

/// State of the board's sensors; `None` without a sensor, and then no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// Memory limits can be enforced.
    pub memory_controller: bool,
    pub clock_synchronized: Option<bool>,
    /// Problem of the medium, if any.
    pub storage_trouble: Option<String>,
    pub under_voltage: Option<bool>,
    pub hot: Option<bool>,
    /// Another program that serves Services; empty if it has gone. `None` if there never was one, and then no
    /// condition.
    pub services_elsewhere: Option<String>,
    /// Last change of the programs or the configuration, and why it was rolled back. `None` without one.
    pub upgrade: Option<Upgrade>,
}

/// The end of a trial, as the launcher has noted it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrade {
    pub what: String,
    /// Empty if it stayed.
    pub went_back: String,
}

/// Raspberry Pi OS leaves the controller off; the words are those to add.
const MEMORY_CONTROLLER_HINT: &str = "the kernel has no memory cgroup controller: memory limits are not enforced; \
    add 'cgroup_enable=memory cgroup_memory=1' to the kernel command line \
    (Raspberry Pi OS: /boot/firmware/cmdline.txt) and reboot";

impl Board {
    pub(super) fn conditions(&self) -> Vec<NodeCondition> {
        let memory = [
            ("MemoryControllerPresent", "memory limits are enforced"),
            ("MemoryControllerMissing", MEMORY_CONTROLLER_HINT),
        ];
        let clock = [
            ("ClockSynchronized", "the clock follows a time source"),
            (
                "ClockNotSynchronized",
                "the kernel does not know the clock to be right: times in status, events and logs may be wrong; check \
                 chrony, ntpd or systemd-timesyncd",
            ),
        ];
        let trouble = self.storage_trouble.as_deref();
        let storage = [
            ("StorageWritable", "no trouble with the node's storage is known"),
            ("StorageTrouble", trouble.unwrap_or_default()),
        ];
        let voltage = [
            ("UnderVoltage", "the supply voltage is below what the board needs: use a stronger power supply or cable"),
            ("VoltageSufficient", "the supply voltage is sufficient"),
        ];
        let heat = [
            ("TemperatureHigh", "the board is so hot that it slows down or will: see to its cooling"),
            ("TemperatureNormal", "the board is within its temperature range"),
        ];
        let elsewhere = self.services_elsewhere.as_deref();
        let proxy = format!("Services are served by {}, and not by this node", elsewhere.unwrap_or_default());
        let proxies =
            [("ServicesHandledElsewhere", proxy.as_str()), ("ServicesHandledHere", "Services are served by this node")];
        let upgrade = self.upgrade.as_ref();
        let what = upgrade.map(|upgrade| upgrade.what.as_str()).unwrap_or_default();
        let stayed = format!("{what} is in force");
        let back = format!("{what} did not stay: {}", upgrade.map(|one| one.went_back.as_str()).unwrap_or_default());
        let upgrades = [("UpgradeInForce", stayed.as_str()), ("UpgradeRolledBack", back.as_str())];
        let all = [
            ("CgroupMemory", Some(self.memory_controller), memory),
            ("ClockSynchronized", self.clock_synchronized, clock),
            ("StorageHealthy", Some(trouble.is_none()), storage),
            ("UnderVoltage", self.under_voltage, voltage),
            ("HighTemperature", self.hot, heat),
            ("ServicesHandledElsewhere", elsewhere.map(|who| !who.is_empty()), proxies),
            ("Upgraded", upgrade.map(|upgrade| upgrade.went_back.is_empty()), upgrades),
        ];
        all.into_iter().filter_map(|(type_, holds, words)| Some(either(type_, holds?, words))).collect()
    }
}

/// Whether `True` of this condition means a problem.
pub(super) fn is_bad_when_true(type_: &str) -> bool {
    matches!(type_, "UnderVoltage" | "HighTemperature" | "ServicesHandledElsewhere")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_memory_controller_is_reported_with_a_fix() {
        let all = Board::default().conditions();
        let one = all.iter().find(|one| one.type_ == "CgroupMemory").unwrap();
        assert_eq!(one.status, "False");
        let message = one.message.as_deref().unwrap();
        assert!(message.contains("cgroup_enable=memory cgroup_memory=1"), "{message}");
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
            services_elsewhere: Some("kube-proxy".into()),
            upgrade: Some(Upgrade { what: "version 2-ab".into(), went_back: "no link".into() }),
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
                ("HighTemperature", "False"),
                ("ServicesHandledElsewhere", "True"),
                ("Upgraded", "False")
            ]
        );
        assert_eq!(all[2].message.as_deref(), Some("read-only"));
    }
}
