//! Names and files of sysctls. Knows nothing of pods.

use std::path::PathBuf;

/// Writes one in the calling thread's namespaces.
///
/// # Errors
/// The kernel has none of that name or refuses the value; the message names both.
pub fn write(name: &str, value: &str) -> Result<(), String> {
    let path = file(name).ok_or_else(|| format!("sysctl {name:?} is no name below /proc/sys"))?;
    std::fs::write(&path, value).map_err(|error| format!("sysctl {name} = {value:?}: {error}"))
}

/// With dots between its parts, as `sysctl` prints it: where a slash comes first the two are exchanged.
pub fn normalize(name: &str) -> String {
    match name.find(['.', '/']).and_then(|at| name.as_bytes().get(at)) {
        Some(b'/') => swapped(name),
        _ => name.to_owned(),
    }
}

/// `net.ipv4.conf.eno2/100.rp_filter` is `/proc/sys/net/ipv4/conf/eno2.100/rp_filter`.
fn file(name: &str) -> Option<PathBuf> {
    let path = swapped(name);
    let proper = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.split('/').all(proper).then(|| PathBuf::from("/proc/sys").join(path))
}

fn swapped(name: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files() {
        assert_eq!(file("kernel.sem"), Some("/proc/sys/kernel/sem".into()));
        assert_eq!(file("net.ipv4.conf.a/1.rp_filter"), Some("/proc/sys/net/ipv4/conf/a.1/rp_filter".into()));
        assert_eq!(normalize("net/ipv4/conf/a.1/rp_filter"), "net.ipv4.conf.a/1.rp_filter");
        assert_eq!((file("net.//.x"), file("net..x")), (None, None));
        assert!(write("kernel.no-such", "1").unwrap_err().contains("kernel.no-such"));
    }
}
