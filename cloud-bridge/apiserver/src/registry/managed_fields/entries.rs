//! `metadata.managedFields` as values: one entry for each manager and way of writing
//! (apimachinery pkg/util/managedfields/internal: managedfields.go, capmanagers.go).

use sampan_json::SetField;
use serde_json::{Value, json};

use super::writer::MANAGER_MAX;
use crate::patch::budget::{Budget, TooManyFields};
use crate::patch::field_set::FieldSet;
use apimachinery::json::text;

/// Maximum number of entries of updates of an object; older ones are merged.
const UPDATERS_MAX: usize = 10;
/// The manager of merged updates.
const ANCIENT: &str = "ancient-changes";

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An owner of fields: an applier is the same in all versions of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

impl Owner {
    fn is(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The owner as conflicts name it: `"kubectl" with subresource "scale" using apps/v1`.
    pub(crate) fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            shown += &format!(" using {}", self.api_version);
        }
        shown
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) owner: Owner,
    /// RFC 3339; empty if a client left it out.
    time: String,
    pub(crate) set: FieldSet,
}

/// The entries of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Entries(pub(crate) Vec<Entry>);

impl Entries {
    /// Reads `managedFields`; `None` if they are malformed or break a rule.
    ///
    /// # Errors
    /// More fields than the budget allows.
    pub(crate) fn read(value: &Value, mut budget: Budget) -> Result<Option<Self>, TooManyFields> {
        let mut entries = Self::default();
        for entry in value.as_array().into_iter().flatten() {
            let operation = match text(entry, "operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Ok(None),
            };
            let owner = Owner {
                manager: text(entry, "manager").to_owned(),
                operation,
                api_version: text(entry, "apiVersion").to_owned(),
                subresource: text(entry, "subresource").to_owned(),
            };
            if owner.api_version.is_empty()
                || text(entry, "fieldsType") != "FieldsV1"
                || owner.manager.len() > MANAGER_MAX
            {
                return Ok(None);
            }
            let none = json!({});
            let fields = if entry["fieldsV1"].is_null() { &none } else { &entry["fieldsV1"] };
            let Some(mut set) = FieldSet::decode(fields, &mut budget)? else { return Ok(None) };
            set.drop_root();
            entries.add(owner, set, text(entry, "time"));
        }
        Ok(Some(entries))
    }

    /// The entries in stored form, in the order of Kubernetes; null if empty.
    pub(crate) fn write(mut self) -> Value {
        self.0.retain(|entry| !entry.set.is_empty());
        self.0.sort_by(|a, b| {
            let key =
                |e: &Entry| (e.owner.operation, e.time.clone(), e.owner.manager.clone(), e.owner.subresource.clone());
            key(a).cmp(&key(b))
        });
        let entries: Vec<Value> = self.0.iter().map(Entry::write).collect();
        if entries.is_empty() { Value::Null } else { entries.into() }
    }

    /// Gives an owner more fields.
    pub(crate) fn add(&mut self, owner: Owner, set: FieldSet, time: &str) {
        match self.0.iter_mut().find(|entry| entry.owner.is(&owner)) {
            Some(entry) => {
                entry.set = entry.set.union(&set);
                time.clone_into(&mut entry.time);
            }
            None => self.0.push(Entry { owner, time: time.to_owned(), set }),
        }
    }

