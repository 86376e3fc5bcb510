//! Limit of the memory for the field sets of one object. Sets depend on what clients send, and are read again at each
//! later write.

use crate::codec::parse::OBJECT_COST;

/// Memory of all field sets of one object, roughly: some 80,000 fields, or 10,000 objects with fields. An object with
/// more has no use for them, and a Kubernetes object with as many would be too large for etcd.
const MEMORY_MAX: usize = 9 * 1024 * 1024;
/// Same for a kind that tenants write.
const TENANT_MEMORY_MAX: usize = 3 * 1024 * 1024;
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
    /// The budget of an object of a kind that tenants write.
    pub(crate) fn of_tenant() -> Self {
        Self { left: TENANT_MEMORY_MAX }
    }

    /// The budget of the changes of such an object: one write may replace all its fields.
    pub(crate) fn of_tenant_change() -> Self {
        Self { left: 2 * TENANT_MEMORY_MAX }
    }

    /// Charges the cost of one node. One with nodes `below` is an object of its own when the set is read and written
    /// as JSON.
    ///
    /// # Errors
    /// The budget is used up.
    pub(crate) fn charge(&mut self, step: &str, below: bool) -> Result<(), TooManyFields> {
        let object = if below { OBJECT_COST } else { 0 };
        self.left = self.left.checked_sub(NODE_COST + object + step.len()).ok_or(TooManyFields)?;
        Ok(())
    }
}
