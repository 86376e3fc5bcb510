//! The header of a backup: what kind of file it is, and how long it has to be. Pure but for [`head`].

use std::io::{self, Read};
use std::path::Path;

/// Application id of a backup ("smpb"): no bridge serves it, and no other database passes for one.
pub(super) const BACKUP_ID: i32 = 0x736d_7062;
/// First bytes of a database (SQLite, fileformat2.html).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes of a database's header, and the places of some of its fields.
const HEADER: usize = 100;
const PAGE_SIZE_AT: usize = 16;
const PAGES_AT: usize = 28;
const APPLICATION_AT: usize = 68;

/// The first bytes of a file, fewer if it is shorter, and its length.
///
/// # Errors
/// It cannot be read, or is not a regular file.
pub(super) fn head(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let file = sampan_file::open(path)?;
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.take(HEADER as u64).read_to_end(&mut head)?;
    Ok((head, length))
}

fn field<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at + N)?.try_into().ok()
}

/// The application id of a database with this header; none of another kind of file.
pub(super) fn application(head: &[u8]) -> Option<i32> {
    head.starts_with(MAGIC).then(|| field(head, APPLICATION_AT).map(i32::from_be_bytes)).flatten()
}

/// Whether a file with this header and length is a backup with all of its pages.
pub(super) fn whole(head: &[u8], length: u64) -> Result<(), String> {
    if application(head) != Some(BACKUP_ID) {
        return Err("this is no backup that cloud-bridge backup made".to_owned());
    }
    // 1 stands for 65,536.
    let page = match field(head, PAGE_SIZE_AT).map_or(0, u16::from_be_bytes) {
        1 => 65_536,
        page => u64::from(page),
    };
    let wanted = page * u64::from(field(head, PAGES_AT).map_or(0, u32::from_be_bytes));
    if length < wanted {
        return Err(format!("the backup is cut off: {length} of {wanted} bytes are there; copy it again"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::schema;

    fn header(id: i32, page: u16, pages: u32) -> Vec<u8> {
        let mut head = vec![0; HEADER];
        head[..MAGIC.len()].copy_from_slice(MAGIC);
        head[PAGE_SIZE_AT..PAGE_SIZE_AT + 2].copy_from_slice(&page.to_be_bytes());
        head[PAGES_AT..PAGES_AT + 4].copy_from_slice(&pages.to_be_bytes());
        head[APPLICATION_AT..].copy_from_slice(&[&id.to_be_bytes()[..], &[0; 28]].concat());
        head
    }

    #[test]
    fn whole_backup_has_all_of_its_pages() {
        assert_eq!(whole(&header(BACKUP_ID, 4096, 3), 3 * 4096), Ok(()));
        assert_eq!(whole(&header(BACKUP_ID, 1, 1), 65_536), Ok(()));
        assert!(whole(&header(BACKUP_ID, 4096, 3), 3 * 4096 - 1).unwrap_err().contains("cut off"));
        for foreign in [header(schema::APPLICATION_ID, 4096, 1), b"PK\x03\x04".to_vec(), Vec::new()] {
            assert!(whole(&foreign, 1 << 20).unwrap_err().contains("no backup"));
        }
    }
}
