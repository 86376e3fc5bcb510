//! Why the store could not answer, and what that says of the disk and of the store.

use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Why the store could not answer. The path is in every message.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("store {}: {source}", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("store {}: {what} does not parse: {source}", path.display())]
    Row { path: PathBuf, what: String, source: serde_json::Error },
    #[error("store {}: made by a newer edge-runtime (schema {found}, this one knows {known}), and there is no copy from before; use that version", path.display())]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("store {}: was kept in memory, and the disk takes it again", path.display())]
    Back { path: PathBuf },
    #[error("store {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl StoreError {
    /// The disk has no room: nothing is wrong with the store.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.code() == Some(ErrorCode::DiskFull)
    }

    /// The disk accepts no write, temporarily or permanently: full, read-only, broken.
    #[must_use]
    pub fn is_of_disk(&self) -> bool {
        use ErrorCode::{DiskFull, ReadOnly, SystemIoFailure};
        matches!(self, Self::Io { .. }) || matches!(self.code(), Some(DiskFull | ReadOnly | SystemIoFailure))
    }

    /// The file system refuses every change, without asking its medium.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Nothing is wrong with disk or store: others hold it, memory or descriptors are short.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        use ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, OutOfMemory};
        matches!(self, Self::Back { .. })
            || matches!(self.code(), Some(CannotOpen | DatabaseBusy | DatabaseLocked | OutOfMemory))
    }

    /// A block of the store cannot be read, while others perhaps can.
    pub(super) fn is_unreadable(&self) -> bool {
        use rusqlite::ffi::{SQLITE_IOERR_READ, SQLITE_IOERR_SHORT_READ};
        let Self::Sqlite { source, .. } = self else { return false };
        let code = source.sqlite_error().map(|error| error.extended_code);
        matches!(code, Some(SQLITE_IOERR_READ | SQLITE_IOERR_SHORT_READ))
    }

    /// The store itself is damaged: opening it again salvages it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Sqlite { source, .. } if is_corruption(source))
    }

    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite { source, .. } => source.sqlite_error_code(),
            _ => None,
        }
    }
}

fn is_corruption(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}
