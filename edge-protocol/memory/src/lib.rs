//! Gives memory back that a process has touched once and will not need soon. Knows nothing of what the process does.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

use nix::libc;

/// Pages of a piece.
const PAGES: usize = 2;

/// Unmaps the program's own code and constants, to be mapped again from the page cache as they are used, and returns
/// free heap to the kernel.
///
/// Starting up runs much code once, and every fault maps sixteen pages: a process that then waits for events for
/// months would count megabytes as its own. Costs some page faults without I/O afterwards.
pub fn trim() {
    for Range { start, end } in own_mappings().unwrap_or_default() {
        let address = std::ptr::without_provenance_mut(start);
        // SAFETY: the range is a private mapping of the program's file without written pages. The next access reads
        // dropped pages again, unchanged, from the same inode.
        unsafe { libc::madvise(address, end - start, libc::MADV_DONTNEED) };
    }
    trim_heap();
}

/// Gives back what the allocator keeps of freed memory, of all threads, and nothing else.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no condition; it only looks at the allocator's own free lists.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What the allocator has handed out, in bytes; 0 where it does not say. Beyond 4 GiB the number is too small (mallinfo(3)).
pub fn heap_in_use() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: no condition; it only reads the allocator's own lists.
        let info = unsafe { libc::mallinfo() };
        u64::from(info.uordblks.cast_unsigned()) + u64::from(info.hblkhd.cast_unsigned())
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// From now on an access to the program's own code and constants maps two pages, and not all that the kernel maps at once
/// where it can: sixteen pages (`fault_around_bytes`), or a whole large folio.
///
/// Splits the mappings of a process that constantly runs a small part of its code: nearly every group of sixteen pages
/// contains some of it. A fault maps nothing outside of its mapping, so small mappings map fewer pages; the kernel
/// needs about 250 bytes for each.
pub fn split() {
    // SAFETY: no condition.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    let mappings = if page == 0 { Vec::new() } else { own_mappings().unwrap_or_default() };
    for start in mappings.into_iter().flat_map(|mapping| mapping.step_by(2 * PAGES * page)) {
        let address = std::ptr::without_provenance_mut(start);
        // Neighbours that differ in this stay apart. It changes nothing else: no core dump has what a file has (core(5)).
        // SAFETY: it does not change mappings or their protection.
        unsafe { libc::madvise(address, PAGES * page, libc::MADV_DONTDUMP) };
    }
}

/// Returns the mappings of the program's file without written pages.
fn own_mappings() -> io::Result<Vec<Range<usize>>> {
    let program = fs::read_link("/proc/self/exe")?;
    clean_mappings(BufReader::new(File::open("/proc/self/smaps")?), &program.to_string_lossy())
}

/// The read-only mappings of `program` that have no page of their own (`Anonymous: 0`); what adjoins is one.
fn clean_mappings(mut smaps: impl BufRead, program: &str) -> io::Result<Vec<Range<usize>>> {
    let mut clean: Vec<Range<usize>> = Vec::new();
    let (mut candidate, mut line) = (None, String::new());
    while smaps.read_line(&mut line)? > 0 {
        let text = line.trim_end_matches('\n');
        if let Some(pages) = text.strip_prefix("Anonymous:") {
            let range = candidate.take().filter(|_| pages.trim() == "0 kB");
            match (clean.last_mut(), range) {
                (Some(last), Some(Range { start, end })) if last.end == start => last.end = end,
                (_, range) => clean.extend(range),
            }
        } else if let Some((range, permissions, path)) = header(text) {
            let is_ours = path.strip_suffix(" (deleted)").unwrap_or(path) == program.trim_end_matches(" (deleted)");
            candidate = (is_ours && matches!(permissions, "r-xp" | "r--p")).then_some(range);
        }
        line.clear();
    }
    Ok(clean)
}

/// `START-END PERMS OFFSET DEVICE INODE PATH`.
fn header(line: &str) -> Option<(Range<usize>, &str, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let permissions = rest.get(..4)?;
    let path = rest.splitn(5, ' ').nth(4).unwrap_or("").trim_start();
    Some((start..end, permissions, path))
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
7000-8000 rw-p 00000000 00:00 0\nAnonymous:             0 kB\n\
9000-a000 r--p 00006000 fe:00 12 /bin/x y\nAnonymous:             0 kB\n";
        let clean = clean_mappings(smaps.as_bytes(), "/bin/x y").expect("text");
        assert_eq!(clean, [0x1000..0x4000, 0x9000..0xa000]);
    }

    #[test]
    fn a_program_is_split_into_pieces_and_goes_on() {
        let count = || {
            let program = fs::read_link("/proc/self/exe").expect("procfs");
            let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
            maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy())).count()
        };
        let before = count();
        split();
        assert!(count() > 10 * before, "{before}, then {}", count());
        // As one they are given back.
        assert!(own_mappings().expect("procfs").len() <= before);
        trim();
        assert_eq!(format!("{:?}", "still here".to_uppercase()), "\"STILL HERE\"");
    }

    #[test]
    fn the_process_goes_on_after_a_trim() {
        trim();
        assert_eq!(format!("{:?}", "still here".to_uppercase()), "\"STILL HERE\"");
    }
}
