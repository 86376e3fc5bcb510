//! Settings of this process in the kernel, made when it starts to serve.

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Number of descriptors below which a warning is logged: a thousand nodes, their kubelet ports and their users.
const FEW: u64 = 4_096;

/// Call it once, before anything is opened or read.
pub fn set() {
    raise_descriptors();
    // No core dump, which would contain keys and Secrets (proc(5): this also prevents other processes of this user from
    // reading this process's memory).
    if let Err(error) = prctl::set_dumpable(false) {
        log::warn!("a crash may write this process's memory to disk: {error}");
    }
}

/// Each connection needs a descriptor. The soft limit of most systems is 1024, for programs that use select(2), and any
/// program may raise it to the hard limit.
fn raise_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| hard).or(Ok(soft)));
    match raised {
        Ok(limit) if limit < FEW => {
            log::warn!("only {limit} files may be open (RLIMIT_NOFILE): no more nodes than that can be connected");
        }
        Ok(limit) => log::debug!("{limit} files may be open"),
        Err(error) => log::warn!("the limit of open files cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one_and_memory_stays_here() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(512), hard).unwrap();
        set();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
        assert!(!prctl::get_dumpable().unwrap());
    }
}
