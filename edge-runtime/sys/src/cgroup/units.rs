//! Values as properties of systemd's units. Pure.

use super::types::CgroupValues;
use super::weight::weight_of_shares;
use crate::systemd::{Property, Value, Work};

/// systemd keeps quotas as whole percents of a processor: what is less would be lost when it reads its units again.
const PERCENT_USEC: u64 = 10_000;
/// Converts microseconds per period of 100 ms to those per second.
const PERIODS_PER_SECOND: u64 = 10;

/// All of `values`, by the names of systemd.resource-control(5); quotas are rounded up, as the OCI runtimes do.
pub fn properties(values: &CgroupValues) -> Vec<Property> {
    let number = |name, value| Property { name, value: Value::Number(value) };
    let quota = |quota: i64| match u64::try_from(quota) {
        Ok(quota @ 1..) => quota.saturating_mul(PERIODS_PER_SECOND).div_ceil(PERCENT_USEC).saturating_mul(PERCENT_USEC),
        _ => u64::MAX,
    };
    let all = [
        values.cpu_shares.map(|shares| number("CPUWeight", weight_of_shares(shares).max(1))),
        values.cpu_quota_us.map(|us| number("CPUQuotaPerSecUSec", quota(us))),
        values.memory_limit_bytes.map(|bytes| number("MemoryMax", bytes)),
        // It takes no zero.
        values.pids_limit.map(|most| number("TasksMax", most.max(1))),
    ];
    all.into_iter().flatten().collect()
}

/// A slice with `values` in which everything is counted.
pub(super) fn slice(unit: &str, description: &str, values: &CgroupValues) -> Work {
    let flag = |name, on| Property { name, value: Value::Flag(on) };
    let mut all = vec![
        Property { name: "Description", value: Value::Text(description.to_owned()) },
        // A shutdown must not stop it early, and boot must not start it.
        flag("DefaultDependencies", false),
        flag("CPUAccounting", true),
        flag("MemoryAccounting", true),
        flag("TasksAccounting", true),
        flag("IOAccounting", true),
    ];
    all.extend(properties(values));
    Work::Start(unit.to_owned(), all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: CgroupValues) -> Vec<(&'static str, u64)> {
        let number = |one: Property| match one.value {
            Value::Number(number) => (one.name, number),
            other => panic!("{other:?}"),
        };
        properties(&values).into_iter().map(number).collect()
    }

    #[test]
    fn every_value_has_its_property() {
        let values = CgroupValues {
            cpu_shares: Some(256),
            cpu_quota_us: Some(50_000),
            memory_limit_bytes: Some(32 << 20),
            pids_limit: Some(100),
        };
        let wanted = [("CPUWeight", 35), ("CPUQuotaPerSecUSec", 500_000), ("MemoryMax", 32 << 20), ("TasksMax", 100)];
        assert_eq!(numbers(values), wanted);
        assert_eq!(numbers(CgroupValues::default()), []);
    }

    #[test]
    fn quotas_are_whole_percents() {
        let quota = |us| numbers(CgroupValues { cpu_quota_us: Some(us), ..CgroupValues::default() })[0].1;
        assert_eq!((quota(1000), quota(12_345), quota(150_000)), (10_000, 130_000, 1_500_000));
        assert_eq!((quota(-1), quota(0)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn systemd_takes_no_zeros() {
        let values = CgroupValues { cpu_shares: Some(0), pids_limit: Some(0), ..CgroupValues::default() };
        assert_eq!(numbers(values), [("CPUWeight", 1), ("TasksMax", 1)]);
    }
}