    /// Removes an owner.
    pub(crate) fn take(&mut self, owner: &Owner) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.owner.is(owner))?;
        Some(self.0.remove(at))
    }

    /// Removes all owners of these fields.
    pub(crate) fn disown(&mut self, fields: &FieldSet) {
        if fields.is_empty() {
            return;
        }
        for entry in &mut self.0 {
            entry.set = entry.set.difference(fields);
        }
        self.0.retain(|entry| !entry.set.is_empty());
    }

    /// All fields that have an owner.
    pub(crate) fn all(&self) -> FieldSet {
        self.0.iter().fold(FieldSet::default(), |all, entry| all.union(&entry.set))
    }

    /// Merges the oldest updates into one for each version if there are too many.
    pub(crate) fn cap(&mut self) {
        let updates = |entry: &Entry| entry.owner.operation == Operation::Update;
        let mut surplus = self.0.iter().filter(|entry| updates(entry)).count().saturating_sub(UPDATERS_MAX);
        if surplus == 0 {
            return;
        }
        self.0.sort_by(|a, b| (&a.time, &a.owner.manager).cmp(&(&b.time, &b.owner.manager)));
        let mut kept: Vec<Entry> = Vec::new();
        for entry in std::mem::take(&mut self.0) {
            let version = &entry.owner.api_version;
            let bucket = kept.iter_mut().find(|first| updates(first) && first.owner.api_version == *version);
            match bucket.filter(|_| surplus > 0 && updates(&entry)) {
                Some(first) => {
                    first.set = first.set.union(&entry.set);
                    first.time = entry.time;
                    ANCIENT.clone_into(&mut first.owner.manager);
                    first.owner.subresource.clear();
                    surplus -= 1;
                }
                None => kept.push(entry),
            }
        }
        for Entry { owner, time, set } in kept {
            self.add(owner, set, &time);
        }
    }

    /// Whether all sets together stay within the budget.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn within(&self, mut budget: Budget) -> Result<(), TooManyFields> {
        self.0.iter().try_for_each(|entry| {
            let Owner { manager, api_version, subresource, .. } = &entry.owner;
            [manager, api_version, subresource, &entry.time]
                .into_iter()
                .try_for_each(|text| budget.charge(text, false))?;
            entry.set.charge(&mut budget)
        })
    }
}

impl Entry {
    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.owner.manager,
            "operation": self.owner.operation.name(),
            "apiVersion": self.owner.api_version,
            "fieldsType": "FieldsV1",
        });
        // The macro would copy it.
        entry.set("fieldsV1", self.set.encode());
        for (field, value) in [("time", &self.time), ("subresource", &self.owner.subresource)] {
            if !value.is_empty() {
                entry.set(field, value.as_str().into());
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(manager: &str, operation: Operation, version: &str) -> Owner {
        let (manager, api_version) = (manager.to_owned(), version.to_owned());
        Owner { manager, operation, api_version, subresource: String::new() }
    }

    fn set(name: &str) -> FieldSet {
        FieldSet::decode(&json!({ format!("f:{name}"): {} }), &mut Budget::default()).unwrap().unwrap()
    }

    #[test]
    fn entries_round_trip_in_order() {
        let mut entries = Entries::default();
        entries.add(owner("b", Operation::Update, "v1"), set("x"), "2026-01-01T00:00:00Z");
        entries.add(owner("a", Operation::Update, "v1"), set("y"), "2026-01-01T00:00:00Z");
        entries.add(owner("z", Operation::Apply, "v1"), set("z"), "2026-01-02T00:00:00Z");
        entries.add(owner("z", Operation::Apply, "v2"), set("w"), "2026-01-03T00:00:00Z");
        let written = entries.write();
        let managers: Vec<_> = written.as_array().unwrap().iter().map(|e| e["manager"].clone()).collect();
        assert_eq!(managers, ["z", "a", "b"], "an applier is one in all versions");
        assert_eq!(written[0]["fieldsV1"], json!({"f:w": {}, "f:z": {}}));
        assert_eq!(Entries::read(&written, Budget::default()).unwrap().unwrap().write(), written);
    }

    #[test]
    fn broken_entries_are_none() {
        let good = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}});
        assert!(Entries::read(&json!([good]), Budget::default()).unwrap().is_some());
        for (field, value) in
            [("operation", "Write"), ("apiVersion", ""), ("fieldsType", "FieldsV2"), ("fieldsV1", "text")]
        {
            let mut broken = good.clone();
            broken.set(field, value.into());
            assert_eq!(Entries::read(&json!([broken]), Budget::default()), Ok(None), "{field}");
        }
    }

    #[test]
    fn old_updates_become_one() {
        let mut entries = Entries::default();
        entries.add(owner("applier", Operation::Apply, "v1"), set("applied"), "2026-01-01T00:00:00Z");
        for at in 0..13 {
            let time = format!("2026-01-01T00:00:{at:02}Z");
            entries.add(owner(&format!("m{at}"), Operation::Update, "v1"), set(&format!("n{at}")), &time);
        }
        let all = entries.all();
        entries.cap();
        let count = |manager: &str| entries.0.iter().filter(|e| e.owner.manager == manager).count();
        assert_eq!((entries.0.len(), count(ANCIENT), count("applier"), count("m12")), (11, 1, 1, 1));
        assert_eq!(entries.all(), all, "no field loses its owner");
    }
}
