//! Gives memory back that a process has touched once and will not need soon. Knows nothing of what the process does.
#![allow(unsafe_code)]

use std::fs;

use nix::libc;

/// Unmaps the program's own code and constants, to be mapped again from the page cache as they are used, and returns
/// free heap to the kernel.
///
/// Starting up runs much code once, and every fault maps sixteen pages: a process that then waits for events for
/// months would count megabytes as its own. Costs some page faults without I/O afterwards.
pub fn trim() {
    let Ok(smaps) = fs::read_to_string("/proc/self/smaps") else { return };
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    for (start, length) in clean_mappings(&smaps, &program.to_string_lossy()) {
        let address = std::ptr::without_provenance_mut(start);
        // SAFETY: the range is a private mapping of the program's file of which no page was ever written, so what
        // is dropped is read again, unchanged, from the same inode at the next access.
        unsafe { libc::madvise(address, length, libc::MADV_DONTNEED) };
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: no condition; it only looks at the allocator's own free lists.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Start and length of the read-only mappings of `program` that have no page of their own (`Anonymous: 0`).
fn clean_mappings(smaps: &str, program: &str) -> Vec<(usize, usize)> {
    let mut clean = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(pages) = line.strip_prefix("Anonymous:") {
            let range = candidate.take();
            if pages.trim() == "0 kB" {
                clean.extend(range);
            }
        } else if let Some(header) = header(line) {
            let (range, permissions, path) = header;
            let is_ours = path.strip_suffix(" (deleted)").unwrap_or(path) == program.trim_end_matches(" (deleted)");
            candidate = (is_ours && matches!(permissions, "r-xp" | "r--p")).then_some(range);
        }
    }
    clean
}

/// `START-END PERMS OFFSET DEVICE INODE PATH`.
fn header(line: &str) -> Option<((usize, usize), &str, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let permissions = rest.get(..4)?;
    let path = rest.splitn(5, ' ').nth(4).unwrap_or("").trim_start();
    Some(((start, end.checked_sub(start)?), permissions, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_read_only_mappings_of_the_program_are_dropped() {
        let smaps = "\
1000-3000 r--p 00000000 fe:00 12 /bin/x y\nRss: 8 kB\nAnonymous:             0 kB\n\
3000-4000 r-xp 00002000 fe:00 12                 /bin/x y\nAnonymous:             0 kB\n\
4000-5000 r--p 00003000 fe:00 12 /bin/x y\nAnonymous:             4 kB\n\
5000-6000 rw-p 00004000 fe:00 12 /bin/x y\nAnonymous:             0 kB\n\
6000-7000 r--p 00000000 fe:00 13 /bin/z\nAnonymous:             0 kB\n\
7000-8000 rw-p 00000000 00:00 0\nAnonymous:             0 kB\n";
        assert_eq!(clean_mappings(smaps, "/bin/x y"), [(0x1000, 0x2000), (0x3000, 0x1000)]);
    }

    #[test]
    fn the_process_goes_on_after_a_trim() {
        trim();
        assert_eq!(format!("{:?}", "still here".to_uppercase()), "\"STILL HERE\"");
    }
}
