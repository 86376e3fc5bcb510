//! The kernel's and other programs' text formats. Pure.

/// A line of `/proc/meminfo`, in bytes.
pub(super) fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Length of a CPU list, `0-3,6`.
pub(super) fn cpu_list_len(text: &str) -> Option<u32> {
    let mut total: u32 = 0;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(total)
}

/// `PRETTY_NAME` of os-release(5).
pub(super) fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches(['"', '\'']).to_string())
}

/// A capability set in `/proc/PID/status`, a bit for each by its number.
pub(super) fn capabilities(status: &str, set: &str) -> u64 {
    let hex = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':'));
    hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Number of tasks in `/proc/loadavg`: the second half of `2/345`.
pub(super) fn tasks(loadavg: &str) -> Option<u64> {
    loadavg.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_formats() {
        assert_eq!(meminfo("MemTotal:       24 kB\nMemFree: 1 kB\n", "MemTotal"), Some(24 << 10));
        assert_eq!(meminfo("MemTotalX: 24 kB\n", "MemTotal"), None);
        assert_eq!(cpu_list_len("0-3,6\n"), Some(5));
        assert_eq!(cpu_list_len("0\n"), Some(1));
        assert_eq!(cpu_list_len(""), None);
        assert_eq!(tasks("0.00 0.01 0.05 2/345 6789\n"), Some(345));
        assert_eq!(capabilities("CapEff:\t0000000001000000\n", "CapEff"), 1 << 24);
        assert_eq!(capabilities("CapPrm:\t0000000001000000\n", "CapEff"), 0);
    }

    #[test]
    fn names() {
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }
}
