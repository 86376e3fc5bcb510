//! Limit of the memory for the field sets of one object. Sets depend on what clients send, and are read again at each
//! later write.

/// Memory of all field sets of one object, roughly: some 40,000 fields. An object with more has no use for them, and
/// a Kubernetes object with as many would be too large for etcd.
const MEMORY_MAX: usize = 4 * 1024 * 1024;
/// One node of a set beside the text of its step: its place in the list of its parent, and the allocation of the text.
const NODE_COST: usize = 80;

/// Memory that is left for field sets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    left: usize,
}

/// The object has more fields than the budget allows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyFields;

impl Default for Budget {
    fn default() -> Self {
        Self { left: MEMORY_MAX }
    }
}

impl Budget {
    /// Charges the cost of one node.
    ///
    /// # Errors
    /// The budget is used up.
    pub(crate) fn charge(&mut self, step: &str) -> Result<(), TooManyFields> {
        self.left = self.left.checked_sub(NODE_COST + step.len()).ok_or(TooManyFields)?;
        Ok(())
    }
}
