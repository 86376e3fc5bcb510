//! Rows of a damaged database, read from its pages one by one: trees are not walked, so that a damaged page hides none
//! but its own rows (<https://sqlite.org/fileformat2.html>, 1.5 to 2). Knows nothing of tables; bounded by the file.

use std::collections::HashSet;

use super::pages::{PAGE, Page, Pages, be32};

/// Page types.
const INDEX_INTERIOR: u8 = 2;
const INDEX_LEAF: u8 = 10;
const TABLE_LEAF: u8 = 13;
/// A larger row is not from this program: the link accepts objects of up to 8 MiB.
const ROW_LIMIT: usize = 16 << 20;
/// No table has more columns.
const COLUMNS_LIMIT: usize = 32;

/// A column that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Null,
    Integer(i64),
    Text(String),
    /// A type that is not stored here, invalid text, or unreadable.
    Other,
}

/// One row as it lies in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Row id; `None` in tables without row ids.
    pub(super) id: Option<i64>,
    pub(super) columns: Vec<Column>,
    /// The pages it is on.
    pub(super) pages: Vec<u32>,
}

/// Hands every row to `take`.
pub(super) fn rows(pages: &Pages, take: &mut dyn FnMut(Row)) {
    let free = free_pages(pages);
    for number in (1..=pages.count()).filter(|number| !free.contains(number)) {
        let Some(page) = pages.get(number) else { continue };
        // The file's own header is before that of its first page.
        let start = if number == 1 { 100 } else { 0 };
        let kind = page[start];
        let (table, header, child) = match kind {
            INDEX_INTERIOR => (false, 12, 4),
            INDEX_LEAF => (false, 8, 0),
            TABLE_LEAF => (true, 8, 0),
            _ => continue,
        };
        let cells = usize::from(be16(&page, start + 3));
        for index in 0..cells.min(PAGE / 2) {
            let at = usize::from(be16(&page, start + header + 2 * index)) + child;
            if let Some(row) = row(pages, number, &page, at, table) {
                take(row);
            }
        }
    }
}

/// Free pages have outdated rows. Pages that list free pages are found by their shape, not by their chain, which may be
/// broken: no page of rows begins with a zero, and no text continues with the small number of listed pages.
fn free_pages(pages: &Pages) -> HashSet<u32> {
    let mut free = HashSet::new();
    for number in 2..=pages.count() {
        let Some(page) = pages.get(number) else { continue };
        let listed = be32(&page, 4) as usize;
        if be32(&page, 0) > pages.count() || listed > PAGE / 4 - 2 {
            continue;
        }
        let all: Vec<u32> = (0..listed).map(|index| be32(&page, 8 + 4 * index)).collect();
        if all.iter().all(|one| (2..=pages.count()).contains(one)) {
            free.insert(number);
            free.extend(all);
        }
    }
    free
}

fn row(pages: &Pages, number: u32, page: &Page, mut at: usize, table: bool) -> Option<Row> {
    let length = usize::try_from(varint(page, &mut at)?).ok().filter(|length| *length <= ROW_LIMIT)?;
    let id = if table { Some(varint(page, &mut at)?.cast_signed()) } else { None };
    let here = on_page(length, table);
    let mut payload = page.get(at..at.checked_add(here)?)?.to_vec();
    let mut used = vec![number];
    let mut next = if here < length { be32(page, at + here) } else { 0 };
    while payload.len() < length {
        used.push(next);
        // The part on earlier pages is still usable: it may have the key.
        let Some(overflow) = pages.get(next) else { break };
        let part = usize::min(PAGE - 4, length - payload.len());
        payload.extend_from_slice(overflow.get(4..4 + part)?);
        next = be32(&overflow, 0);
    }
    Some(Row { id, columns: columns(&payload)?, pages: used })
}

/// How many bytes of a row are on its own page; the rest is on others.
fn on_page(length: usize, table: bool) -> usize {
    let most = if table { PAGE - 35 } else { (PAGE - 12) * 64 / 255 - 23 };
    if length <= most {
        return length;
    }
    let least = (PAGE - 12) * 32 / 255 - 23;
    let fits = least + (length - least) % (PAGE - 4);
    if fits <= most { fits } else { least }
}

fn columns(payload: &[u8]) -> Option<Vec<Column>> {
    let mut at = 0;
    let header = usize::try_from(varint(payload, &mut at)?).ok()?;
    let mut body = header;
    let mut columns = Vec::new();
    while at < header {
        if columns.len() == COLUMNS_LIMIT {
            return None;
        }
        let kind = varint(payload, &mut at)?;
        let size = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            _ => usize::try_from(kind.checked_sub(12)? / 2).ok()?,
        };
        let end = body.checked_add(size)?;
        columns.push(payload.get(body..end).map_or(Column::Other, |bytes| column(kind, bytes)));
        body = end;
    }
    Some(columns)
}

fn column(kind: u64, bytes: &[u8]) -> Column {
    match kind {
        0 => Column::Null,
        8 => Column::Integer(0),
        9 => Column::Integer(1),
        1..=6 => {
            let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
            let start = if negative { -1 } else { 0 };
            Column::Integer(bytes.iter().fold(start, |number, byte| (number << 8) | i64::from(*byte)))
        }
        kind if kind > 12 && kind % 2 == 1 => {
            std::str::from_utf8(bytes).map_or(Column::Other, |text| Column::Text(text.to_owned()))
        }
        _ => Column::Other,
    }
}

/// Seven bits a byte, and eight in the ninth.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for index in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if index == 8 {
            return Some((number << 8) | u64::from(byte));
        }
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u16::from_be_bytes(*word))
}
