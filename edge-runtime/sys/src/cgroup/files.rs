//! Values as control files of both versions. Pure.

use super::types::{CgroupValues, CgroupVersion};
use super::weight::weight_of_shares;

/// `cpu.cfs_period_us`.
pub const CFS_PERIOD_US: u64 = 100_000;
/// Limit of memory and swap together, where the kernel counts swap (v1).
pub(super) const SWAP_FILE: &str = "memory.memsw.limit_in_bytes";
/// What v1 shows for no limit is this and more, by page size.
const UNLIMITED: u64 = 1 << 62;

/// Controller, file and content of each value.
pub(super) fn settings(values: &CgroupValues, version: CgroupVersion) -> Vec<(&'static str, &'static str, String)> {
    let v2 = version == CgroupVersion::V2;
    let mut all = Vec::new();
    if let Some(shares) = values.cpu_shares {
        all.push(match v2 {
            true => ("cpu", "cpu.weight", weight_of_shares(shares).to_string()),
            false => ("cpu", "cpu.shares", shares.to_string()),
        });
    }
    if let Some(quota) = values.cpu_quota_us {
        match v2 {
            true if quota > 0 => all.push(("cpu", "cpu.max", format!("{quota} {CFS_PERIOD_US}"))),
            true => all.push(("cpu", "cpu.max", format!("max {CFS_PERIOD_US}"))),
            false => {
                all.push(("cpu", "cpu.cfs_period_us", CFS_PERIOD_US.to_string()));
                all.push(("cpu", "cpu.cfs_quota_us", quota.to_string()));
            }
        }
    }
    if let Some(limit) = values.memory_limit_bytes {
        all.push(("memory", if v2 { "memory.max" } else { "memory.limit_in_bytes" }, limit.to_string()));
    }
    if let Some(limit) = values.pids_limit {
        all.push(("pids", "pids.max", limit.to_string()));
    }
    all
}

/// What happens to the limit of memory and swap together when that of memory changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Swap {
    Stays,
    /// It becomes this before the limit of memory is set.
    First(u64),
    /// Same, afterwards.
    Last(u64),
}

/// The limit of memory changes from `old` to `new`. `both` is the present limit of memory and swap together, which can
/// never be less than that of memory alone.
pub(super) fn swap(new: u64, old: u64, both: u64) -> Swap {
    if both >= UNLIMITED {
        return Swap::Stays;
    }
    let both = new.saturating_add(both.saturating_sub(old));
    if new > old { Swap::First(both) } else { Swap::Last(both) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: CgroupValues, version: CgroupVersion) -> Vec<String> {
        settings(&values, version).into_iter().map(|(_, file, value)| format!("{file}={value}")).collect()
    }

    #[test]
    fn every_value_has_its_file() {
        let values = CgroupValues {
            cpu_shares: Some(1024),
            cpu_quota_us: Some(50_000),
            memory_limit_bytes: Some(4096),
            pids_limit: Some(9),
        };
        let v1 = ["cpu.shares=1024", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=50000"];
        let all = [&v1[..], &["memory.limit_in_bytes=4096", "pids.max=9"]].concat();
        assert_eq!(texts(values, CgroupVersion::V1), all);
        let weight = format!("cpu.weight={}", weight_of_shares(1024));
        let v2 = [weight.as_str(), "cpu.max=50000 100000", "memory.max=4096", "pids.max=9"];
        assert_eq!(texts(values, CgroupVersion::V2), v2);
        assert!(settings(&CgroupValues::default(), CgroupVersion::V1).is_empty());
        for (controller, file, _) in settings(&values, CgroupVersion::V2) {
            assert!(file.starts_with(controller), "{file}");
        }
    }

    #[test]
    fn no_quota_is_no_limit() {
        let values = CgroupValues { cpu_quota_us: Some(-1), ..CgroupValues::default() };
        assert_eq!(texts(values, CgroupVersion::V2), ["cpu.max=max 100000"]);
        assert_eq!(texts(values, CgroupVersion::V1)[1], "cpu.cfs_quota_us=-1");
    }

    #[test]
    fn swap_keeps_its_room_and_is_never_less_than_memory() {
        assert_eq!(swap(300, 100, 150), Swap::First(350));
        assert_eq!(swap(50, 100, 150), Swap::Last(100));
        assert_eq!(swap(50, 100, UNLIMITED), Swap::Stays);
        assert_eq!(swap(50, 100, 80), Swap::Last(50), "the kernel had less than memory");
    }
}
