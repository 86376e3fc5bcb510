//! Which devices a container gets: as `devicesToAllocate` of Kubernetes' `pkg/kubelet/cm/devicemanager/manager.go`, but
//! without NUMA, and a preference counts only as a whole.

/// What the daemon asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Must be among the chosen ones.
    had: Vec<String>,
    /// May be among them. Sorted.
    free: Vec<String>,
    count: usize,
}

impl Wanted {
    /// # Errors
    /// There are too few, or `had` has more than `count`. The text is Kubernetes'.
    pub(crate) fn new(resource: &str, had: Vec<String>, free: Vec<String>, count: u32) -> Result<Self, String> {
        let (had, mut free) = (sorted(had), sorted(free));
        free.retain(|id| had.binary_search(id).is_err());
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let available = had.len() + free.len();
        if had.len() > count {
            return Err(format!(
                "the container is to have {count} devices of {resource}, and {} from before",
                had.len()
            ));
        }
        if available < count {
            return Err(format!(
                "requested number of devices unavailable for {resource}. Requested: {count}, Available: {available}"
            ));
        }
        Ok(Self { had, free, count })
    }

    /// Whether it matters what the plugin prefers.
    pub(crate) fn has_choice(&self) -> bool {
        self.had.len() < self.count && self.count < self.had.len() + self.free.len()
    }

    /// All that may be chosen, `had` too: `available_deviceIDs` of a plugin.
    pub(crate) fn available(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.had.iter().chain(&self.free).map(String::as_str).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn had(&self) -> &[String] {
        &self.had
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Whether the plugin's preference can be followed: of the right size, with `had`, and of nothing else.
    pub(crate) fn accepts(&self, preferred: &[String]) -> bool {
        let preferred = sorted(preferred.to_vec());
        let is_in = |all: &[String], id: &String| all.binary_search(id).is_ok();
        preferred.len() == self.count
            && self.had.iter().all(|id| is_in(&preferred, id))
            && preferred.iter().all(|id| is_in(&self.had, id) || is_in(&self.free, id))
    }

    /// The chosen devices, sorted.
    pub(crate) fn choose(self, preferred: Option<Vec<String>>) -> Vec<String> {
        if let Some(preferred) = preferred.filter(|preferred| self.accepts(preferred)) {
            return sorted(preferred);
        }
        sorted(self.had.into_iter().chain(self.free).take(self.count).collect())
    }
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn chosen(had: &str, free: &str, count: u32, preferred: Option<&str>) -> Result<String, String> {
        let wanted = Wanted::new("r", ids(had), ids(free), count)?;
        Ok(wanted.choose(preferred.map(ids)).join(" "))
    }

    #[test]
    fn devices_are_taken_by_name_after_those_from_before() {
        assert_eq!(chosen("", "c a b", 2, None).as_deref(), Ok("a b"));
        assert_eq!(chosen("c", "d a", 2, None).as_deref(), Ok("a c"));
        assert_eq!(chosen("c d", "a", 2, None).as_deref(), Ok("c d"));
        assert_eq!(chosen("", "a", 0, None).as_deref(), Ok(""));
        assert_eq!(chosen("a", "a b", 2, None).as_deref(), Ok("a b"), "one that is named twice is one");
    }

    #[test]
    fn preference_counts_only_as_a_whole() {
        assert_eq!(chosen("", "a b c", 2, Some("c b")).as_deref(), Ok("b c"));
        assert_eq!(chosen("c", "a b", 2, Some("b c")).as_deref(), Ok("b c"));
        for wrong in ["", "c", "a b c", "c c", "c x", "b b c"] {
            let expected = if wrong == "b b c" { "b c" } else { "a b" };
            assert_eq!(chosen("", "a b c", 2, Some(wrong)).as_deref(), Ok(expected), "{wrong}");
        }
        assert_eq!(chosen("c", "a b", 2, Some("a b")).as_deref(), Ok("a c"), "what it had is left out");
    }

    #[test]
    fn too_few_devices_are_named_as_kubernetes_does() {
        assert_eq!(
            chosen("a", "b", 3, None),
            Err("requested number of devices unavailable for r. Requested: 3, Available: 2".to_owned())
        );
        assert!(chosen("a b", "c", 1, None).is_err());
    }

    proptest! {
        #[test]
        fn choice_has_the_right_size_and_nothing_else(
            had in prop::collection::vec("[a-d]", 0..3),
            free in prop::collection::vec("[a-h]", 0..9),
            count in 0..6_u32,
            preferred in prop::option::of(prop::collection::vec("[a-j]", 0..6)),
        ) {
            if let Ok(wanted) = Wanted::new("r", had.clone(), free.clone(), count) {
                let chosen = wanted.choose(preferred);
                prop_assert_eq!(chosen.len(), usize::try_from(count).unwrap_or(0));
                prop_assert!(chosen.is_sorted_by(|a, b| a < b));
                prop_assert!(had.iter().all(|id| chosen.contains(id)));
                prop_assert!(chosen.iter().all(|id| had.contains(id) || free.contains(id)));
            }
        }
    }
}
