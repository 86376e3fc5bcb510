//! Objects as they were at a revision, in pages.

use std::cmp::Ordering;
use std::sync::Arc;

use rusqlite::{Connection, Rows, params};

use super::leases::LEASES;
use super::rows::unsigned;
use super::{Store, StoreError, Stored, bodies};
use apimachinery::key::ObjectKey;

/// Objects of a storage after a place, and their changes, both in key order. The changes without what they replaced: so
/// the index alone answers, and one that a page does not need costs no look into the table.
pub(super) const EVERYWHERE: [&str; 2] = [
    "SELECT ns, name, rev, body FROM objects WHERE storage = ?1 AND (ns, name) > (?2, ?3) ORDER BY ns, name",
    "SELECT ns, name, rev FROM changes WHERE storage = ?1 AND (ns, name) > (?2, ?3) ORDER BY ns, name, rev",
];
pub(super) const IN_NAMESPACE: [&str; 2] = [
    "SELECT ns, name, rev, body FROM objects WHERE storage = ?1 AND ns = ?2 AND name > ?3 ORDER BY name",
    "SELECT ns, name, rev FROM changes WHERE storage = ?1 AND ns = ?2 AND name > ?3 ORDER BY name, rev",
];
/// What a change replaced.
pub(super) const BEFORE: &str = "SELECT before FROM changes WHERE rev = ?1";

/// Maximum extent of one page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// Maximum number of selected objects.
    pub items: usize,
    /// Maximum bytes of all objects that are read; the object that exceeds it is the last.
    pub bytes: usize,
}

/// A page, and the key after which the next begins, if there may be one.
#[derive(Debug)]
pub(crate) struct Page {
    pub items: Vec<Arc<Stored>>,
    pub next: Option<ObjectKey>,
}

/// Extent of a page so far.
#[derive(Debug, Default)]
pub(super) struct Walked {
    bytes: usize,
}

/// What looking at any object counts for beside its bytes.
const LOOK: usize = 256;
/// What walking over a change counts for that says nothing of the past.
const ROW: usize = 32;

impl Walked {
    pub(super) fn over(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(LOOK);
    }

    fn over_change(&mut self) {
        self.bytes = self.bytes.saturating_add(ROW);
    }

    /// Whether a page with this many selected objects is full.
    pub(super) fn enough(&self, most: &Most, selected: usize) -> bool {
        selected >= most.items || self.is_long(most)
    }

    fn is_long(&self, most: &Most) -> bool {
        self.bytes >= most.bytes
    }
}

impl Store {
    /// The object as it was at `rev`. Call `knows` first.
    pub(crate) fn at(&self, storage: &str, key: &ObjectKey, rev: u64) -> Result<Option<Arc<Stored>>, StoreError> {
        match storage {
            LEASES => Ok(self.leases.at(Some(&key.namespace), rev).remove(key)),
            _ => self.made(storage, key, rev),
        }
    }

