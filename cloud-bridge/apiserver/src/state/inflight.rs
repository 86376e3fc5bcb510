//! How many requests of strangers are answered at one time (the API server's max-requests-inflight). What lives long by
//! nature, watches and connections to pods, and administrators are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::auth::Attributes;
use apimachinery::user::{MASTERS, UserInfo};

/// As `--max-requests-inflight` and `--max-mutating-requests-inflight` have them by default.
const READS: usize = 400;
const WRITES: usize = 200;

/// The requests under way.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    reads: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
}

/// One request under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<AtomicUsize>>);

impl Inflight {
    /// Takes a place for a request; `None` when there is none.
    pub(crate) fn enter(&self, user: &UserInfo, attributes: &Attributes) -> Option<Place> {
        if user.in_group(MASTERS) || lasting(attributes) {
            return Some(Place(None));
        }
        let read = matches!(attributes.verb.as_str(), "get" | "list" | "head");
        let (count, most) = if read { (&self.reads, READS) } else { (&self.writes, WRITES) };
        if count.fetch_add(1, Ordering::Relaxed) >= most {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Place(Some(Arc::clone(count))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn lasting(attributes: &Attributes) -> bool {
    attributes.verb == "watch"
        || matches!(attributes.path.subresource.as_str(), "attach" | "exec" | "log" | "portforward" | "proxy")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::request_info::target;

    #[test]
    fn places_are_few_and_come_back() {
        let inflight = Inflight::default();
        let eve = UserInfo::new("eve", ["people"]);
        let enter = |user: &UserInfo, method: &str, path: &str, watch| {
            inflight.enter(user, &Attributes::new(method, &target(path), watch, ""))
        };
        let pods = "/api/v1/namespaces/a/pods";
        let reads: Vec<_> = std::iter::from_fn(|| enter(&eve, "GET", pods, false)).collect();
        let writes: Vec<_> = std::iter::from_fn(|| enter(&eve, "POST", pods, false)).collect();
        assert_eq!((reads.len(), writes.len()), (READS, WRITES));
        assert!(enter(&eve, "GET", pods, true).is_some());
        assert!(enter(&eve, "GET", "/api/v1/namespaces/a/pods/p/log", false).is_some());
        assert!(enter(&UserInfo::master("admin"), "POST", pods, false).is_some());
        drop((reads, writes));
        assert!(enter(&eve, "GET", pods, false).is_some() && enter(&eve, "DELETE", pods, false).is_some());
    }
}
