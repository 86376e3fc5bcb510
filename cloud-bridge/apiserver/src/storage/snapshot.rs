//! Objects as they were at a revision, in pages.

use std::cmp::Ordering;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Rows, params};

use super::extent::{Most, Walked};
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
/// The first change of an object after a revision.
const LATER: &str =
    "SELECT rev FROM changes WHERE storage = ?1 AND ns = ?2 AND name = ?3 AND rev > ?4 ORDER BY rev LIMIT 1";

/// A page, and the key after which the next begins, if there may be one.
#[derive(Debug)]
pub(crate) struct Page {
    pub items: Vec<Arc<Stored>>,
    pub next: Option<ObjectKey>,
}

/// Changes of one name after which the first later one is looked up, which takes as long as to walk over some of them.
const OFTEN: u32 = 32;

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
            let mut objects = objects.query(place)?;
            let mut changes = Changes::new(&self.conn, changes.query(place)?, storage, rev);
            let mut object = next_object(&self.conn, &mut objects)?;
            let (mut items, mut walked, mut last) = (Vec::new(), Walked::default(), None);
            // Most lists are of now, since when nothing was changed.
            let mut change = if rev < self.written { changes.next(&mut walked, &most)? } else { Next::End };
            loop {
                let (order, key) = match (&object, &change) {
                    (_, Next::Long) => return Ok(Page { items, next: last }),
                    (None, Next::End) => return Ok(Page { items, next: None }),
                    (Some(object), Next::End) => (Ordering::Less, &object.key),
                    (None, Next::Change(key, _)) => (Ordering::Greater, key),
                    (Some(object), Next::Change(key, _)) => (object.key.cmp(key), key.min(&object.key)),
                };
                if order.is_ge() && matches!(change, Next::Change(_, Then::Unknown)) {
                    let before = std::mem::replace(&mut change, changes.next(&mut walked, &most)?);
                    walked.over_change();
                    // Nothing had this name then, and nothing has it now, so the page may end behind it.
                    if order.is_gt() && change.key() != before.key() {
                        last = before.key().cloned();
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
                let mut then = None;
                if order.is_le() {
                    then = std::mem::replace(&mut object, next_object(&self.conn, &mut objects)?);
                }
                if order.is_ge() {
                    let next = changes.after_name(&mut walked, &most)?;
                    // The state at `rev` is what the first later change replaced; an addition replaced nothing.
                    if let Next::Change(_, Then::Was(before)) = std::mem::replace(&mut change, next) {
                        // What is there now was read, too.
                        walked.read(then.as_ref().map_or(0, |now: &Stored| now.body.len()));
                        then = before.map(|before| *before);
                    }
                }
                walked.over(then.as_ref().map_or(0, |then| then.body.len()));
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

/// State of an object at a revision, according to its changes so far.
enum Then {
    /// They are older.
    Unknown,
    /// All are older.
    AsNow,
    /// The first later one replaced this. In a box, because most changes of a walk have none and all are moved.
    Was(Option<Box<Stored>>),
}

/// What comes next of the changes.
enum Next {
    End,
    /// The page is long, and the changes of a name that is done have not ended.
    Long,
    Change(ObjectKey, Then),
}

impl Next {
    const fn key(&self) -> Option<&ObjectKey> {
        if let Self::Change(key, _) = self { Some(key) } else { None }
    }
}

/// The changes of a storage, in key order.
struct Changes<'a> {
    conn: &'a Connection,
    rows: Rows<'a>,
    storage: &'a str,
    rev: u64,
    /// Name of the last row, and the number of its rows so far.
    name: ObjectKey,
    seen: u32,
    /// The rows of this name that are left are skipped.
    is_done: bool,
}

impl<'a> Changes<'a> {
    fn new(conn: &'a Connection, rows: Rows<'a>, storage: &'a str, rev: u64) -> Self {
        Self { conn, rows, storage, rev, name: ObjectKey::cluster(""), seen: 0, is_done: false }
    }

    /// The next change of another name.
    fn after_name(&mut self, walked: &mut Walked, most: &Most) -> rusqlite::Result<Next> {
        self.is_done = true;
        self.next(walked, most)
    }

    /// The next change. Changes without information are returned too: a page goes no further than its objects, and the next
    /// relevant change may be thousands of changes later. Of a name that has changed often, the later ones are looked up.
    fn next(&mut self, walked: &mut Walked, most: &Most) -> rusqlite::Result<Next> {
        while let Some(row) = self.rows.next()? {
            let (namespace, name) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            if self.name.namespace != namespace || self.name.name != name {
                self.name = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
                (self.seen, self.is_done) = (0, false);
            }
            if self.is_done {
                walked.over_change();
                if walked.is_long(most) {
                    return Ok(Next::Long);
                }
                continue;
            }
            self.seen += 1;
            let made = unsigned(row, 2)?;
            let later = match made > self.rev {
                true => Some(made),
                false if self.seen < OFTEN => return Ok(Next::Change(self.name.clone(), Then::Unknown)),
                false => self.later()?,
            };
            let then = later.map_or(Ok(Then::AsNow), |made| self.before(made).map(Then::Was))?;
            return Ok(Next::Change(self.name.clone(), then));
        }
        Ok(Next::End)
    }

    /// The first later change of the name.
    fn later(&self) -> rusqlite::Result<Option<u64>> {
        let place = params![self.storage, self.name.namespace, self.name.name, self.rev.cast_signed()];
        let mut statement = self.conn.prepare_cached(LATER)?;
        statement.query_row(place, |row| unsigned(row, 0)).optional()
    }

    fn before(&self, made: u64) -> rusqlite::Result<Option<Box<Stored>>> {
        let mut statement = self.conn.prepare_cached(BEFORE)?;
        let before = statement.query_row([made.cast_signed()], |row| bodies::read(self.conn, row, 0))?;
        Ok(before.map(|body| Box::new(Stored::replaced(self.name.clone(), body))))
    }
}