    /// The first selected objects after `after`, in key order, as they were at `rev`. Call `knows` first.
    ///
    /// Walks objects and changes side by side and no further than needed: the cost of a page depends on its own length,
    /// not on that of the list.
    pub(crate) fn list_at(
        &self,
        storage: &str,
        namespace: Option<&str>,
        rev: u64,
        after: Option<&ObjectKey>,
        most: Most,
        select: &dyn Fn(&Stored) -> bool,
    ) -> Result<Page, StoreError> {
        if storage == LEASES {
            // Small, in memory, and each page would cost all of them: bytes are not counted.
            let then = self.leases.at(namespace, rev).into_iter();
            let then = then.filter(|(key, stored)| after.is_none_or(|after| key > after) && select(stored));
            let mut items: Vec<_> = then.map(|(_, stored)| stored).take(most.items.saturating_add(1)).collect();
            let more = items.len() > most.items;
            items.truncate(most.items);
            let next = items.last().filter(|_| more).map(|last| last.key.clone());
            return Ok(Page { items, next });
        }
        let run = || {
            let (after_ns, after_name) = after.map_or(("", ""), |key| (key.namespace.as_str(), key.name.as_str()));
            let place = params![storage, namespace.unwrap_or(after_ns), after_name];
            let [objects, changes] = if namespace.is_some() { IN_NAMESPACE } else { EVERYWHERE };
            let (mut objects, mut changes) = (self.conn.prepare_cached(objects)?, self.conn.prepare_cached(changes)?);
            let (mut objects, mut changes) = (objects.query(place)?, changes.query(place)?);
            let mut object = next_object(&self.conn, &mut objects)?;
            // Most lists are of now, since when nothing was changed.
            let mut change = if rev < self.written { next_change(&self.conn, &mut changes, rev, None)? } else { None };
            let (mut items, mut walked, mut last) = (Vec::new(), Walked::default(), None);
            loop {
                let (order, key) = match (&object, &change) {
                    (None, None) => return Ok(Page { items, next: None }),
                    (Some(object), None) => (Ordering::Less, &object.key),
                    (None, Some((key, _))) => (Ordering::Greater, key),
                    (Some(object), Some((key, _))) => (object.key.cmp(key), key.min(&object.key)),
                };
                if order.is_ge() && matches!(change, Some((_, Then::AsNow))) {
                    let name = change.take().map(|(key, _)| key);
                    change = next_change(&self.conn, &mut changes, rev, None)?;
                    walked.over_change();
                    // Nothing had this name then, and nothing has it now, so the page may end behind it.
                    if order.is_gt() && change.as_ref().map(|(key, _)| key) != name.as_ref() {
                        last = name;
                        if walked.is_long(&most) {
                            return Ok(Page { items, next: last });
                        }
                    }
                    continue;
                }
                // Without an end yet the page needs one more object, however many changes lay before it.
                if last.is_some() && walked.enough(&most, items.len()) {
                    return Ok(Page { items, next: last });
                }
                last = Some(key.clone());
                // The state at `rev` is what the first later change replaced; an addition replaced nothing.
                let mut then = if order.is_lt() { object.take() } else { None };
                // Read, but not as it was then.
                let read = if order.is_eq() { object.as_ref().map_or(0, |object| object.body.len()) } else { 0 };
                if order.is_le() {
                    object = next_object(&self.conn, &mut objects)?;
                }
                if order.is_ge()
                    && let Some((key, was)) = change.take()
                {
                    if let Then::Was(before) = was {
                        then = before;
                    }
                    change = next_change(&self.conn, &mut changes, rev, Some(&key))?;
                }
                walked.over(then.as_ref().map_or(0, |then| then.body.len()).saturating_add(read));
                items.extend(then.filter(|then| select(then)).map(|then| then.unparsed()));
            }
        };
        run().map_err(|e| self.sql(e))
    }
}

fn next_object(conn: &Connection, rows: &mut Rows<'_>) -> rusqlite::Result<Option<Stored>> {
    let Some(row) = rows.next()? else { return Ok(None) };
    let key = ObjectKey { namespace: row.get(0)?, name: row.get(1)? };
    Ok(Some(Stored::new(key, unsigned(row, 2)?, bodies::read(conn, row, 3)?.unwrap_or_default())))
}

/// State of an object at a revision, according to a change.
enum Then {
    /// Nothing: it is older.
    AsNow,
    /// It replaced this.
    Was(Option<Stored>),
}

/// The next change of another key than `done`. Changes without information are returned too: a page goes no further
/// than its objects, and the next relevant change may be thousands of changes later.
fn next_change(
    conn: &Connection,
    rows: &mut Rows<'_>,
    rev: u64,
    done: Option<&ObjectKey>,
) -> rusqlite::Result<Option<(ObjectKey, Then)>> {
    while let Some(row) = rows.next()? {
        let key = ObjectKey { namespace: row.get(0)?, name: row.get(1)? };
        if done == Some(&key) {
            continue;
        }
        let made = unsigned(row, 2)?;
        if made <= rev {
            return Ok(Some((key, Then::AsNow)));
        }
        let mut statement = conn.prepare_cached(BEFORE)?;
        let before = statement.query_row([made.cast_signed()], |row| bodies::read(conn, row, 0))?;
        let before = before.map(|body| Stored::replaced(key.clone(), body));
        return Ok(Some((key, Then::Was(before))));
    }
    Ok(None)
}
