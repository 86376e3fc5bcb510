//! Opens files that a person names in an argument or in a configuration. A pipe of that name would hang a program until
//! something writes into it (fifo(7)), and a device may do something when it is opened. A token or login that one command
//! reads may come from a pipe and is not read here.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file for reading.
///
/// # Errors
/// It cannot be opened, or is of another kind.
pub fn open(path: &Path) -> io::Result<File> {
    ensure_regular(&fs::metadata(path)?)?;
    // It may have been replaced meanwhile.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    ensure_regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of up to `most` bytes.
///
/// # Errors
/// Same as [`open`], or it is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular file of text of up to `most` bytes.
///
/// # Errors
/// Same as [`read`], or it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

fn ensure_regular(about: &Metadata) -> io::Result<()> {
    let kind = about.file_type();
    let why = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "this is a folder, not a regular file"
    } else if kind.is_fifo() {
        "this is a pipe, not a regular file"
    } else if kind.is_socket() {
        "this is a socket, not a regular file"
    } else {
        "this is a device, not a regular file"
    };
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = |name: &str| folder.path().join(name);
        let error = |path: &Path| open(path).expect_err("it is refused").to_string();
        mkfifo(&path("fifo"), Mode::S_IRWXU).expect("a pipe");
        assert_eq!(error(&path("fifo")), "this is a pipe, not a regular file");
        symlink(path("fifo"), path("link")).expect("a link");
        assert_eq!(error(&path("link")), "this is a pipe, not a regular file");
        let _listener = UnixListener::bind(path("socket")).expect("a socket");
        assert_eq!(error(&path("socket")), "this is a socket, not a regular file");
        assert_eq!(error(folder.path()), "this is a folder, not a regular file");
        assert_eq!(error(Path::new("/dev/zero")), "this is a device, not a regular file");
        assert_eq!(open(&path("none")).expect_err("it is refused").kind(), ErrorKind::NotFound);
        fs::write(path("file"), "text").expect("written");
        symlink(path("file"), path("good")).expect("a link");
        assert_eq!(read_text(&path("good"), 4).expect("a file"), "text");
    }

    #[test]
    fn long_or_binary_text_is_refused() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("file");
        fs::write(&path, b"\xff\xfe").expect("written");
        assert_eq!(read(&path, 2).expect("it has two bytes"), b"\xff\xfe");
        assert_eq!(read(&path, 1).expect_err("it is longer").to_string(), "it is longer than 1 bytes");
        assert_eq!(read_text(&path, 2).expect_err("no text").to_string(), "it is not UTF-8");
    }
}
